//! What goes on beside the threads: bulk copies, and the mbarriers that hear of them.

use super::{Address, Operand, Pred, Reg};

/// What happens at an mbarrier.
#[derive(Debug, Clone)]
pub(crate) enum Mbarrier {
    Init {
        count: Operand,
    },
    Invalidate,
    /// Arrive, perhaps announcing bytes first, perhaps without completing the phase's data.
    Arrive {
        state: Option<Reg>,
        count: Operand,
        expect: Option<Operand>,
    },
    /// Announce bytes without arriving.
    Expect {
        bytes: Operand,
    },
    /// Give bytes without a copy.
    Complete {
        bytes: Operand,
    },
    /// `try_wait` (blocks) and `test_wait` (does not).
    Wait {
        dst: Pred,
        blocks: bool,
        phase: WaitFor,
    },
}

/// Which phase of an mbarrier is waited for.
#[derive(Debug, Clone, Copy)]
pub(crate) enum WaitFor {
    /// The phase with this parity.
    Parity(Operand),
    /// The phase that an arrival saw.
    State(Operand),
}

/// An asynchronous copy through the tensor memory accelerator.
#[derive(Debug, Clone)]
pub(crate) enum Bulk {
    /// Bytes in a row, global to shared.
    Load {
        to: Address,
        from: Address,
        bytes: Operand,
        barrier: Address,
    },
    /// Bytes in a row, shared to global.
    Store {
        to: Address,
        from: Address,
        bytes: Operand,
    },
    /// A box of a tensor, global to shared.
    LoadTensor {
        to: Address,
        map: Address,
        at: Box<[Operand]>,
        barrier: Address,
    },
    /// A box of a tensor, shared to global; with `add`, added to what is there.
    StoreTensor {
        map: Address,
        at: Box<[Operand]>,
        from: Address,
        add: bool,
    },
    Commit,
    /// Until at most so many groups are under way.
    Wait {
        most: u32,
    },
}
