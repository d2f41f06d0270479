//! What `--model WHAT` means: an embedded model, a place on this machine, or a name on the hub.

mod hub;

pub use hub::{CachedModel, Hub};

use crate::files::ModelFiles;
use crate::gguf::{PartName, is_gguf};
use crate::text_file::is_there;
use naive_decode::{Error, Result};
use std::path::Path;

/// Opens the model that somebody named on a command line: an embedded one, a directory, a `.gguf` or
/// `.safetensors` file, or a name on the Hugging Face hub, which is downloaded once.
///
/// ```text
/// mla                                           an embedded model; `./mla` is a directory
/// ./models/smol                                 a directory in Hugging Face's layout
/// smol.Q4_K_M.gguf                              a file
/// large-00001-of-00003.gguf                     the first of several files
/// HuggingFaceTB/SmolLM2-135M-Instruct           the hub
/// HuggingFaceTB/SmolLM2-135M-Instruct@v0.2      the hub: a branch, tag or commit
/// someone/SmolLM2-GGUF:Q4_K_M                   the hub: the file whose weights are stored so
/// someone/SmolLM2-GGUF:smol.Q4_K_M.gguf         the hub: one file, or all that it is a part of
/// ```
///
/// What is on this machine goes before what is on the hub. A name on the hub without a file means the model in parts
/// (`config.json`, `tokenizer.json`, safetensors) of a repository that has one, and the only GGUF file of another.
///
/// # Errors
/// Whatever is missing, malformed or contradictory, by file; or a hub that cannot be reached.
pub fn open(what: &str) -> Result<ModelFiles> {
    if let Some(model) = embedded_models::all().into_iter().find(|model| model.name == what) {
        return ModelFiles::embedded(model);
    }
    let path = Path::new(what);
    if !is_there(path) {
        let Some(name) = HubName::parse(what) else {
            return Err(Error::invalid("model", format!("{what:?}, which is not there"), kinds()));
        };
        let mut files = open_path(&Hub::from_environment()?.fetch(&name)?)?;
        files.name = what.to_owned();
        if let Some(origin) = &mut files.origin {
            origin.is_shared = true;
        }
        return Ok(files);
    }
    open_path(path)
}

/// Whether a file is a GGUF model, or the first part of one, and not the encoder of pictures that comes beside some: what [`open`]
/// opens by itself.
pub fn is_gguf_model(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.is_file() && is_gguf(path) && !is_of_pictures(&name) && is_first(&name)
}

/// Everything that can be said after `--model`.
fn kinds() -> String {
    let embedded: Vec<_> = embedded_models::all().iter().map(|model| model.name).collect();
    format!(
        "an embedded model ({}), a directory with config.json, a .gguf or .safetensors file, or a \
         name on the hub, owner/name",
        embedded.join(", ")
    )
}

fn open_path(path: &Path) -> Result<ModelFiles> {
    if is_gguf(path) {
        return ModelFiles::open_gguf(path);
    }
    match path.extension().and_then(|extension| extension.to_str()) {
        Some("safetensors") if !path.is_dir() && !is_there(&path.with_file_name("config.json")) => {
            let problem = "has no config.json beside it, expected config.json and \
                           tokenizer.json in the same directory";
            Err(Error::file(path.display().to_string(), problem))
        }
        Some("safetensors") if !path.is_dir() => ModelFiles::open_safetensors(path),
        _ if path.is_file() => {
            let problem = "is a file, expected a directory, a .gguf or a .safetensors file";
            Err(Error::file(path.display().to_string(), problem))
        }
        _ if path.is_dir() && !is_there(&path.join("config.json")) => open_lone_gguf(path),
        _ => ModelFiles::open_directory(path),
    }
}

/// The GGUF model of a directory that has nothing else.
fn open_lone_gguf(directory: &Path) -> Result<ModelFiles> {
    let refused = |problem: String| Err(Error::file(directory.display().to_string(), problem));
    let entries = directory
        .read_dir()
        .map_err(|error| Error::file(directory.display().to_string(), error))?;
    let mut models: Vec<_> =
        entries.flatten().map(|entry| entry.path()).filter(|path| is_gguf_model(path)).collect();
    models.sort();
    match &models[..] {
        [one] => ModelFiles::open_gguf(one),
        [] => refused(
            "has no config.json, expected a directory with config.json, tokenizer.json and model.safetensors, \
             or with one GGUF model"
                .to_owned(),
        ),
        [first, ..] => refused(format!(
            "has no config.json and {} GGUF models, expected one of them by its name, such as {}",
            models.len(),
            first.display()
        )),
    }
}

/// A model on the hub: `owner/name`, then perhaps `@revision`, then perhaps `:file.gguf` or `:Q4_K_M`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HubName {
    /// `owner/name`
    pub repository: String,
    /// A branch, a tag or a commit; `main` if not said.
    pub revision: String,
    /// The one file that is wanted, if there are several models in the repository.
    pub file: Option<Wanted>,
}

/// Which of a repository's GGUF files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Wanted {
    /// The one of this name.
    File(String),
    /// The one whose name ends with how its weights are stored: `Q4_K_M`, `UD-Q4_K_XL`, in capitals or not.
    Stored(String),
}

impl Wanted {
    /// Whether a file is such a one, or the first of such a model's.
    fn is(&self, path: &str) -> bool {
        match self {
            Wanted::File(name) => path == first(name),
            Wanted::Stored(how) => {
                let stem = stem(path).rsplit('/').next().unwrap_or_default().to_ascii_lowercase();
                let before = stem.strip_suffix(&how.to_ascii_lowercase());
                is_model(path) && before.is_some_and(|before| before.ends_with(['-', '.']))
            }
        }
    }
}

/// Whether a file is a GGUF model or the first part of one, and not the encoder of pictures that comes beside some.
fn is_model(path: &str) -> bool {
    let file = path.rsplit('/').next().unwrap_or(path);
    file.ends_with(".gguf") && !is_of_pictures(file) && is_first(file)
}

/// Whether a file has the encoder of pictures that comes beside some models.
fn is_of_pictures(file: &str) -> bool {
    file.starts_with("mmproj")
}

/// Whether a file is the only one of its model by its name, or the first.
fn is_first(file: &str) -> bool {
    file == first(file)
}

/// A GGUF file's path up to its ending, and to its number if it is one of several.
fn stem(path: &str) -> &str {
    match PartName::parse(path) {
        Some(part) => part.stem,
        None => path.strip_suffix(".gguf").unwrap_or(path),
    }
}

/// The file itself, or the first of those that it is one of.
fn first(path: &str) -> String {
    PartName::parse(path).map_or(path.to_owned(), |part| part.of(1))
}

/// All files of the model that a GGUF file is, or is the first of.
fn parts(path: &str) -> Vec<String> {
    match PartName::parse(path) {
        Some(part) => (1..=part.count).map(|number| part.of(number)).collect(),
        None => vec![path.to_owned()],
    }
}

impl HubName {
    /// Whether a file of the repository may be the one that is all of the model.
    fn may_be(&self, path: &str) -> bool {
        match &self.file {
            Some(wanted) => wanted.is(path),
            None => is_model(path),
        }
    }

    /// Reads a name; none if it can only be a path.
    pub fn parse(what: &str) -> Option<Self> {
        let (rest, file) = match what.split_once(':') {
            Some((rest, file)) => (rest, Some(file)),
            None => (what, None),
        };
        let (repository, revision) = rest.split_once('@').unwrap_or((rest, "main"));
        let (owner, name) = repository.split_once('/')?;
        let is_word = |word: &str| {
            let inner = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
            word.starts_with(|c: char| c.is_ascii_alphanumeric())
                && word.chars().all(inner)
                && !word.contains("..")
        };
        let is_path = |path: &str| path.split('/').all(is_word);
        let is_file = |path: &str| path.ends_with(".gguf") && is_path(path);
        let wanted = |what: &str| match is_file(what) {
            true => Some(Wanted::File(what.to_owned())),
            false => {
                let is_kind = is_word(what) && !what.contains('.');
                is_kind.then(|| Wanted::Stored(what.to_owned()))
            }
        };
        let file = match file {
            Some(file) => Some(wanted(file)?),
            None => None,
        };
        let is_model = is_word(owner)
            && is_word(name)
            && !is_file(repository)
            && !repository.ends_with(".safetensors")
            && is_path(revision);
        is_model.then(|| HubName {
            repository: repository.to_owned(),
            revision: revision.to_owned(),
            file,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_on_the_hub_and_paths_are_told_apart() {
        let parsed = |what| {
            let HubName { repository, revision, file } = HubName::parse(what)?;
            let file = match file {
                None => String::new(),
                Some(Wanted::File(name)) => name,
                Some(Wanted::Stored(how)) => format!("stored as {how}"),
            };
            Some((repository, revision, file))
        };
        let name = |parts: [&str; 3]| Some(parts.map(str::to_owned).into());
        assert_eq!(parsed("o/n"), name(["o/n", "main", ""]));
        assert_eq!(parsed("o/n-1.5_B"), name(["o/n-1.5_B", "main", ""]));
        assert_eq!(parsed("o/n@refs/pr/1"), name(["o/n", "refs/pr/1", ""]));
        assert_eq!(parsed("o/n:q/a.gguf"), name(["o/n", "main", "q/a.gguf"]));
        assert_eq!(parsed("o/n@v1:a.gguf"), name(["o/n", "v1", "a.gguf"]));
        assert_eq!(parsed("o/n:Q4_K_M"), name(["o/n", "main", "stored as Q4_K_M"]));
        assert_eq!(parsed("o/n:UD-Q4_K_XL"), name(["o/n", "main", "stored as UD-Q4_K_XL"]));
        for path in [
            "name",
            "./o/n",
            "../n",
            "/o/n",
            "~/n",
            "a/b/c",
            "o/",
            "o/n.gguf",
            "o/n.safetensors",
            "o/n:a.bin",
            "o/n:../a.gguf",
            "o/n:",
            "o/n@..",
            "o\\n",
            "o /n",
            "C:/n",
            "",
        ] {
            assert_eq!(parsed(path), None, "{path}");
        }
    }
}
