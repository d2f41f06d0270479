//! Where a model's passes run: on the processor, or on a GPU.

use crate::engine::{EngineOptions, Target};
use crate::say::tell;
use anyhow::{Result, bail, ensure};
use clap::{Args, ValueEnum};
use cuda_executor::{CudaExecutor, Driver, Room, kv_bytes_per_token, prepare};
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

/// A GPU, a model that fits it, and how much room it has there.
pub struct OnGpu<G = Driver> {
    /// The GPU.
    pub gpu: G,
    /// The model's shape and its RoPE.
    pub llama: PlainLlama,
    /// What is set aside beside the weights.
    pub room: Room,
}

impl DeviceArgs {
    /// The GPU to run on, for texts of `context` tokens, or of as many as the model is for; none if the processor is to run
    /// it. `otherwise` says what else of what was asked for a GPU does not do; `room` how much the model needs there.
    ///
    /// # Errors
    /// In one line, if a GPU was asked for and there is none, or it cannot run the model.
    pub fn gpu(
        self,
        files: &ModelFiles,
        context: Option<usize>,
        otherwise: Option<String>,
        room: impl FnOnce(&PlainLlama) -> Result<Room>,
    ) -> Result<Option<OnGpu>> {
        // Who asks for what the processor alone does has asked for the processor.
        if self.device == Device::Cpu || (self.device == Device::Auto && otherwise.is_some()) {
            return Ok(None);
        }
        // A machine without a GPU is nothing to speak of.
        if self.device == Device::Auto && !Driver::is_there() {
            return Ok(None);
        }
        // The GPU last: opening it takes a while, and some of its memory.
        let find = || {
            if let Some(problem) = otherwise {
                bail!(problem);
            }
            let llama = files.plain_llama(context)?;
            let room = room(&llama)?;
            let bytes = room.bytes(&llama.config)?;
            let mut gpu = Driver::open()?;
            // Before the memory is asked for, of which the kernels' code takes some; and while there is still a choice.
            prepare(&mut gpu, &llama.config)?;
            check_memory(bytes, gpu.memory()?.0)?;
            Ok(OnGpu { gpu, llama, room })
        };
        match (find(), self.device) {
            (Ok(on_gpu), _) => Ok(Some(on_gpu)),
            (Err(error), Device::Auto) => {
                tell!("on the processor, though CUDA's driver is there: {error}");
                Ok(None)
            }
            (Err(error), _) => Err(error),
        }
    }
}

/// Bytes of a GPU's memory that are left for what the driver needs to run kernels, and what is lost between allocations.
const LEFT_FREE: usize = 256 << 20;

/// Whether so many bytes can be had.
pub(crate) fn check_memory(bytes: usize, free: usize) -> Result<()> {
    let gb = |bytes: usize| bytes as f64 / 1e9;
    let needed = bytes.saturating_add(LEFT_FREE);
    ensure!(
        needed <= free,
        "the model with its keys and values needs {:.1} GB of the GPU's memory, of which {:.1} GB are free",
        gb(needed),
        gb(free)
    );
    Ok(())
}

/// What a GPU does not do of what keys and values are asked to be kept as; nothing asked for is fine.
pub fn kv_on_gpu(kept: Option<KvType>) -> Option<String> {
    match kept {
        None | Some(KvType::Exact(Element::Bf16)) => None,
        Some(other) => Some(format!("keys and values are kept as {other}, expected bf16 on a GPU")),
    }
}

/// Rows of a pass on a GPU, at most: enough to be limited by arithmetic, and still a few milliseconds.
pub const ROWS: usize = 1024;

/// How an engine on a GPU is set up, if nothing is said.
///
/// # Errors
/// If the kernels do not fit the model.
pub fn engine_options(llama: &PlainLlama) -> Result<EngineOptions> {
    let bytes = kv_bytes_per_token(&llama.config)?;
    let kept = KvType::Exact(Element::Bf16);
    let options = EngineOptions::for_texts(llama.rope.positions(), bytes);
    Ok(EngineOptions { kept, rows: ROWS, ..options })
}

/// Room for an engine, with a pool and for texts as its options say.
///
/// # Errors
/// If the kernels do not fit the model.
pub fn engine_room(llama: &PlainLlama, options: &EngineOptions) -> Result<Room> {
    let tokens = options.pool_bytes / kv_bytes_per_token(&llama.config)?;
    let capacity = llama.rope.positions().min(options.context.unwrap_or(usize::MAX));
    Ok(Room { tokens, capacity, rows: options.rows })
}

/// Room for one text of at most `capacity` tokens, or of as many as the model is for.
pub fn text_room(llama: &PlainLlama, capacity: usize) -> Room {
    let capacity = capacity.min(llama.rope.positions()).max(1);
    Room { tokens: capacity, capacity, rows: ROWS.min(capacity) }
}

impl<G: Gpu + 'static> OnGpu<G> {
    /// The model on the GPU, for an engine.
    ///
    /// # Errors
    /// Whatever is wrong with the files, or if the GPU has too little memory.
    pub fn target(self, files: &ModelFiles) -> Result<Target> {
        Ok(Box::new(self.executor(files)?))
    }

    /// One text on the GPU.
    ///
    /// # Errors
    /// As [`OnGpu::target`].
    pub fn decoder(self, files: &ModelFiles) -> Result<CachedDecoder<PagedCache, CudaExecutor<G>>> {
        let rows = self.room.rows;
        let mut executor = self.executor(files)?;
        executor.cache_mut().open();
        Ok(CachedDecoder::over(executor, Some(rows))?)
    }

    /// The model on the GPU.
    ///
    /// # Errors
    /// As [`OnGpu::target`].
    pub fn executor(self, files: &ModelFiles) -> Result<CudaExecutor<G>> {
        let OnGpu { gpu, llama: PlainLlama { config, rope }, room } = self;
        let tensors = |name: &str, shape: &[usize]| {
            let numbers = files.tensor(name, shape);
            files.release_pages();
            numbers
        };
        Ok(CudaExecutor::new(gpu, config, &rope, &tensors, room)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use embedded_models::TARGET;

    #[test]
    fn no_room_is_set_aside_for_longer_texts_than_are_asked_for() {
        let llama = ModelFiles::embedded(&TARGET).unwrap().plain_llama(None).unwrap();
        let options = engine_options(&llama).unwrap();
        let room =
            |context| engine_room(&llama, &EngineOptions { context, ..options.clone() }).unwrap();
        assert_eq!(room(None).capacity, llama.rope.positions());
        assert_eq!(room(Some(100)).capacity, 100);
        assert_eq!(room(Some(usize::MAX)).capacity, llama.rope.positions());
        let bytes = |context| room(context).bytes(&llama.config).unwrap();
        assert!(bytes(Some(100)) < bytes(None));
    }

    #[test]
    fn a_model_has_to_fit_before_anything_is_set_aside() {
        check_memory(7_000_000_000, 8_000_000_000).unwrap();
        // The weights alone would just fit.
        let refused = check_memory(7_900_000_000, 8_000_000_000).unwrap_err().to_string();
        assert!(
            refused.contains("needs 8.2 GB") && refused.contains("8.0 GB are free"),
            "{refused}"
        );
        assert!(check_memory(usize::MAX, 8_000_000_000).is_err());
    }
}
