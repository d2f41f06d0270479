//! Who runs next: a pure function over plain data.
//!
//! A [`Policy`] sees numbers: how long each text is, how much of it is in the pool, how many blocks are free.
//! It says who comes in, who goes out, and which rows run. It touches no model and no block, so it can be
//! tested on states that would take hours to come about, and a simulator can run the very same function with
//! modelled times. (The book's figure that does so is built from these very files: `book/figures/simulator`.)
//!
//! | File | Holds |
//! |---|---|
//! | `rank.rs` | who goes first: priority and waiting in one number |
//! | `draw.rs` | a plan in the making: rows and blocks that are left |
//! | `sharing.rs` | what comes free when somebody goes |
//! | `continuous.rs` | [`Continuous`]: whoever fits, in every pass |
//! | `static_batches.rs` | [`StaticBatches`]: a batch at a time, for comparison |
//! | `drafts.rs` | which guesses are worth a row |

mod continuous;
mod drafts;
mod draw;
mod rank;
mod sharing;
mod static_batches;

pub use continuous::Continuous;
pub use drafts::share_out;
pub use rank::{LEVEL, MOST_LEVELS, Rank};
pub use static_batches::StaticBatches;

use speculative::PassTimes;

// ANCHOR: policy
/// Decides what the next pass does.
pub trait Policy: Send + Sync {
    /// What it is called, in a few words.
    fn name(&self) -> &'static str;

    /// The next pass, for a state and within a budget. The same arguments give the same plan.
    ///
    /// A plan may be empty, but not while somebody who is neither stalled nor paused is running.
    fn schedule(&self, state: &State, budget: Budget) -> Plan;
}
// ANCHOR_END: policy

impl std::fmt::Debug for dyn Policy {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// What a pass may take, at most.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Budget {
    /// Rows.
    pub rows: usize,
    /// Requests that run at once; no more than `rows`.
    pub running: usize,
}

// ANCHOR: state
/// All that a decision depends on.
#[derive(Debug, Clone, Default)]
pub struct State {
    /// Everyone, in any order.
    pub requests: Vec<View>,
    /// Blocks that nobody holds.
    pub free: usize,
    /// Blocks that only the prefix cache holds: it lets go of them when they are needed.
    pub cached: usize,
    /// Tokens of a block.
    pub block: usize,
    /// What passes have taken, by number of rows.
    pub times: PassTimes,
}

/// A request as a policy sees it.
#[derive(Debug, Clone, PartialEq)]
pub struct View {
    /// Its number.
    pub id: u64,
    /// Who goes first: the lowest.
    pub rank: Rank,
    /// Its priority, which lets it push out others; within [`MOST_LEVELS`].
    pub priority: i32,
    /// Whether it is in the batch.
    pub is_running: bool,
    /// Whether it is held back: nobody reads its events, or its prompt is being read elsewhere.
    pub is_stalled: bool,
    /// Running: whether it can have no rows in this pass. It keeps its place and its rank.
    pub is_paused: bool,
    /// Tokens of its text so far, prompt included. At least one has not been run.
    pub text: usize,
    /// Tokens of it that need not be run: in the pool if it is running, known to the prefix cache if it waits.
    pub held: usize,
    /// Most tokens that it can come to hold.
    pub longest: usize,
    /// Running: blocks in its table.
    pub places: usize,
    /// Blocks that others may have too, by number. Running: of its table, whose other blocks nobody else has, and nobody who
    /// waits begins with. Waiting: all that are known of it.
    pub common: Vec<u32>,
    /// Waiting: somebody whose prompt begins like this one's, beyond what is known. Once that one has been read,
    /// this one need not be.
    pub behind: Option<u64>,
    /// Guesses behind its text: for each, the chance that it and those before it come true, falling. Only where
    /// one row is left to run.
    pub guesses: Vec<f64>,
    /// Guess in any case, to see whether it pays again.
    pub probes: bool,
}
// ANCHOR_END: state

impl View {
    /// Rows that are left to run before there is another token.
    pub fn pending(&self) -> usize {
        self.text - self.held
    }
}

// ANCHOR: plan
/// What the next pass does, in this order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Plan {
    /// Who gives up its place.
    pub preempt: Vec<u64>,
    /// Who comes in.
    pub admit: Vec<u64>,
    /// Whose rows run.
    pub spans: Vec<PlannedSpan>,
}

/// Rows of one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PlannedSpan {
    /// Whose.
    pub id: u64,
    /// Rows of its text, at least one.
    pub rows: usize,
    /// Guessed rows after them.
    pub guesses: usize,
}
// ANCHOR_END: plan

impl Plan {
    /// Rows of all spans.
    pub fn rows(&self) -> usize {
        self.spans.iter().map(|span| span.rows + span.guesses).sum()
    }
}
