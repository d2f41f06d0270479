//! What a launch says, and whether it fits its kernel.

use crate::Error;
use crate::hopper::TensorMap;
use crate::kernel::Kernel;
use crate::memory::Buffer;

/// Bytes of shared memory that a block can have on the largest device so far (compute capability 9.0).
const MOST_SHARED: u32 = 227 * 1024;

/// One launch of a kernel.
#[derive(Debug, Clone, Default)]
pub struct Launch {
    /// Blocks, in x, y and z.
    pub grid: [u32; 3],
    /// Threads of a block, in x, y and z.
    pub block: [u32; 3],
    /// Bytes of dynamic shared memory of a block.
    pub shared_bytes: u32,
    /// The kernel's parameters, in order.
    pub args: Vec<Arg>,
}

/// The value of a kernel's parameter: so many bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Arg(Vec<u8>);

macro_rules! arg_from {
    ($($ty:ty),*) => {$(
        impl From<$ty> for Arg {
            fn from(value: $ty) -> Self {
                Self(value.to_le_bytes().to_vec())
            }
        }
    )*};
}

arg_from!(u8, u16, u32, u64, i32, i64, f32, f64);

impl<T> From<Buffer<T>> for Arg {
    /// The buffer's address.
    fn from(buffer: Buffer<T>) -> Self {
        buffer.address().into()
    }
}

impl From<&[u8]> for Arg {
    /// A structure that is passed by value.
    fn from(bytes: &[u8]) -> Self {
        Self(bytes.to_vec())
    }
}

impl From<&TensorMap> for Arg {
    /// A tensor map, which a kernel takes as a `__grid_constant__` of 128 bytes.
    fn from(map: &TensorMap) -> Self {
        Self(map.encode().to_vec())
    }
}

impl Launch {
    /// The parameters' memory.
    ///
    /// # Errors
    /// [`Error::Launch`] if grid, block, shared memory or arguments do not fit the kernel.
    pub(crate) fn parameters(&self, kernel: &Kernel) -> Result<Vec<u8>, Error> {
        let refuse = |problem: String| Error::Launch { kernel: kernel.name.clone(), problem };
        if self.grid.contains(&0) || self.block.contains(&0) {
            return Err(refuse(format!(
                "grid {:?} of blocks {:?}: no dimension may be 0",
                self.grid, self.block
            )));
        }
        let [x, y, z] = self.block.map(u64::from);
        let threads = x.saturating_mul(y).saturating_mul(z);
        if threads > 1024 {
            return Err(refuse(format!("{threads} threads in a block; at most 1024 fit")));
        }
        let [x, y, z] = self.grid.map(u64::from);
        if x > i32::MAX as u64 || y > 65_535 || z > 65_535 {
            return Err(refuse(format!(
                "a grid of {:?}; it may have 2147483647 by 65535 by 65535",
                self.grid
            )));
        }
        if let Some(exact) = kernel.exact_threads.filter(|exact| *exact != self.block) {
            return Err(refuse(format!(
                "blocks of {:?} threads; the kernel needs {exact:?}",
                self.block
            )));
        }
        if let Some(most) = kernel
            .most_threads
            .filter(|most| threads > most.iter().fold(1, |all, &n| all.saturating_mul(n.into())))
        {
            return Err(refuse(format!(
                "blocks of {threads} threads; the kernel is made for {most:?}"
            )));
        }
        let shared = u64::from(kernel.static_shared) + u64::from(self.shared_bytes);
        if shared > u64::from(MOST_SHARED) {
            return Err(refuse(format!(
                "{shared} bytes of shared memory in a block; at most {MOST_SHARED} are there"
            )));
        }
        if self.args.len() != kernel.parameters.len() {
            let (found, right) = (self.args.len(), kernel.parameters.len());
            return Err(refuse(format!("{found} arguments; the kernel has {right} parameters")));
        }
        let mut memory = vec![0; kernel.parameter_bytes as usize];
        for (index, (Arg(bytes), parameter)) in self.args.iter().zip(&kernel.parameters).enumerate()
        {
            if bytes.len() != parameter.bytes as usize {
                let (found, right) = (bytes.len(), parameter.bytes);
                return Err(refuse(format!(
                    "argument {index} has {found} bytes; the parameter `{}` has {right}",
                    parameter.name
                )));
            }
            memory[parameter.offset as usize..][..bytes.len()].copy_from_slice(bytes);
        }
        Ok(memory)
    }
}
