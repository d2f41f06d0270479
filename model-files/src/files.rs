//! Everything that a model is made of, opened but not yet unpacked.

use crate::blocks::RawTensor;
use crate::chat::ChatTemplate;
use crate::gguf::Gguf;
use crate::safetensors::Safetensors;
use embedded_models::EmbeddedModel;
use naive_decode::{Checkpoint, Config, Error, LoadOptions, Model, Pack, Result, Tokenizer, dense};
use std::path::Path;

/// A model's files.
pub struct ModelFiles {
    /// What to call it.
    pub name: String,
    /// Its shape. Its end tokens are all that are known: from `config.json`, from
    /// `generation_config.json`, and the one with which the chat template ends a turn.
    pub config: Config,
    /// Its vocabulary; it goes with the config.
    pub tokenizer: Tokenizer,
    /// How it wants a conversation written down, if it is for conversations.
    pub chat_template: Option<ChatTemplate>,
    weights: Weights,
}

enum Weights {
    Safetensors(Safetensors),
    Gguf(Gguf),
}

impl ModelFiles {
    /// A model that is part of the program.
    ///
    /// # Errors
    /// If its files do not go together.
    pub fn embedded(model: &EmbeddedModel) -> Result<Self> {
        let name = |file: &str| format!("embedded {}/{file}", model.name);
        let mut config = Config::from_json(&name("config.json"), model.config)?;
        config.add_end_tokens(&name("generation_config.json"), model.generation_config)?;
        let tokenizer = Tokenizer::from_bytes(&name("tokenizer.json"), model.tokenizer)?;
        let chat_template = ChatTemplate::from_tokenizer_config(
            &name("tokenizer_config.json"),
            model.tokenizer_config,
            None,
        )?;
        let weights = Checkpoint::embedded(&name("model.safetensors"), model.weights)?;
        let weights = Weights::Safetensors(weights.into());
        let called = format!("{} (embedded)", model.name);
        ModelFiles { name: called, config, tokenizer, chat_template, weights }.checked()
    }

    /// A directory in Hugging Face's layout: `config.json`, `tokenizer.json`, the weights in
    /// `model.safetensors` or in several files with an index, and, if they are there,
    /// `generation_config.json`, `tokenizer_config.json` and `chat_template.jinja`.
    ///
    /// # Errors
    /// Whatever is missing, malformed or contradictory, by file.
    pub fn open_directory(directory: &Path) -> Result<Self> {
        Self::from_parts(directory, directory, &Safetensors::open_directory)
    }

    /// A safetensors file with the other files of a model beside it.
    ///
    /// # Errors
    /// As [`ModelFiles::open_directory`].
    pub fn open_safetensors(path: &Path) -> Result<Self> {
        let directory = path.parent().unwrap_or(Path::new(""));
        Self::from_parts(path, directory, &|_| Safetensors::open(path))
    }

    /// A GGUF file, which has everything in it.
    ///
    /// # Errors
    /// Whatever is malformed, missing or unknown in it.
    pub fn open_gguf(path: &Path) -> Result<Self> {
        let gguf = Gguf::open(path)?;
        let metadata = gguf.metadata();
        let config = gguf.config()?;
        let tokenizer = gguf.tokenizer()?;
        let chat_template = match metadata.text("tokenizer.chat_template")? {
            None => None,
            Some(source) => {
                let tokens = [gguf.special_token("bos")?, gguf.special_token("eos")?];
                let [beginning, end] = tokens.map(|token| token.map(str::to_owned));
                let file = format!("{}, tokenizer.chat_template", gguf.file());
                Some(ChatTemplate::new(&file, source, beginning, end)?)
            }
        };
        let name = path.display().to_string();
        ModelFiles { name, config, tokenizer, chat_template, weights: Weights::Gguf(gguf) }
            .checked()
    }

    fn from_parts(
        named: &Path,
        directory: &Path,
        weights: &dyn Fn(&Path) -> Result<Safetensors>,
    ) -> Result<Self> {
        let path = directory.join("config.json");
        let mut config = Config::from_json(&path.display().to_string(), &read(&path)?)?;
        let path = directory.join("generation_config.json");
        if path.exists() {
            config.add_end_tokens(&path.display().to_string(), &read(&path)?)?;
        }
        let tokenizer = Tokenizer::from_file(directory.join("tokenizer.json"))?;
        let chat_template = read_template(directory)?;
        let weights = Weights::Safetensors(weights(directory)?);
        let name = named.display().to_string();
        ModelFiles { name, config, tokenizer, chat_template, weights }.checked()
    }

    /// Vocabulary and model belong together, and the template's end of turn is known as an end.
    fn checked(mut self) -> Result<Self> {
        self.tokenizer.check_vocab_size(self.config.vocab_size)?;
        let template = self.chat_template.as_ref();
        let end = template.and_then(|template| template.end_of_turn(&self.tokenizer));
        if let Some(end) = end.filter(|end| !self.config.end_tokens.contains(end)) {
            self.config.end_tokens.push(end);
        }
        Ok(self)
    }

    /// Reads one tensor as f32, by its name in Hugging Face's layout. This is a
    /// [`Tensors`](naive_decode::Tensors): `&|name, shape| files.tensor(name, shape)`.
    ///
    /// # Errors
    /// If it is missing, has another shape, is of a type that is not read, or holds a NaN or an
    /// infinity.
    pub fn tensor(&self, name: &str, shape: &[usize]) -> Result<Vec<f32>> {
        match &self.weights {
            Weights::Safetensors(safetensors) => safetensors.tensor(name, shape),
            Weights::Gguf(gguf) => gguf.tensor(name, shape),
        }
    }

    /// A tensor as it is stored, by its name in Hugging Face's layout, for whoever packs weights
    /// without a detour through f32. None if it is missing or of a type that is not read.
    pub fn raw(&self, name: &str) -> Option<RawTensor<'_>> {
        match &self.weights {
            Weights::Safetensors(safetensors) => safetensors.raw(name),
            Weights::Gguf(gguf) => gguf.raw(name),
        }
    }

    /// The model with plain f32 weights.
    ///
    /// # Errors
    /// Whatever is wrong with the weights; or a config that stretches RoPE, which the caller takes
    /// out of it and sees to.
    pub fn load(&self, options: LoadOptions) -> Result<Model> {
        self.assemble(options, &dense(options.isa))
    }

    /// The model with its matrices stored as `pack` decides. One that takes matrices as they are
    /// stored finds them with [`ModelFiles::raw`].
    ///
    /// # Errors
    /// As [`ModelFiles::load`], or whatever `pack` refuses.
    pub fn assemble(&self, options: LoadOptions, pack: Pack) -> Result<Model> {
        let tensors = |name: &str, shape: &[usize]| self.tensor(name, shape);
        Model::assemble(self.config.clone(), options, &tensors, pack)
    }
}

/// The chat template of a directory, if it has one.
fn read_template(directory: &Path) -> Result<Option<ChatTemplate>> {
    let (path, own) =
        (directory.join("tokenizer_config.json"), directory.join("chat_template.jinja"));
    let source = match own.exists() {
        true => Some(String::from_utf8_lossy(&read(&own)?).into_owned()),
        false => None,
    };
    let own = own.display().to_string();
    let own_file = source.as_deref().map(|source| (own.as_str(), source));
    match (path.exists(), own_file) {
        (true, _) => {
            let file = path.display().to_string();
            ChatTemplate::from_tokenizer_config(&file, &read(&path)?, own_file)
        }
        (false, Some((file, source))) => ChatTemplate::new(file, source, None, None).map(Some),
        (false, None) => Ok(None),
    }
}

fn read(path: &Path) -> Result<Vec<u8>> {
    std::fs::read(path).map_err(|source| Error::Io { path: path.to_owned(), source })
}
