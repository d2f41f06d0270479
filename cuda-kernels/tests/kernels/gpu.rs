//! The interpreter as a device, where nothing is expected to fail.

use bytemuck::Pod;
use cuda_kernels::check::numbers::from_bf16;
use cuda_kernels::check::{Bench, Buffer, Problem};
use cuda_kernels::{Address, Gpu as _, Interpreter, Launch};
use ptx_interpreter::{Counts, Error};

/// A device with its memory.
pub(crate) struct Gpu {
    device: Interpreter,
}

impl Gpu {
    pub(crate) fn new() -> Self {
        Gpu { device: Interpreter::new() }
    }

    /// Does something with the device that should go well.
    pub(crate) fn bench<T>(&mut self, work: impl FnOnce(&mut Bench) -> Result<T, Problem>) -> T {
        work(&mut Bench::new(&mut self.device)).unwrap_or_else(|problem| panic!("{problem}"))
    }

    pub(crate) fn upload<T: Pod>(&mut self, data: &[T]) -> Address {
        self.bench(|gpu| gpu.upload(data))
    }

    /// Numbers rounded to bf16.
    pub(crate) fn upload_bf16(&mut self, data: &[f32]) -> Address {
        self.bench(|gpu| gpu.upload_bf16(data))
    }

    pub(crate) fn alloc<T: Pod>(&mut self, len: usize) -> Buffer<T> {
        self.bench(|gpu| gpu.alloc(len))
    }

    pub(crate) fn write<T: Pod>(&mut self, buffer: Buffer<T>, data: &[T]) {
        self.bench(|gpu| gpu.write(buffer, data));
    }

    pub(crate) fn download<T: Pod>(&self, buffer: Buffer<T>) -> Vec<T> {
        bytemuck::pod_collect_to_vec(&self.bytes(buffer))
    }

    pub(crate) fn bytes<T: Pod>(&self, buffer: Buffer<T>) -> Vec<u8> {
        self.at(buffer.address(), buffer.len() * size_of::<T>())
    }

    /// So many bytes of its memory.
    pub(crate) fn at(&self, from: Address, count: usize) -> Vec<u8> {
        self.device.peek(from, count).unwrap()
    }

    pub(crate) fn download_bf16(&self, buffer: Buffer<u16>) -> Vec<f32> {
        self.download(buffer).into_iter().map(from_bf16).collect()
    }

    /// Runs a kernel that should run.
    pub(crate) fn run(&mut self, launch: &Launch) -> Counts {
        self.device.launch(launch).unwrap_or_else(|error| panic!("{error}"));
        self.device.counts
    }

    /// Runs a kernel, which should run, with another number of blocks in x than its launch's.
    pub(crate) fn run_across(&mut self, launch: &Launch, blocks: u32) {
        let ran = self.device.launch_across(launch, blocks);
        ran.unwrap_or_else(|error| panic!("{error}"));
    }

    /// Runs a kernel of another text than its launch's.
    pub(crate) fn try_run(&mut self, ptx: &str, launch: &Launch) -> Result<Counts, Error> {
        self.device.launch_text(ptx, launch)?;
        Ok(self.device.counts)
    }
}
