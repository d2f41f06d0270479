//! What can go wrong: text that cannot be read, a launch that does not fit, a kernel that does something wrong.

use std::fmt;

/// Why a module could not be read, or a kernel could not be run to its end.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The text is not PTX that the interpreter knows.
    #[error("line {line}: `{text}`: {problem}")]
    Parse {
        /// Line of the module's text, from 1.
        line: u32,
        /// The statement, in one line.
        text: String,
        /// What is wrong with it, and what would be right.
        problem: String,
    },
    /// The module has no kernel of this name.
    #[error("no kernel `{name}` in the module; it has: {known}")]
    NoKernel {
        /// The name that was asked for.
        name: String,
        /// The names that there are.
        known: String,
    },
    /// Grid, block, shared memory or arguments do not fit the kernel.
    #[error("{kernel}: {problem}")]
    Launch {
        /// The kernel's name.
        kernel: String,
        /// What does not fit, and what would.
        problem: String,
    },
    /// A buffer on the device was used wrongly from the host.
    #[error("device memory: {0}")]
    Memory(String),
    /// The kernel did something that a GPU would not forgive, or only by luck.
    #[error(transparent)]
    Fault(#[from] Box<Fault>),
}

/// A mistake of a kernel, and where it happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// What kind of mistake it is.
    pub kind: FaultKind,
    /// The kernel's name.
    pub kernel: String,
    /// The block of the grid.
    pub block: [u32; 3],
    /// The warp in the block.
    pub warp: u32,
    /// The lane in the warp, where one lane alone is to blame.
    pub lane: Option<u32>,
    /// Line of the module's text, from 1.
    pub line: u32,
    /// The instruction.
    pub text: String,
    /// What went wrong.
    pub problem: String,
}

/// The kinds of [`Fault`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FaultKind {
    /// An address outside of every allocation, or beyond the shared memory of the block.
    OutOfBounds,
    /// An address that is not a multiple of what the access needs.
    Misaligned,
    /// Shared memory was read before anything was written there.
    Uninitialised,
    /// Shared memory or registers were used, or left for good, while an asynchronous copy or product still had hold of them.
    InFlight,
    /// Two warps used the same byte of shared memory, one of them writing, and nothing orders the two.
    Race,
    /// Nobody in the block can go on.
    Deadlock,
    /// Lanes of a warp are apart where they have to be together.
    Divergence,
    /// The instruction may not be used so: a malformed descriptor, too many arrivals at a barrier, a trap.
    Invalid,
    /// A warp executed more instructions than any kernel should.
    Endless,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [x, y, z] = self.block;
        write!(f, "{}, block ({x}, {y}, {z}), warp {}", self.kernel, self.warp)?;
        if let Some(lane) = self.lane {
            write!(f, ", lane {lane}")?;
        }
        write!(f, ", line {}: `{}`: {}", self.line, self.text, self.problem)
    }
}

impl std::error::Error for Fault {}

/// What an instruction reports before anyone has said where it happened.
#[derive(Debug)]
pub(crate) struct Problem {
    pub(crate) kind: FaultKind,
    pub(crate) lane: Option<u32>,
    pub(crate) text: String,
}

impl Problem {
    pub(crate) fn new(kind: FaultKind, text: impl Into<String>) -> Self {
        Self { kind, lane: None, text: text.into() }
    }

    pub(crate) fn invalid(text: impl Into<String>) -> Self {
        Self::new(FaultKind::Invalid, text)
    }

    pub(crate) fn at(mut self, lane: usize) -> Self {
        self.lane = Some(lane as u32);
        self
    }
}
