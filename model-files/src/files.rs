//! Everything that a model is made of, opened but not yet unpacked.

use crate::architectures::{self, Architecture, Family, Source, Writer};
use crate::blocks::RawTensor;
use crate::chat::ChatTemplate;
use crate::gguf::Gguf;
use crate::origin::{Origin, Stamp};
use crate::safetensors::Safetensors;
use crate::sampling::SamplingDefaults;
use crate::text_file::{TextFile, read};
use crate::tokenizer_file::read_tokenizer;
use embedded_models::EmbeddedModel;
use kv_cache::RopeScaling;
use naive_decode::{Checkpoint, Config, Error, LoadOptions, Model, Pack, Result, Tokenizer, dense};
use std::path::Path;
use std::time::UNIX_EPOCH;

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
    /// How its makers want tokens chosen, as far as they say.
    pub sampling: Result<SamplingDefaults>,
    /// What errors call the file that says the shape.
    config_file: String,
    family: Box<dyn Family>,
    weights: Weights,
    pub(crate) origin: Option<Origin>,
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
        let config_file = name("config.json");
        let architecture = Architecture::from_json(&config_file, model.config)?;
        let Architecture { mut config, family } = architecture;
        let generation = name("generation_config.json");
        config.add_end_tokens(&generation, model.generation_config)?;
        let sampling = SamplingDefaults::from_json(&generation, model.generation_config);
        let tokenizer = Tokenizer::from_bytes(&name("tokenizer.json"), model.tokenizer)?;
        let chat_template = ChatTemplate::from_tokenizer_config(
            &name("tokenizer_config.json"),
            model.tokenizer_config,
            None,
        )?;
        let weights = Checkpoint::embedded(&name("model.safetensors"), model.weights)?;
        let weights = Weights::Safetensors(weights.into());
        let called = format!("{} (embedded)", model.name);
        let origin = None;
        ModelFiles {
            name: called,
            config,
            tokenizer,
            chat_template,
            sampling,
            config_file,
            family,
            weights,
            origin,
        }
        .checked()
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

    /// A GGUF file, which has everything in it, or the first of several.
    ///
    /// # Errors
    /// Whatever is malformed, missing or unknown in it.
    pub fn open_gguf(path: &Path) -> Result<Self> {
        let gguf = Gguf::open(path)?;
        let metadata = gguf.metadata();
        let Architecture { config, family } = gguf.architecture()?;
        let tokenizer = gguf.tokenizer()?;
        let sampling = SamplingDefaults::from_gguf(metadata);
        let chat_template = match metadata.text("tokenizer.chat_template")? {
            None => None,
            Some(source) => {
                let tokens = [gguf.special_token("bos")?, gguf.special_token("eos")?];
                let [beginning, end] = tokens.map(|token| token.map(str::to_owned));
                let file = format!("{}, tokenizer.chat_template", gguf.file());
                let template = ChatTemplate::new(&file, source, beginning, end)?;
                Some(match metadata.text("tokenizer.chat_template.tool_use")? {
                    Some(source) => template.with_tools(source)?,
                    None => template,
                })
            }
        };
        let config_file = format!("{}, metadata", gguf.file());
        let origin = Some(Origin::new(path, &gguf.stamps()));
        let (name, weights) = (path.display().to_string(), Weights::Gguf(gguf));
        ModelFiles {
            name,
            config,
            tokenizer,
            chat_template,
            sampling,
            config_file,
            family,
            weights,
            origin,
        }
        .checked()
    }

    fn from_parts(
        named: &Path,
        directory: &Path,
        weights: &dyn Fn(&Path) -> Result<Safetensors>,
    ) -> Result<Self> {
        let path = directory.join("config.json");
        let json = read(&path)?;
        // How the tensors become matrices hangs on the config, whenever it was written.
        let config_stamp = Stamp::new(&path, UNIX_EPOCH, json.len(), &json);
        let config_file = path.display().to_string();
        let architecture = Architecture::from_json(&config_file, &json)?;
        let Architecture { mut config, family } = architecture;
        let mut sampling = Ok(SamplingDefaults::default());
        if let Some(generation) = TextFile::of(directory, "generation_config.json")? {
            config.add_end_tokens(&generation.name, &generation.bytes)?;
            sampling = SamplingDefaults::from_json(&generation.name, &generation.bytes);
        }
        let settings = TextFile::of(directory, "tokenizer_config.json")?;
        let tokenizer = read_tokenizer(directory, settings.as_ref())?;
        let chat_template = read_template(directory, settings.as_ref())?;
        let weights = weights(directory)?;
        let origin = Some(Origin::new(named, &[weights.stamps(), &[config_stamp]].concat()));
        let (name, weights) = (named.display().to_string(), Weights::Safetensors(weights));
        ModelFiles {
            name,
            config,
            tokenizer,
            chat_template,
            sampling,
            config_file,
            family,
            weights,
            origin,
        }
        .checked()
    }

    pub(crate) fn family(&self) -> &dyn Family {
        &*self.family
    }

    /// Where the files are, and what tells them from others; none of a model that is part of the program.
    pub fn origin(&self) -> Option<&Origin> {
        self.origin.as_ref()
    }

    /// Longest context that the model reaches without being stretched by anybody: beyond the trained one
    /// only if it is asked for when the model is loaded ([`LoadOptions::context`]).
    pub fn longest_context(&self) -> usize {
        self.family.longest_context(&self.config)
    }

    /// Whether nobody else can stretch the model's RoPE: its config does, or its family has frequencies of its own.
    pub fn brings_stretching(&self) -> bool {
        self.config.rope_scaling.is_some() || self.family.turns_by_its_own()
    }

    /// How the config says that RoPE is stretched, if it says so.
    ///
    /// # Errors
    /// A stretching that is not known, by file and field.
    pub fn rope_scaling(&self) -> Result<Option<RopeScaling>> {
        let scaling = self.config.rope_scaling.as_ref();
        let scaling = scaling.map(|json| RopeScaling::from_json(json, &self.config)).transpose();
        scaling.map_err(|error| Error::file(&self.config_file, error))
    }

    /// How many tokens back each layer looks; everything where that is not said.
    pub fn windows(&self) -> Vec<Option<usize>> {
        let windows = self.family.windows();
        (0..self.config.layers).map(|layer| windows.get(layer).copied().flatten()).collect()
    }

    /// Lets go of the pages that were read so far: whoever packs weights has no more use for them, and
    /// while they are mapped they count as the program's memory.
    pub fn release_pages(&self) {
        match &self.weights {
            Weights::Safetensors(safetensors) => safetensors.release_pages(),
            Weights::Gguf(gguf) => gguf.release_pages(),
        }
    }

    /// Numbers in all weights.
    pub fn parameters(&self) -> usize {
        match &self.weights {
            Weights::Safetensors(safetensors) => safetensors.parameters(),
            Weights::Gguf(gguf) => gguf.parameters(),
        }
    }

    /// Vocabulary and model belong together, and the template's end of turn is known as an end, if the
    /// model can write it.
    fn checked(mut self) -> Result<Self> {
        self.tokenizer.check_vocab_size(self.config.vocab_size)?;
        let template = self.chat_template.as_ref();
        let end = template.and_then(|template| template.end_of_turn(&self.tokenizer));
        if let Some(end) = end.filter(|end| !self.config.end_tokens.contains(end)) {
            self.config.end_tokens.push(end);
        }
        // One that the model has no row for comes out of it never.
        self.config.end_tokens.retain(|&end| (end as usize) < self.config.vocab_size);
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
            Weights::Safetensors(safetensors) => safetensors.tensor(&self.in_file(name), shape),
            Weights::Gguf(gguf) => gguf.tensor(name, shape),
        }
    }

    /// A tensor as it is stored, by its name in Hugging Face's layout, for whoever packs weights
    /// without a detour through f32. None if it is missing or of a type that is not read.
    pub fn raw(&self, name: &str) -> Option<RawTensor<'_>> {
        match &self.weights {
            Weights::Safetensors(safetensors) => safetensors.raw(&self.in_file(name)),
            Weights::Gguf(gguf) => gguf.raw(name),
        }
    }

    /// How a file in Hugging Face's layout calls a tensor.
    fn in_file(&self, name: &str) -> String {
        format!("{}{name}", self.family.prefix())
    }

    /// The model with plain f32 weights. RoPE is stretched as the config says.
    ///
    /// # Errors
    /// Whatever is wrong with the weights, or a stretching that is not known.
    pub fn load(&self, options: LoadOptions) -> Result<Model> {
        self.assemble(options, &dense(options.isa))
    }

    /// As [`ModelFiles::load`], each matrix stored as `pack` decides.
    ///
    /// # Errors
    /// As [`ModelFiles::load`], and whatever `pack` refuses.
    pub fn assemble(&self, options: LoadOptions, pack: Pack) -> Result<Model> {
        let tensors = |name: &str, shape: &[usize]| self.tensor(name, shape);
        let written_by = match &self.weights {
            Weights::Safetensors(_) => Writer::HuggingFace,
            Weights::Gguf(_) => Writer::LlamaCpp,
        };
        let from = Source { options, tensors: &tensors, pack, written_by };
        let config = Config { rope_scaling: None, ..self.config.clone() };
        architectures::assemble(&*self.family, config, self.rope_scaling()?, from)
    }
}

/// The chat template of a directory, if it has one: a file of its own goes before what its settings
/// (`tokenizer_config.json`) hold.
fn read_template(directory: &Path, settings: Option<&TextFile>) -> Result<Option<ChatTemplate>> {
    let own = TextFile::of(directory, "chat_template.jinja")?;
    let source = own.as_ref().map(|own| String::from_utf8_lossy(&own.bytes));
    let own = own.as_ref().map(|own| own.name.as_str()).zip(source.as_deref());
    match (settings, own) {
        (Some(settings), _) => {
            ChatTemplate::from_tokenizer_config(&settings.name, &settings.bytes, own)
        }
        (None, Some((file, source))) => ChatTemplate::new(file, source, None, None).map(Some),
        (None, None) => Ok(None),
    }
}
