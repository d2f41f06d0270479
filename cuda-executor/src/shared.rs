//! A device that passes and the pool's memory have in common.

use cuda_kernels::{DeviceError, DeviceResult, Gpu};
use naive_decode::{Error, Result};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// One device, used by one of its owners at a time.
pub(crate) struct Shared<G>(Arc<Mutex<G>>);

impl<G> Clone for Shared<G> {
    fn clone(&self) -> Self {
        Shared(Arc::clone(&self.0))
    }
}

impl<G> Shared<G> {
    pub(crate) fn new(gpu: G) -> Self {
        Shared(Arc::new(Mutex::new(gpu)))
    }

    /// The device itself. Whoever panicked with it left at worst launches undone, and their pass was never committed.
    pub(crate) fn lock(&self) -> MutexGuard<'_, G> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<G: Gpu> Shared<G> {
    /// Does something with the device.
    pub(crate) fn with<T>(&self, work: impl FnOnce(&mut G) -> DeviceResult<T>) -> Result<T> {
        work(&mut self.lock()).map_err(failed)
    }
}

/// What a device says, as an error of a pass. Errors of CUDA stay: whatever is asked of the device afterwards fails too.
pub(crate) fn failed(error: DeviceError) -> Error {
    Error::device("CUDA", error)
}

/// A launch that does not fit is a pass that does not.
pub(crate) fn refused(error: cuda_kernels::Error) -> Error {
    Error::file("CUDA", error)
}
