//! Where a model's passes run: on the processor, or on a GPU.

use crate::engine::{EngineOptions, Target};
use anyhow::{Result, anyhow};
use clap::{Args, ValueEnum};
use cuda_executor::{CudaExecutor, Driver, Room, kv_bytes_per_token};
use cuda_kernels::Gpu;
use flash_attention::tile_attention::KvType;
use kv_cache::{CachedDecoder, CachedExecutor};
use model_files::{ModelFiles, PlainLlama};
use naive_decode::Element;
use paged_cache::PagedCache;

/// Where a model's passes run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum Device {
    /// On a GPU where there is one and the kernels fit the model; otherwise on the processor
    #[default]
    Auto,
    /// On the processor
    Cpu,
    /// On the first GPU, in bfloat16; an error where that cannot be
    Cuda,
}

/// Where a model's passes run, as an argument.
#[derive(Debug, Clone, Copy, Default, Args)]
pub struct DeviceArgs {
    /// Where the model runs: cpu, cuda (a GPU, where all is bfloat16), or auto, which is cuda where that can be
    #[arg(long, value_enum, value_name = "WHERE", default_value_t = Device::Auto, hide_possible_values = true)]
    pub device: Device,
}

/// A GPU, and a model that fits it.
pub struct OnGpu<G = Driver> {
    /// The GPU.
    pub gpu: G,
    /// The model's shape and its RoPE.
    pub llama: PlainLlama,
}

impl DeviceArgs {
    /// The GPU to run on with room for `context` tokens of a text, or for as many as the model is for; none if the
    /// processor is to run it. `otherwise` says what else of what was asked for a GPU does not do.
    ///
    /// # Errors
    /// In one line, if a GPU was asked for and there is none, or it cannot run the model.
    pub fn gpu(
        self,
        files: &ModelFiles,
        context: Option<usize>,
        otherwise: Option<String>,
    ) -> Result<Option<OnGpu>> {
        // Who asks for what the processor alone does has asked for the processor.
        if self.device == Device::Cpu || (self.device == Device::Auto && otherwise.is_some()) {
            return Ok(None);
        }
        let gpu = match (Driver::open(), self.device) {
            (Ok(gpu), _) => gpu,
            (Err(error), Device::Cuda) => return Err(error.into()),
            (Err(_), _) => return Ok(None),
        };
        let fits = || {
            let llama = files.plain_llama(context)?;
            kv_bytes_per_token(&llama.config)?;
            otherwise.map_or(Ok(llama), |problem| Err(anyhow!(problem)))
        };
        match (fits(), self.device) {
            (Ok(llama), _) => Ok(Some(OnGpu { gpu, llama })),
            (Err(error), Device::Cuda) => Err(error),
            (Err(error), _) => {
                eprintln!("on the processor, though there is a GPU: {error}");
                Ok(None)
            }
        }
    }
}

/// What a GPU does not do of what keys and values are asked to be kept as; nothing asked for is fine.
pub fn kv_on_gpu(kept: Option<KvType>) -> Option<String> {
    match kept {
        None | Some(KvType::Exact(Element::Bf16)) => None,
        Some(other) => Some(format!("keys and values are kept as {other}, expected bf16 on a GPU")),
    }
}

/// Rows of a pass on a GPU, at most: enough to be limited by arithmetic, and still a few milliseconds.
const ROWS: usize = 1024;

impl<G: Gpu + 'static> OnGpu<G> {
    /// How an engine on this GPU is set up, if nothing is said.
    ///
    /// # Errors
    /// If the kernels do not fit the model.
    pub fn options(&self) -> Result<EngineOptions> {
        let bytes = kv_bytes_per_token(&self.llama.config)?;
        let kept = KvType::Exact(Element::Bf16);
        let options = EngineOptions::for_texts(self.llama.rope.positions(), bytes);
        Ok(EngineOptions { kept, rows: ROWS, ..options })
    }

    /// The model on the GPU, with a pool as the options say.
    ///
    /// # Errors
    /// Whatever is wrong with the files, or if the GPU has too little memory.
    pub fn target(self, files: &ModelFiles, options: &EngineOptions) -> Result<Target> {
        let bytes = kv_bytes_per_token(&self.llama.config)?;
        let capacity = self.llama.rope.positions();
        let room = Room { tokens: options.pool_bytes / bytes, capacity, rows: options.rows };
        Ok(Box::new(self.executor(files, room)?))
    }

    /// One text of at most `capacity` tokens, or as many as the model is for, on the GPU.
    ///
    /// # Errors
    /// As [`OnGpu::target`].
    pub fn decoder(
        self,
        files: &ModelFiles,
        capacity: usize,
    ) -> Result<CachedDecoder<PagedCache, CudaExecutor<G>>> {
        let capacity = capacity.min(self.llama.rope.positions()).max(1);
        let rows = ROWS.min(capacity);
        let mut executor = self.executor(files, Room { tokens: capacity, capacity, rows })?;
        executor.cache_mut().open();
        Ok(CachedDecoder::over(executor, Some(rows))?)
    }

    /// The model on the GPU.
    ///
    /// # Errors
    /// As [`OnGpu::target`].
    pub fn executor(self, files: &ModelFiles, room: Room) -> Result<CudaExecutor<G>> {
        let OnGpu { gpu, llama: PlainLlama { config, rope } } = self;
        let tensors = |name: &str, shape: &[usize]| {
            let numbers = files.tensor(name, shape);
            files.release_pages();
            numbers
        };
        Ok(CudaExecutor::new(gpu, config, &rope, &tensors, room)?)
    }
}
