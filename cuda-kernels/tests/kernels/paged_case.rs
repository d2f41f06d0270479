//! Requests in a paged cache, run under the interpreter.

use crate::gpu::Gpu;
use cuda_kernels::Launch;
use cuda_kernels::attention::{PagedAttention, Workspace};
use cuda_kernels::check::Buffer;
pub(crate) use cuda_kernels::check::paged::{Case, Heads, NARROW, Request, WIDE, ragged};
use cuda_kernels::check::paged::{Kernel, upload_batch as upload};
use ptx_interpreter::Counts;

/// What a run of the kernels gave: of each request `[queries][heads][head_dim]`, and what was counted.
pub(crate) struct Ran {
    pub(crate) out: Vec<Vec<u16>>,
    pub(crate) counts: Counts,
}

/// Runs the kernels under the interpreter.
pub(crate) trait Runs {
    fn upload(&self, gpu: &mut Gpu) -> (PagedAttention, Workspace, Buffer<u16>, Buffer<f32>);

    /// The counts are those of the first kernel.
    fn ran(&self, kernel: Kernel) -> Ran;

    fn prefill(&self) -> Ran {
        self.ran(Kernel::Prefill)
    }

    /// By the kernel for Hopper.
    fn prefill_hopper(&self) -> Ran {
        self.ran(Kernel::Hopper)
    }

    fn decode(&self) -> Ran {
        self.ran(Kernel::Decode)
    }

    /// The launch of the kernel for Hopper, and where it writes.
    fn launch_hopper(&self, gpu: &mut Gpu) -> (Launch, Buffer<u16>);
}

impl Runs for Case {
    fn upload(&self, gpu: &mut Gpu) -> (PagedAttention, Workspace, Buffer<u16>, Buffer<f32>) {
        gpu.bench(|gpu| self.place(gpu))
    }

    fn ran(&self, kernel: Kernel) -> Ran {
        let mut gpu = Gpu::new();
        let (attention, workspace, out, _) = self.upload(&mut gpu);
        let launches = self.launches(kernel, attention, workspace).unwrap();
        let counts: Vec<Counts> = launches.iter().map(|launch| gpu.run(launch)).collect();
        Ran { out: self.split(gpu.download(out)), counts: counts[0] }
    }

    fn launch_hopper(&self, gpu: &mut Gpu) -> (Launch, Buffer<u16>) {
        let (attention, workspace, out, _) = self.upload(gpu);
        (self.launches(Kernel::Hopper, attention, workspace).unwrap().remove(0), out)
    }
}

/// Tables, lengths and starts of requests.
pub(crate) fn upload_batch(
    gpu: &mut Gpu,
    requests: &[Request],
    tables: &[Vec<i32>],
) -> cuda_kernels::attention::Batch {
    gpu.bench(|gpu| upload(gpu, requests, tables))
}
