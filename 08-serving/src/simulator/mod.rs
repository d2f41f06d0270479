//! A deployment that need not be there: model, hardware, scheduler and load, as numbers.
//!
//! First what the roofline allows ([`Deployment::bounds`]), which is arithmetic. Then a run ([`simulate`]): requests
//! come, [`Policy::schedule`](crate::engine::policy::Policy::schedule) decides, the very function that the engine
//! calls, and a clock moves on by what each pass would take. Nothing in here touches a model, a file or a real
//! clock, so it runs anywhere, in a page of the book too (`book/figures/simulator` is built from these
//! very files).
//!
//! What it leaves out: prefixes that are shared, clients that go away, queues that are full, blocks parked in the
//! host's memory (who gives up a place reads its text again), and what many cards say to each other.
//!
//! | File | Holds |
//! |---|---|
//! | `model.rs` | what a model weighs, what it keeps of a token, what a pass counts to |
//! | `hardware.rs` | cards that are known by name |
//! | `pass_time.rs` | how long a pass takes: the roofline, or as measured |
//! | `fit.rs` | from timed passes to the time of any pass |
//! | `deployment.rs` | everything that a run depends on |
//! | `bounds.rs` | what the roofline allows |
//! | `request.rs` | a request: lengths and blocks |
//! | `run.rs` | the run |
//! | `outcome.rs` | what became of it |
//! | `words.rs` | figures as a reader wants to see them |

mod bounds;
mod deployment;
mod fit;
mod hardware;
mod model;
mod outcome;
mod pass_time;
mod request;
mod run;
pub mod words;

pub use bounds::{Bounds, Limit, PassBound};
pub use deployment::{Deployment, Speculation};
pub use fit::{Fitted, TimedPass};
pub use hardware::{CARDS, Card, Hardware};
pub use model::{DEEPSEEK_LATENT, KvMethod, PassWork, SimulatedModel, SpanWork, Storage};
pub use outcome::{MemoryOutcome, Outcome, Quantiles, RequestOutcome};
pub use pass_time::PassTime;
pub use run::{Workload, simulate};
