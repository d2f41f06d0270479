//! Runs the PTX of CUDA kernels on any CPU, and counts and checks what they do.
//!
//! The kernels' PTX is committed; this crate executes it as a device would, in so far as the PTX ISA says what a device
//! does: warp by warp, with divergence, shared memory, barriers, asynchronous copies and tensor cores. While it runs, it
//! counts bank conflicts, sectors and tensor-core operations, and it stops with a [`Fault`] where a kernel is wrong: out
//! of bounds, racing, waiting for something that will not come.
//!
//! | Place | What is there |
//! |---|---|
//! | `src/parse/` | text to modules and instructions |
//! | `src/kernel.rs`, `src/launch.rs` | modules and kernels as they are read; grids, blocks, arguments |
//! | `src/isa/` | instructions as they are executed |
//! | `src/cfg.rs` | where lanes that part meet again |
//! | `src/exec/` | blocks, warps, and what each instruction does |
//! | `src/hopper/` | mbarriers, TMA, products of warp groups |
//! | `src/memory.rs` | global memory |
//! | `src/races.rs` | who may touch which byte of shared memory |
//! | `src/counts.rs` | what is counted |
//! | `src/trace.rs` | what somebody who steps through a kernel gets to see |
//! | `src/error.rs` | what can go wrong |
//!
//! ```
//! use ptx_interpreter::{Device, Launch, Module, run};
//!
//! let module = Module::parse(
//!     ".version 8.4 .target sm_80 .address_size 64
//!      .visible .entry twice(.param .u64 data) {
//!          .reg .b32 %r<3>; .reg .b64 %rd<4>;
//!          ld.param.u64 %rd1, [data];
//!          mov.u32 %r1, %tid.x;
//!          mul.wide.u32 %rd2, %r1, 4;
//!          add.s64 %rd3, %rd1, %rd2;
//!          ld.global.u32 %r2, [%rd3];
//!          shl.b32 %r2, %r2, 1;
//!          st.global.u32 [%rd3], %r2;
//!          ret;
//!      }",
//! )?;
//! let mut device = Device::new();
//! let data = device.upload(&[1u32, 2, 3]);
//! let launch = Launch { grid: [1, 1, 1], block: [3, 1, 1], shared_bytes: 0, args: vec![data.into()] };
//! let report = run(module.kernel("twice")?, &mut device, &launch)?;
//! assert_eq!(device.download(data)?, [2, 4, 6]);
//! assert_eq!(report.counts.global_load_sectors, 1);
//! # Ok::<(), ptx_interpreter::Error>(())
//! ```

mod cfg;
mod counts;
mod error;
mod exec;
mod hopper;
mod isa;
mod kernel;
mod launch;
mod memory;
mod parse;
mod races;
mod trace;

pub use counts::Counts;
pub use error::{Error, Fault, FaultKind};
pub use exec::{Report, run, run_traced};
pub use hopper::{ElementType, Swizzle, TensorMap};
pub use kernel::{Kernel, Module};
pub use launch::{Arg, Launch};
pub use memory::{Buffer, Device};
pub use trace::{MbarrierPhase, Pending, PendingBarrier, SharedAccess, Step, Trace, Wavefront};
