//! A model behind an engine, as `ladder serve` and `ladder chat` start it.

use crate::capacity::CapacityArgs;
use crate::device::{DeviceArgs, engine_options, engine_room, kv_on_gpu};
use crate::engine::{Engine, EngineHandle, EngineOptions, Exchange, KvFile, Prefiller};
use crate::packed::{Keep, load_packed};
use crate::sizes::bytes;
use anyhow::{Context, Result, ensure};
use clap::Args;
use cuda_executor::kv_bytes_per_token;
use embedded_models::TARGET;
use flash_attention::packed::Weights;
use flash_attention::threads::Pool;
use flash_attention::tile_attention::KvType;
use model_files::{ChatTemplate, ModelArgs, ModelFiles, PlainLlama, SamplingDefaults};
use naive_decode::{Element, LoadOptions, Tokenizer};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Which model, and how much memory it gets.
#[derive(Debug, Clone, Args)]
pub struct EngineArgs {
    #[command(flatten)]
    model: ModelArgs,
    /// The same as --model
    #[arg(value_name = "WHAT", conflicts_with = "model")]
    what: Option<String>,
    #[command(flatten)]
    device: DeviceArgs,
    #[command(flatten)]
    capacity: CapacityArgs,
    /// How weights are kept: stored (as the file has them), or all as f32, bf16, bf16-fast (reads prompts faster on
    /// processors with AMX and on AMD's with dot products of BF16, and rounds activations), f16, fp8, q8_0, int8 (reads
    /// prompts faster on processors with AMX), q4_1 or q4_0
    #[arg(long, value_name = "FORMAT", default_value = "stored")]
    weights: Weights,
    /// Bytes for keys and values, all requests together; as much as four texts of the model's whole context, or of
    /// --max-model-len, if not given, and 2 GiB at most unless one such text needs more. Units may be written: 2GiB, 500MB
    #[arg(long, value_name = "BYTES", value_parser = bytes::<usize>)]
    pool_bytes: Option<usize>,
    /// What keys and values are kept as: f32, bf16, f16, int8, which loses something, or bf16-fast, which rounds
    /// what they meet to bf16, too; if not given, f32 on the processor and bf16 on a GPU
    #[arg(long, visible_alias = "kv-cache-dtype", value_name = "TYPE")]
    kv: Option<KvType>,
    /// Bytes of memory besides the pool for keys and values that it has no room for
    #[arg(long, value_name = "BYTES", default_value_t = 0, value_parser = bytes::<usize>)]
    kv_host_bytes: usize,
    /// Directory for a file of keys and values, in which they are found again after a restart; others who can
    /// read it can find out what was said
    #[arg(long, value_name = "DIR")]
    kv_dir: Option<PathBuf>,
    /// Most bytes of that file
    #[arg(
        long, value_name = "BYTES", default_value_t = KV_DIR_BYTES, requires = "kv_dir", value_parser = bytes::<u64>
    )]
    kv_dir_bytes: u64,
}

/// Most bytes of the file of keys and values, if nothing is said.
const KV_DIR_BYTES: u64 = 4 << 30;

/// Whether keys and values are exchanged with other servers.
#[derive(Clone, Default)]
pub struct Exchanging {
    /// Whether prompts are read for others.
    pub reads_for_others: bool,
    /// Who reads prompts for this one.
    pub prefiller: Option<Arc<dyn Prefiller>>,
}

impl Exchanging {
    fn is_wanted(&self) -> bool {
        self.reads_for_others || self.prefiller.is_some()
    }
}

/// A model behind an engine.
pub struct Served {
    /// What to call it.
    pub name: String,
    /// Its vocabulary.
    pub tokenizer: Tokenizer,
    /// How it wants a conversation written down, if it is for conversations.
    pub template: Option<ChatTemplate>,
    /// Tokens that end its texts.
    pub end_tokens: Vec<u32>,
    /// What its passes run on.
    pub device: String,
    /// What its matrices are kept as, and which were converted to that.
    pub weights: String,
    /// What is to be said of a pool that makes texts shorter than the model does.
    pub cut: Option<String>,
    /// How its makers want tokens chosen.
    pub sampling: naive_decode::Result<SamplingDefaults>,
    /// The engine.
    pub engine: EngineHandle,
}

impl EngineArgs {
    /// Loads the model and starts an engine for it.
    ///
    /// # Errors
    /// Whatever is wrong with the files, or a pool that cannot be had.
    pub fn start(&self, exchange: Exchanging) -> Result<Served> {
        self.capacity.check()?;
        let asked = ModelArgs { model: self.model.model.clone().or_else(|| self.what.clone()) };
        let files = asked.files()?;
        let options = |llama: &PlainLlama| {
            let token_bytes = kv_bytes_per_token(&llama.config)?;
            let options = engine_options(llama)?;
            self.set(options, llama.rope.positions(), token_bytes, &files, &exchange)
        };
        let room = |llama: &PlainLlama| engine_room(llama, &options(llama)?);
        let (engine, token_bytes, device, weights) =
            match self.device.gpu(&files, None, self.not_on_gpu(), room)? {
                Some(on_gpu) => {
                    let (device, options) = (on_gpu.gpu.name()?, options(&on_gpu.llama)?);
                    let token_bytes = kv_bytes_per_token(&on_gpu.llama.config)?;
                    let engine = Engine::over(on_gpu.target(&files)?, options);
                    (engine, token_bytes, device, "bf16".to_owned())
                }
                None => {
                    let kept = self.kv.unwrap_or(KvType::Exact(Element::F32));
                    let context = self.longer_context(&files);
                    let kv_element = kept.rounded_to();
                    let options = LoadOptions { kv_element, context, ..LoadOptions::default() };
                    let pool = Pool::shared();
                    let loaded = load_packed(&files, self.weights, options, &pool, Keep::Slow)?;
                    let (weights, model) = (loaded.weights(), Arc::new(loaded.model));
                    let options = EngineOptions::with_kept(&model, kept)?;
                    let token_bytes = EngineOptions::token_bytes(&model, kept)?;
                    let context = model.context();
                    let options = self.set(options, context, token_bytes, &files, &exchange)?;
                    (Engine::new(model, options), token_bytes, "the processor".to_owned(), weights)
                }
            };
        let engine = engine.context("cannot set up the engine")?;
        let cut = self.capacity.check_context(&engine.limits(), token_bytes)?;
        let engine = EngineHandle::start(engine)?;
        let end_tokens = files.config.end_tokens.clone();
        let name = name(&asked, &files);
        let ModelFiles { tokenizer, chat_template: template, sampling, .. } = files;
        Ok(Served { name, tokenizer, template, end_tokens, device, weights, cut, sampling, engine })
    }
}

impl EngineArgs {
    /// The longest context that the model has frequencies for, if those are others than for short texts and texts are asked for
    /// that want them.
    fn longer_context(&self, files: &ModelFiles) -> Option<usize> {
        let (trained, longest) = (files.config.trained_context, files.longest_context());
        (longest > trained && self.capacity.is_longer_than(trained)).then_some(longest)
    }

    /// What was asked for that a GPU does not do.
    fn not_on_gpu(&self) -> Option<String> {
        let stored = (self.weights != Weights::AsStored).then(|| {
            "--weights names a format of the processor's, expected none on a GPU".to_owned()
        });
        stored.or(kv_on_gpu(self.kv))
    }

    /// The options with all that was said.
    ///
    /// # Errors
    /// As [`CapacityArgs::set`], or memory besides the pool without room for a block.
    fn set(
        &self,
        options: EngineOptions,
        capacity: usize,
        token_bytes: usize,
        files: &ModelFiles,
        exchange: &Exchanging,
    ) -> Result<EngineOptions> {
        let options = self.capacity.set(options, capacity, token_bytes)?;
        let (host_bytes, block) = (self.kv_host_bytes, EngineOptions::pool_for(1, token_bytes));
        ensure!(
            host_bytes == 0 || host_bytes >= block,
            "--kv-host-bytes is {host_bytes}, expected 0 or at least {block}, one block"
        );
        let exchange = exchange.is_wanted().then(|| Exchange {
            model: digest(files, self.weights),
            prefiller: exchange.prefiller.clone(),
        });
        Ok(EngineOptions {
            exchange,
            pool_bytes: self.pool_bytes.unwrap_or(options.pool_bytes),
            host_bytes,
            kv_file: self.kv_dir.clone().map(|directory| KvFile {
                directory,
                bytes: self.kv_dir_bytes,
                model: digest(files, self.weights),
            }),
            ..options
        })
    }
}

/// Tells the model from others, and what its weights are kept as. By content only: another server has a copy with
/// other times, and so has this one when it has fetched the files again.
fn digest(files: &ModelFiles, weights: Weights) -> [u8; 32] {
    let mut hasher = blake3::Hasher::new();
    match files.origin() {
        Some(origin) => hasher.update(&origin.content),
        None => hasher.update(TARGET.weights),
    };
    hasher.update(format!("{weights:?}").as_bytes());
    hasher.finalize().into()
}

/// What requests call a model: one that is embedded or on the hub as whoever serves it did, the last part of a path.
fn name(model: &ModelArgs, files: &ModelFiles) -> String {
    let called = files.name.as_str();
    let path = Path::new(called);
    match (&model.model, path.file_stem()) {
        (None, _) => TARGET.name.to_owned(),
        (Some(embedded), _) if files.origin().is_none() => embedded.clone(),
        (Some(_), Some(stem)) if path.is_file() => stem.to_string_lossy().into_owned(),
        (Some(_), _) if path.is_dir() => {
            let whole = path.canonicalize().unwrap_or_else(|_| path.to_owned());
            whole.file_name().map_or(called.to_owned(), |name| name.to_string_lossy().into_owned())
        }
        _ => called.to_owned(),
    }
}
