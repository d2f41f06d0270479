//! Arrays in a device's memory.

use super::Problem;
use super::numbers::{from_bf16, to_bf16};
use crate::{Address, Gpu, Launch, read_onto};
use bytemuck::Pod;
use std::marker::PhantomData;

/// So many elements in a device's memory.
#[derive(Debug)]
pub struct Buffer<T> {
    address: Address,
    len: usize,
    of: PhantomData<fn() -> T>,
}

impl<T> Clone for Buffer<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Buffer<T> {}

impl<T> Buffer<T> {
    /// Where its first element is.
    pub fn address(&self) -> Address {
        self.address
    }

    /// How many elements it has.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

/// A device with arrays on it.
pub struct Bench<'a> {
    /// The device.
    pub device: &'a mut dyn Gpu,
}

impl<'a> Bench<'a> {
    /// A device that arrays are to be put on.
    pub fn new(device: &'a mut dyn Gpu) -> Self {
        Bench { device }
    }

    /// Memory for so many elements; what is in them is not said.
    ///
    /// # Errors
    /// If the device has not so much.
    pub fn alloc<T: Pod>(&mut self, len: usize) -> Result<Buffer<T>, Problem> {
        let address = self.device.alloc(len * size_of::<T>())?;
        Ok(Buffer { address, len, of: PhantomData })
    }

    /// Memory with these elements.
    ///
    /// # Errors
    /// If the device has not so much.
    pub fn upload<T: Pod>(&mut self, data: &[T]) -> Result<Address, Problem> {
        let buffer = self.alloc::<T>(data.len())?;
        self.write(buffer, data)?;
        Ok(buffer.address)
    }

    /// Memory with these numbers, rounded to bf16.
    ///
    /// # Errors
    /// If the device has not so much.
    pub fn upload_bf16(&mut self, data: &[f32]) -> Result<Address, Problem> {
        let bits: Vec<u16> = data.iter().copied().map(to_bf16).collect();
        self.upload(&bits)
    }

    /// Overwrites an array's first elements.
    ///
    /// # Errors
    /// If the device fails.
    pub fn write<T: Pod>(&mut self, buffer: Buffer<T>, data: &[T]) -> Result<(), Problem> {
        Ok(self.device.write(buffer.address, bytemuck::cast_slice(data))?)
    }

    /// What an array holds.
    ///
    /// # Errors
    /// If the device fails, or what was launched before has.
    pub fn download<T: Pod + Send + Sync>(&mut self, buffer: Buffer<T>) -> Result<Vec<T>, Problem> {
        let mut data = Vec::new();
        read_onto(self.device, buffer.address, buffer.len, &mut data)?;
        Ok(data)
    }

    /// The same of numbers in bf16.
    ///
    /// # Errors
    /// As [`Bench::download`].
    pub fn download_bf16(&mut self, buffer: Buffer<u16>) -> Result<Vec<f32>, Problem> {
        Ok(self.download(buffer)?.into_iter().map(from_bf16).collect())
    }

    /// Runs kernels one after the other.
    ///
    /// # Errors
    /// If the device refuses or fails.
    pub fn run<'l>(
        &mut self,
        launches: impl IntoIterator<Item = &'l Launch>,
    ) -> Result<(), Problem> {
        launches.into_iter().try_for_each(|launch| self.device.launch(launch))?;
        Ok(())
    }
}
