//! The interpreter as a device.

use crate::numbers::{from_bf16, to_bf16};
use bytemuck::Pod;
use cuda_kernels::{Address, Launch};
use ptx_interpreter::{Buffer, Counts, Device, Error, Module};
use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex};

/// Modules that were read already, by where their text is.
static MODULES: LazyLock<Mutex<HashMap<usize, Arc<Module>>>> = LazyLock::new(Mutex::default);

/// A device with its memory.
pub(crate) struct Gpu {
    device: Device,
}

impl Gpu {
    pub(crate) fn new() -> Self {
        Gpu { device: Device::new() }
    }

    pub(crate) fn upload<T: Pod>(&mut self, data: &[T]) -> Address {
        self.device.upload(data).address()
    }

    /// Numbers rounded to bf16.
    pub(crate) fn upload_bf16(&mut self, data: &[f32]) -> Address {
        let bits: Vec<u16> = data.iter().copied().map(to_bf16).collect();
        self.upload(&bits)
    }

    pub(crate) fn alloc<T: Pod>(&mut self, len: usize) -> Buffer<T> {
        self.device.alloc(len)
    }

    pub(crate) fn write<T: Pod>(&mut self, buffer: Buffer<T>, data: &[T]) {
        self.device.write(buffer, data).unwrap();
    }

    pub(crate) fn download<T: Pod>(&self, buffer: Buffer<T>) -> Vec<T> {
        self.device.download(buffer).unwrap()
    }

    pub(crate) fn bytes<T: Pod>(&self, buffer: Buffer<T>) -> Vec<u8> {
        bytemuck::cast_slice(&self.download(buffer)).to_vec()
    }

    pub(crate) fn download_bf16(&self, buffer: Buffer<u16>) -> Vec<f32> {
        self.download(buffer).into_iter().map(from_bf16).collect()
    }

    /// Runs a kernel that should run.
    pub(crate) fn run(&mut self, launch: &Launch) -> Counts {
        let module = {
            let mut modules = MODULES.lock().unwrap();
            let place = launch.ptx.as_ptr() as usize;
            let read = || Arc::new(Module::parse(launch.ptx).unwrap_or_else(|e| panic!("{e}")));
            Arc::clone(modules.entry(place).or_insert_with(read))
        };
        self.run_module(&module, launch).unwrap_or_else(|error| panic!("{error}"))
    }

    /// Runs a kernel of another text than its launch's.
    pub(crate) fn try_run(&mut self, ptx: &str, launch: &Launch) -> Result<Counts, Error> {
        self.run_module(&Module::parse(ptx)?, launch)
    }

    fn run_module(&mut self, module: &Module, launch: &Launch) -> Result<Counts, Error> {
        let kernel = module.kernel(launch.entry)?;
        Ok(ptx_interpreter::run(kernel, &mut self.device, &launch.interpreted())?.counts)
    }
}
