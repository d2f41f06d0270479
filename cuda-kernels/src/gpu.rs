//! The seam to a device: memory, launches, and lists of launches that are played again.

use crate::{Address, Launch};

/// What a device says when it refuses or fails: which call, on what, and the reason.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct DeviceError(pub String);

/// What a device was asked for, or why there is none of it.
pub type DeviceResult<T> = Result<T, DeviceError>;

/// A list of launches that a device has recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Recording(pub usize);

/// A device that runs kernels, one thing after the other. CUDA's driver is one; the interpreter of PTX is another.
pub trait Gpu: Send {
    /// Whether it has Hopper's own instructions: kernels for compute capability 9.0 run on it, and on no other.
    fn is_hopper(&self) -> bool;

    /// Bytes of shared memory that a block of threads may ask for: 99 KiB on compute capability 8.6, 8.9 and 12.0, 163 KiB
    /// on 8.0. A device that has no limit of its own has a Hopper's.
    fn shared_bytes(&self) -> u32 {
        227 << 10
    }

    /// Memory for so many bytes, for as long as the device is there. It begins at a multiple of 256, and what is in it is
    /// not said.
    ///
    /// # Errors
    /// If there is not so much.
    fn alloc(&mut self, bytes: usize) -> DeviceResult<Address>;

    /// Copies to the device, before whatever is launched later. `bytes` may be used again at once.
    ///
    /// # Errors
    /// If that is not memory of the device, or the device fails.
    fn write(&mut self, to: Address, bytes: &[u8]) -> DeviceResult<()>;

    /// Reads from the device, after whatever was launched before: `to` is given all bytes, in order, a piece at a time. So
    /// nobody has to make room for them that is cleared first, and what is done with one piece is done while the device
    /// copies the next. A piece begins at a multiple of 16 in the processor's memory, and all but the last have a multiple of
    /// 16 bytes: numbers may be read in place. [`read_onto`](crate::read_onto) puts them into a `Vec`.
    ///
    /// # Errors
    /// If that is not memory of the device, or something launched before has failed. Some pieces may have been given by then.
    fn read(&mut self, from: Address, bytes: usize, to: &mut dyn FnMut(&[u8])) -> DeviceResult<()>;

    /// Copies rows within the device's memory, before whatever is launched later; they must not overlap.
    ///
    /// # Errors
    /// As [`Gpu::write`].
    fn copy(&mut self, rows: Rows) -> DeviceResult<()>;

    /// Makes kernels ready to run, as these launches will want them: what has to be compiled or brought to the device is, now.
    /// A launch does the same by itself; but then somebody waits for it. What the launches' addresses point at does not
    /// matter.
    ///
    /// # Errors
    /// If a kernel is not for this device, does not compile, or the device refuses or fails.
    fn prepare(&mut self, launches: &[Launch]) -> DeviceResult<()>;

    /// Runs a kernel after those launched before.
    ///
    /// # Errors
    /// If the kernel is not for this device, or the device refuses or fails.
    fn launch(&mut self, launch: &Launch) -> DeviceResult<()>;

    /// Keeps launches to be played together, with these parameters each time: a CUDA graph. None of them runs yet.
    ///
    /// # Errors
    /// As [`Gpu::launch`].
    fn record(&mut self, launches: &[Launch]) -> DeviceResult<Recording>;

    /// Runs what was recorded, after whatever was launched before.
    ///
    /// # Errors
    /// If there is no such recording, or the device fails.
    fn replay(&mut self, recording: Recording) -> DeviceResult<()>;

    /// Waits until all that was launched is done.
    ///
    /// # Errors
    /// If something launched before has failed.
    fn finish(&mut self) -> DeviceResult<()>;
}

/// In the `impl` of [`Gpu`] for a device over another, which is its field `$inner`: the methods that it hands on as they are.
#[macro_export]
macro_rules! forward_gpu {
    ($inner:tt: $($method:ident)+) => { $($crate::forward_gpu! { @$method $inner })+ };
    (@is_hopper $inner:tt) => {
        fn is_hopper(&self) -> bool {
            self.$inner.is_hopper()
        }
    };
    (@alloc $inner:tt) => {
        fn alloc(&mut self, bytes: usize) -> $crate::DeviceResult<$crate::Address> {
            self.$inner.alloc(bytes)
        }
    };
    (@write $inner:tt) => {
        fn write(&mut self, to: $crate::Address, bytes: &[u8]) -> $crate::DeviceResult<()> {
            self.$inner.write(to, bytes)
        }
    };
    (@read $inner:tt) => {
        fn read(
            &mut self,
            from: $crate::Address,
            bytes: usize,
            to: &mut dyn FnMut(&[u8]),
        ) -> $crate::DeviceResult<()> {
            self.$inner.read(from, bytes, to)
        }
    };
    (@copy $inner:tt) => {
        fn copy(&mut self, rows: $crate::Rows) -> $crate::DeviceResult<()> {
            self.$inner.copy(rows)
        }
    };
    (@prepare $inner:tt) => {
        fn prepare(&mut self, launches: &[$crate::Launch]) -> $crate::DeviceResult<()> {
            self.$inner.prepare(launches)
        }
    };
    (@launch $inner:tt) => {
        fn launch(&mut self, launch: &$crate::Launch) -> $crate::DeviceResult<()> {
            self.$inner.launch(launch)
        }
    };
    (@record $inner:tt) => {
        fn record(&mut self, launches: &[$crate::Launch]) -> $crate::DeviceResult<$crate::Recording> {
            self.$inner.record(launches)
        }
    };
    (@replay $inner:tt) => {
        fn replay(&mut self, recording: $crate::Recording) -> $crate::DeviceResult<()> {
            self.$inner.replay(recording)
        }
    };
    (@finish $inner:tt) => {
        fn finish(&mut self) -> $crate::DeviceResult<()> {
            self.$inner.finish()
        }
    };
}

/// Rows of bytes at equal distances, to be copied to others at the same distances.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rows {
    /// Where the first begins.
    pub from: Address,
    /// Where the first is to go.
    pub to: Address,
    /// How many there are.
    pub count: usize,
    /// Bytes of each.
    pub bytes: usize,
    /// Bytes from the beginning of one to the beginning of the next; no fewer than `bytes`.
    pub stride: usize,
}

impl Rows {
    /// The same, a row at a time.
    pub fn one_by_one(self) -> impl Iterator<Item = Rows> {
        (0..self.count).map(move |row| {
            let at = (row * self.stride) as u64;
            Rows { from: self.from + at, to: self.to + at, count: 1, ..self }
        })
    }

    /// Bytes from the first row's first to the last row's last.
    pub fn extent(&self) -> usize {
        (self.count.max(1) - 1) * self.stride + self.bytes
    }
}
