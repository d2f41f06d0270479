//! A small launch of each kind of kernel, ready to run in the interpreter: for whoever wants to watch one.
//!
//! Shapes are as small as what there is to see allows: two tiles where tiles alternate, three where stages are used again.
//! Inputs are numbers from a formula, so every run is the same.

pub mod attention;
mod rows;

use crate::Launch;
use crate::steps::Step;
use attention::Paged;
use ptx_interpreter::{Counts, Device, Error, Module, Trace, run_traced};

/// A kernel with a small launch.
#[derive(Debug, Clone, Copy)]
pub struct Small {
    /// The kernel's name in its module.
    pub name: &'static str,
    /// What is launched, and what to look for.
    pub about: &'static str,
    prepare: fn(&mut Device) -> Launch,
}

const ONE_QUERY: Paged = Paged { keys: 300, queries: 1, heads: 2, kv_heads: 1, is_int8: false };

/// All of them: the numbered steps first, then what serves, by what it does.
pub static ALL: [Small; 24] = [
    Small {
        name: "attention_01_naive",
        about: "causal attention of 16 tokens, a thread for each query: a sector for two bytes, masks as queries end",
        prepare: |device| attention::step(device, Step::Naive, 16, 1),
    },
    Small {
        name: "attention_02_tiled",
        about: "64 tokens: keys and values in shared memory, and bank conflicts",
        prepare: |device| attention::step(device, Step::Tiled, 64, 1),
    },
    Small {
        name: "attention_03_swizzled",
        about: "the same with chunks exchanged: no bank conflicts",
        prepare: |device| attention::step(device, Step::Swizzled, 64, 1),
    },
    Small {
        name: "attention_04_pipelined",
        about: "the same with cp.async: the next tile is on its way while one is worked with",
        prepare: |device| attention::step(device, Step::Pipelined, 64, 1),
    },
    Small {
        name: "attention_05_tensor_cores",
        about: "128 tokens: ldmatrix and mma",
        prepare: |device| attention::step(device, Step::TensorCores, 128, 1),
    },
    Small {
        name: "attention_06_hopper_64",
        about: "384 tokens, three tiles: TMA, mbarriers, wgmma, two warpgroups that take turns",
        prepare: |device| attention::hopper(device, 384, 1),
    },
    Small {
        name: "paged_prefill_64",
        about: "40 queries over 100 keys in a paged cache",
        prepare: |device| Paged { keys: 100, queries: 40, ..ONE_QUERY }.prefill(device),
    },
    Small {
        name: "paged_prefill_hopper_64",
        about: "140 queries over 300 keys with Hopper's instructions: boxes of sixteen keys, each from its own block",
        prepare: |device| Paged { queries: 140, ..ONE_QUERY }.prefill_hopper(device),
    },
    Small {
        name: "paged_decode_64",
        about: "one query over 300 keys in a paged cache: the second of its two splits",
        prepare: |device| ONE_QUERY.decode(device)[0].clone(),
    },
    Small {
        name: "paged_decode_int8_64",
        about: "the same with keys and values in bytes",
        prepare: |device| Paged { is_int8: true, ..ONE_QUERY }.decode(device)[0].clone(),
    },
    Small {
        name: "join_splits",
        about: "the kernel that joins those two splits",
        prepare: |device| attention::join(device, ONE_QUERY),
    },
    Small {
        name: "mla_prefill",
        about: "four queries of 16 heads over 100 latents",
        prepare: |device| attention::latent(device, 4, false),
    },
    Small {
        name: "mla_decode",
        about: "one query of 16 heads over 100 latents",
        prepare: |device| attention::latent(device, 1, true),
    },
    Small { name: "embedding", about: "a row of 64 elements", prepare: rows::embedding },
    Small {
        name: "rms_norm",
        about: "a row of 600 elements: sums in a butterfly, then over the warps",
        prepare: rows::rms_norm,
    },
    Small {
        name: "add_rms_norm",
        about: "the same after adding to the residual",
        prepare: rows::add_rms_norm,
    },
    Small { name: "swiglu", about: "a row of 256 elements", prepare: rows::swiglu },
    Small {
        name: "rope_cache",
        about: "a token's query, key and value: turned, and written to the paged cache",
        prepare: rows::rope_cache,
    },
    Small {
        name: "gemm_prefill",
        about: "128 by 128 outputs of 256 inputs, three stages",
        prepare: |device| rows::gemm(device, 128, 128, rows::Way::Prefill),
    },
    Small {
        name: "gemm_prefill_hopper",
        about: "128 by 192 outputs of 512 inputs with Hopper's instructions: each stage is used twice, a split is closed",
        prepare: |device| rows::gemm(device, 128, 192, rows::Way::Hopper),
    },
    Small {
        name: "gemm_decode_16",
        about: "4 rows, 64 outputs, the second 256 of 512 inputs",
        prepare: |device| rows::gemm(device, 4, 64, rows::Way::Decode),
    },
    Small {
        name: "add_splits",
        about: "the kernel that adds those two splits",
        prepare: |device| rows::gemm(device, 4, 64, rows::Way::Add),
    },
    Small { name: "argmax", about: "the largest of 1,000 scores", prepare: rows::argmax },
    Small {
        name: "sample",
        about: "a token of 1,000, drawn after temperature, top-k and top-p",
        prepare: rows::sample,
    },
];

impl Small {
    /// The launch's kernel and shapes, without running it.
    pub fn launch(&self) -> Launch {
        (self.prepare)(&mut Device::new())
    }

    /// Runs it, block after block, telling `trace` of every instruction.
    ///
    /// # Errors
    /// As [`run_traced`]; none for the kernels that are committed.
    pub fn run_traced(&self, trace: &mut dyn Trace) -> Result<Counts, Error> {
        let mut device = Device::new();
        let launch = (self.prepare)(&mut device);
        let module = Module::parse(launch.ptx)?;
        let kernel = module.kernel(launch.entry)?;
        Ok(run_traced(kernel, &mut device, &launch.interpreted(), trace)?.counts)
    }
}

/// Numbers in bf16 from -2 to 2 in steps that bf16 holds exactly, and that look like noise.
fn bf16s(device: &mut Device, count: usize) -> u64 {
    let bits: Vec<u16> = (0..count).map(|i| (number(i).to_bits() >> 16) as u16).collect();
    device.upload(&bits).address()
}

/// From -2 to 2, a multiple of 1/32.
fn number(i: usize) -> f32 {
    let mixed = (i as u32).wrapping_mul(2_654_435_761) >> 16;
    (mixed % 129) as f32 / 32.0 - 2.0
}

/// Runs what comes before the kernel that is to be seen.
fn first(device: &mut Device, launch: &Launch) {
    launch.run_interpreted(device).expect("a kernel that its tests run");
}
