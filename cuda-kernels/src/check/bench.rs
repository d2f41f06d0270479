//! Arrays in a device's memory.

use super::Problem;
use super::numbers::{from_bf16, to_bf16};
use crate::{Address, Gpu, Launch, read_onto};
use bytemuck::Pod;
use std::marker::PhantomData;

/// What memory holds until a kernel writes it: a NaN in bf16 and in f32, and no token.
const POISON: [u8; 2] = 0x7fc0u16.to_le_bytes();

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

    fn room<T: Pod>(&mut self, len: usize) -> Result<Buffer<T>, Problem> {
        let address = self.device.alloc(len * size_of::<T>())?;
        Ok(Buffer { address, len, of: PhantomData })
    }

    /// Memory for so many elements, poisoned.
    ///
    /// # Errors
    /// If the device has not so much.
    pub fn alloc<T: Pod>(&mut self, len: usize) -> Result<Buffer<T>, Problem> {
        let buffer = self.room(len)?;
        self.poison(buffer)?;
        Ok(buffer)
    }

    /// Makes an array such that nothing in it is a result, whatever was there before.
    ///
    /// # Errors
    /// If the device fails.
    pub fn poison<T: Pod>(&mut self, buffer: Buffer<T>) -> Result<(), Problem> {
        let bytes: Vec<u8> =
            POISON.iter().copied().cycle().take(buffer.len * size_of::<T>()).collect();
        Ok(self.device.write(buffer.address, &bytes)?)
    }

    /// Memory with these elements.
    ///
    /// # Errors
    /// If the device has not so much.
    pub fn upload<T: Pod>(&mut self, data: &[T]) -> Result<Address, Problem> {
        let buffer = self.room::<T>(data.len())?;
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

    /// What kernels, run one after the other, write to an array. It is poisoned first: what another kernel has left there
    /// would pass for what these should have written.
    ///
    /// # Errors
    /// If the device refuses or fails.
    pub fn written<'l, T: Pod + Send + Sync>(
        &mut self,
        out: Buffer<T>,
        launches: impl IntoIterator<Item = &'l Launch>,
    ) -> Result<Vec<T>, Problem> {
        self.poison(out)?;
        self.run(launches)?;
        self.download(out)
    }
}
