//! Modules and their kernels, as they have been read.

use std::sync::Arc;

use crate::Error;
use crate::isa::{Instruction, Op, Space};
use crate::parse::{self, Register};

/// The kernels of one text.
#[derive(Debug, Clone)]
pub struct Module {
    kernels: Vec<Arc<Kernel>>,
}

impl Module {
    /// Reads PTX.
    ///
    /// # Errors
    /// [`Error::Parse`] names the line, what is wrong there, and what would be right.
    pub fn parse(text: &str) -> Result<Self, Error> {
        Ok(Self { kernels: parse::module(text)? })
    }

    /// The kernel of this name.
    ///
    /// # Errors
    /// [`Error::NoKernel`] lists the names that there are.
    pub fn kernel(&self, name: &str) -> Result<&Kernel, Error> {
        let found = self.kernels.iter().find(|kernel| kernel.name == name);
        found.map(AsRef::as_ref).ok_or_else(|| {
            let names: Vec<&str> = self.kernels().map(Kernel::name).collect();
            let known = if names.is_empty() { "none".into() } else { names.join(", ") };
            Error::NoKernel { name: name.into(), known }
        })
    }

    /// All kernels, in the order of the text.
    pub fn kernels(&self) -> impl Iterator<Item = &Kernel> {
        self.kernels.iter().map(AsRef::as_ref)
    }
}

/// One parameter of a kernel.
#[derive(Debug, Clone)]
pub(crate) struct Parameter {
    pub(crate) name: String,
    /// In the parameters' memory, in bytes.
    pub(crate) offset: u32,
    pub(crate) bytes: u32,
}

/// A kernel, decoded and ready to run.
#[derive(Debug)]
pub struct Kernel {
    pub(crate) name: String,
    pub(crate) text: Arc<str>,
    pub(crate) parameters: Vec<Parameter>,
    pub(crate) parameter_bytes: u32,
    /// The module's variables in global and constant memory.
    pub(crate) image: Vec<u8>,
    pub(crate) most_threads: Option<[u32; 3]>,
    pub(crate) exact_threads: Option<[u32; 3]>,
    pub(crate) code: Vec<Instruction>,
    pub(crate) registers: Vec<Register>,
    pub(crate) predicates: Vec<String>,
    /// Bytes of static shared variables; dynamic shared memory begins here.
    pub(crate) static_shared: u32,
    /// Bytes of local variables of each thread.
    pub(crate) local_bytes: u32,
}

impl Kernel {
    /// The kernel's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Names and sizes in bytes of its parameters, in order.
    pub fn parameters(&self) -> impl Iterator<Item = (&str, u32)> {
        self.parameters.iter().map(|parameter| (parameter.name.as_str(), parameter.bytes))
    }

    /// Bytes of shared memory that every block has beside what its launch asks for.
    pub fn static_shared_bytes(&self) -> u32 {
        self.static_shared
    }

    /// An instruction's text, in one line.
    pub(crate) fn text_of(&self, instruction: &Instruction) -> String {
        let (start, end) = instruction.span;
        let text = self.text.get(start as usize..end as usize).unwrap_or_default();
        if text.is_empty() { "}".into() } else { parse::one_line(text) }
    }

    /// Whether blocks may see one another through atomics: then the order of blocks can matter.
    pub(crate) fn has_global_atomics(&self) -> bool {
        self.code.iter().any(|instruction| {
            matches!(instruction.op, Op::Atomic { space, .. } if space != Space::Shared)
                || matches!(
                    instruction.op,
                    Op::Bulk(crate::isa::Bulk::StoreTensor { add: true, .. })
                )
        })
    }
}
