//! What lanes and threads do together: exchanges, votes, combinations and barriers.

use super::{Condition, Connective, Pred, Reg};

/// How `shfl.sync` names its source lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shuffle {
    Up,
    Down,
    Butterfly,
    Index,
}

/// What lanes vote on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Vote {
    All,
    Any,
    Uniform,
}

/// What `atom`, `red` and `redux` do to a location.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Combine {
    Add,
    Min,
    Max,
    And,
    Or,
    Xor,
    Exchange,
    CompareAndSwap,
    /// Up to a limit, then from zero again.
    Increment,
    /// Down from a limit.
    Decrement,
}

/// What happens at one of the sixteen named barriers of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BarrierKind {
    /// Arrive and wait.
    Sync,
    /// Arrive only.
    Arrive,
    /// Arrive, wait, and combine a predicate over all threads.
    Reduce { op: Connective, value: Condition, dst: Pred },
    /// Arrive, wait, and count the threads whose predicate holds.
    Count { value: Condition, dst: Reg },
}
