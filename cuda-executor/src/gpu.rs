//! The seam to a device: memory, and launches.

use cuda_kernels::{Address, Launch};
use naive_decode::Result;

/// A device that runs kernels. A driver is one; in the tests the interpreter is another.
pub trait Gpu {
    /// Memory for so many bytes, for as long as the device is there. It begins at a multiple of 256.
    ///
    /// # Errors
    /// If there is not so much.
    fn alloc(&mut self, bytes: usize) -> Result<Address>;
    /// Copies to the device, before whatever is launched later.
    ///
    /// # Errors
    /// If the device refuses.
    fn write(&mut self, to: Address, bytes: &[u8]) -> Result<()>;
    /// Copies from the device, after whatever was launched before.
    ///
    /// # Errors
    /// If the device refuses, or something launched before has failed.
    fn read(&mut self, from: Address, bytes: &mut [u8]) -> Result<()>;
    /// Runs a kernel after those launched before.
    ///
    /// # Errors
    /// If the device refuses.
    fn launch(&mut self, launch: &Launch) -> Result<()>;
}
