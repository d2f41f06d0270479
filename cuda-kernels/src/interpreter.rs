//! The interpreter of PTX as a device, for tests on any processor.

use crate::gpu::{DeviceError, DeviceResult, Gpu, Recording, Rows};
use crate::{Address, Launch};
use ptx_interpreter::{Buffer, Counts, Device, Module};
use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

/// Modules that were read already, by where their text is.
static MODULES: LazyLock<Mutex<HashMap<usize, Arc<Module>>>> = LazyLock::new(Mutex::default);

/// A device whose kernels are interpreted. Memory that was not written is NaN in every format, races and early reads end
/// a launch, and what a launch did is counted.
#[derive(Default)]
pub struct Interpreter {
    device: Device,
    /// In order of address.
    buffers: Vec<Buffer<u8>>,
    recordings: Vec<Vec<Launch>>,
    /// Whether it says that it is a Hopper. It runs kernels for one in any case.
    pub is_hopper: bool,
    /// What the last launch counted.
    pub counts: Counts,
    /// Recordings that were played.
    pub replays: usize,
}

impl Interpreter {
    /// A device with nothing allocated.
    pub fn new() -> Self {
        Interpreter::default()
    }

    /// Lists that were recorded.
    pub fn recordings(&self) -> usize {
        self.recordings.len()
    }

    /// What is in its memory.
    ///
    /// # Errors
    /// If that was not allocated.
    pub fn peek(&self, from: Address, bytes: usize) -> DeviceResult<Vec<u8>> {
        let (buffer, at) = self.find(from, bytes)?;
        let all = self.device.download(buffer).map_err(said)?;
        Ok(all[at..at + bytes].to_vec())
    }

    /// Runs a kernel of another text than its launch's.
    ///
    /// # Errors
    /// Whatever is wrong with the text, or with what the kernel does.
    pub fn launch_text(
        &mut self,
        ptx: &str,
        launch: &Launch,
    ) -> Result<(), ptx_interpreter::Error> {
        self.run(&Module::parse(ptx)?, launch)
    }

    /// Runs a kernel with another number of blocks in x than its launch's.
    ///
    /// # Errors
    /// Whatever the kernel does wrong.
    pub fn launch_across(&mut self, launch: &Launch, blocks: u32) -> DeviceResult<()> {
        let module = module_of(launch)?;
        let kernel = module.kernel(launch.entry).map_err(said)?;
        let mut given = launch.interpreted();
        given.grid[0] = blocks;
        self.counts = ptx_interpreter::run(kernel, &mut self.device, &given).map_err(said)?.counts;
        Ok(())
    }

    /// The buffer that so many bytes lie in, and where in it.
    fn find(&self, address: Address, bytes: usize) -> DeviceResult<(Buffer<u8>, usize)> {
        let after = self.buffers.partition_point(|buffer| buffer.address() <= address);
        let within = after.checked_sub(1).map(|i| self.buffers[i]).and_then(|buffer| {
            let at = (address - buffer.address()) as usize;
            (at + bytes <= buffer.len()).then_some((buffer, at))
        });
        within
            .ok_or_else(|| DeviceError(format!("{bytes} bytes at {address:#x} are not allocated")))
    }

    fn run(&mut self, module: &Module, launch: &Launch) -> Result<(), ptx_interpreter::Error> {
        let kernel = module.kernel(launch.entry)?;
        self.counts = ptx_interpreter::run(kernel, &mut self.device, &launch.interpreted())?.counts;
        Ok(())
    }
}

/// A launch's module, read once.
fn module_of(launch: &Launch) -> DeviceResult<Arc<Module>> {
    let mut modules = MODULES.lock().unwrap_or_else(PoisonError::into_inner);
    let place = launch.ptx.as_ptr() as usize;
    if let Some(module) = modules.get(&place) {
        return Ok(Arc::clone(module));
    }
    let module = Arc::new(Module::parse(launch.ptx).map_err(said)?);
    modules.insert(place, Arc::clone(&module));
    Ok(module)
}

fn said(error: ptx_interpreter::Error) -> DeviceError {
    DeviceError(error.to_string())
}

impl Gpu for Interpreter {
    fn is_hopper(&self) -> bool {
        self.is_hopper
    }

    fn alloc(&mut self, bytes: usize) -> DeviceResult<Address> {
        let buffer = self.device.alloc(bytes);
        self.buffers.push(buffer);
        Ok(buffer.address())
    }

    fn write(&mut self, to: Address, bytes: &[u8]) -> DeviceResult<()> {
        let (buffer, at) = self.find(to, bytes.len())?;
        let mut all = self.device.download(buffer).map_err(said)?;
        all[at..at + bytes.len()].copy_from_slice(bytes);
        self.device.write(buffer, &all).map_err(said)
    }

    fn read(&mut self, from: Address, bytes: usize, to: &mut dyn FnMut(&[u8])) -> DeviceResult<()> {
        // By way of the same 4 KiB again and again, as a driver does it with more: whoever reads is tested with pieces.
        let mut memory = [0u128; 256];
        let memory: &mut [u8] = bytemuck::cast_slice_mut(&mut memory);
        for part in self.peek(from, bytes)?.chunks(memory.len()) {
            let piece = &mut memory[..part.len()];
            piece.copy_from_slice(part);
            to(piece);
        }
        Ok(())
    }

    fn copy(&mut self, rows: Rows) -> DeviceResult<()> {
        if rows.count == 0 {
            return Ok(());
        }
        // All of them first: what is refused is refused whole.
        self.find(rows.from, rows.extent())?;
        self.find(rows.to, rows.extent())?;
        rows.one_by_one().try_for_each(|row| {
            let bytes = self.peek(row.from, row.bytes)?;
            self.write(row.to, &bytes)
        })
    }

    fn prepare(&mut self, launches: &[Launch]) -> DeviceResult<()> {
        launches.iter().try_for_each(|launch| {
            module_of(launch)?.kernel(launch.entry).map_err(said)?;
            Ok(())
        })
    }

    fn launch(&mut self, launch: &Launch) -> DeviceResult<()> {
        self.run(&*module_of(launch)?, launch).map_err(said)
    }

    fn record(&mut self, launches: &[Launch]) -> DeviceResult<Recording> {
        self.recordings.push(launches.to_vec());
        Ok(Recording(self.recordings.len() - 1))
    }

    fn replay(&mut self, Recording(number): Recording) -> DeviceResult<()> {
        let launches = self.recordings.get(number).cloned();
        let launches = launches.ok_or_else(|| DeviceError(format!("no recording {number}")))?;
        self.replays += 1;
        launches.iter().try_for_each(|launch| self.launch(launch))
    }

    fn finish(&mut self) -> DeviceResult<()> {
        Ok(())
    }
}
