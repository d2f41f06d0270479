//! A launch, as the interpreter is given it.

use crate::{Argument, Launch, TensorMap};
use ptx_interpreter::{Arg, Counts, Device, ElementType, Error, Module, Swizzle, run};

impl Launch {
    /// The same launch for the interpreter: what a driver would be given, byte for byte.
    pub fn interpreted(&self) -> ptx_interpreter::Launch {
        let arg = |argument: &Argument| match *argument {
            Argument::Pointer(address) => Arg::from(address),
            Argument::U32(number) => number.into(),
            Argument::I32(number) => number.into(),
            Argument::I64(number) => number.into(),
            Argument::F32(number) => number.into(),
            Argument::TensorMap(map) => Arg::from(&encoded(map)),
        };
        ptx_interpreter::Launch {
            grid: self.grid,
            block: [self.threads, 1, 1],
            shared_bytes: self.shared_bytes,
            args: self.arguments.iter().map(arg).collect(),
        }
    }

    /// Runs it in the interpreter, and says what it did.
    ///
    /// # Errors
    /// What the kernel does wrong, if it does.
    pub fn run_interpreted(&self, device: &mut Device) -> Result<Counts, Error> {
        let module = Module::parse(self.ptx)?;
        Ok(run(module.kernel(self.entry)?, device, &self.interpreted())?.counts)
    }
}

/// As `cuTensorMapEncodeTiled` would be asked for it.
fn encoded(map: TensorMap) -> ptx_interpreter::TensorMap {
    ptx_interpreter::TensorMap {
        address: map.base,
        element: ElementType::BFloat16,
        dims: map.sizes.to_vec(),
        strides: map.strides.to_vec(),
        box_dims: map.box_sizes.to_vec(),
        swizzle: Swizzle::Bytes128,
    }
}
