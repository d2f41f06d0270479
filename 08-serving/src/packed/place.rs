//! Where files of packed weights lie: beside the model, or, where nothing can be written there, in the
//! user's folder for caches.

use anyhow::{Result, anyhow};
use flash_attention::packed::Weights;
use model_files::Origin;
use std::path::{Path, PathBuf};

/// The folder in the user's folder for caches.
const FOLDER: &str = "inference-ladder";

/// Where one model's file may lie, the better place first.
pub(super) struct Places(Vec<PathBuf>);

impl Places {
    /// The places for a model from `origin`, packed as `weights` for so many threads. Each number has a file of its
    /// own: programs with different ones would replace each other's for ever.
    pub(super) fn of(origin: &Origin, weights: Weights, threads: usize) -> Self {
        let ending = format!("{}.threads-{threads}.packed", weights.name());
        let path = &origin.path;
        let beside = match path.is_dir() {
            true => path.join(format!("model.{ending}")),
            false => with_more(path, &ending),
        };
        // What other tools keep in order is left as they know it.
        let beside = Some(beside).filter(|_| !origin.is_shared);
        let own = dirs::cache_dir().map(|folder| {
            let whole = path.canonicalize().unwrap_or_else(|_| path.clone());
            let hash = blake3::hash(whole.as_os_str().as_encoded_bytes()).to_hex();
            let name = whole.file_name().unwrap_or_default().to_string_lossy().into_owned();
            folder.join(FOLDER).join(format!("{name}-{}.{ending}", &hash[..16]))
        });
        Places(beside.into_iter().chain(own).collect())
    }

    /// Those where something lies.
    pub(super) fn there(&self) -> impl Iterator<Item = &Path> {
        self.0.iter().map(PathBuf::as_path).filter(|path| path.symlink_metadata().is_ok())
    }

    /// Writes to the first place that can be written to.
    ///
    /// # Errors
    /// What was wrong with the last, if none can.
    pub(super) fn write(&self, write: impl Fn(&Path) -> Result<()>) -> Result<&Path> {
        let mut refused = anyhow!("there is no folder for caches");
        for path in &self.0 {
            if let Some(folder) = path.parent().filter(|folder| folder.ends_with(FOLDER))
                && let Err(problem) = std::fs::create_dir_all(folder)
            {
                refused = anyhow!("{}: {problem}", folder.display());
                continue;
            }
            match write(path) {
                Ok(()) => return Ok(path),
                Err(problem) => refused = problem,
            }
        }
        Err(refused)
    }
}

/// `model.gguf` → `model.gguf.ENDING`
fn with_more(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{ending}"));
    name.into()
}
