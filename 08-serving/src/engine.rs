//! The engine: many requests, one model, one pool.
//!
//! A pass over one row costs hardly less than a pass over sixteen: the weights have to be read either way. So
//! requests share passes, whatever each of them is at: a chunk of one's prompt, the last token of another's
//! text, a third's with a guess behind it. Which rows of whom go into the next pass is decided anew before each
//! (continuous batching; Yu et al. 2022, Orca). Every request has the tokens that it would have alone, bit for bit:
//! rows do not see each other, and each request has a sampler of its own.
//!
//! | File | Holds |
//! |---|---|
//! | `aside.rs` | keys and values that only the file has, read while others run |
//! | `elsewhere.rs` | prompts that other engines read |
//! | `lending.rs` | blocks for other engines |
//! | `kv_events.rs` | what is known of earlier texts, told as it changes |
//! | `handle.rs` | the engine from outside: submit a request, hold a ticket |
//! | `request.rs` | what a request asks, and why it may be refused |
//! | `series.rs` | requests that come one after another and are parts of one answer |
//! | `event.rs` | what comes back |
//! | `state.rs` | a snapshot for metrics and pictures |
//! | `options.rs` | how an engine is set up |
//! | `inbox.rs` | between the engine's thread and the others |
//! | `outlet.rs` | where a request's events leave it |
//! | `policy/` | who runs next: a pure function over plain data |
//! | `step.rs` | one step: look, decide, run, tell |
//! | `member.rs` | a request inside the engine |
//! | `arrivals.rs` | who has come, gone, run out of time or stopped reading |
//! | `holders.rs` | who holds which block |
//! | `view.rs` | what the policy is shown |
//! | `places.rs` | coming in, giving up a place, being done |
//! | `pass.rs` | from a plan to a pass, and its logits |
//! | `choose.rs` | from logits to tokens: masks, sampling, guesses, the end |
//! | `form.rs` | what may come next in an answer of a given form, found while the model runs |
//! | `rules.rs` | tokens that a request does not want, whatever the model makes of them |
//! | `logprobs.rs` | how likely a token was |
//! | `costs.rs` | to park a request's blocks, or to compute them again |
//! | `record.rs` | what a step did, for traces |
//! | `snapshot.rs` | from the engine to its [`EngineState`] |
//! | `tiers.rs` | what leaves the pool: the host's memory, and a file that outlives the process |

mod arrivals;
mod aside;
mod choose;
mod costs;
mod elsewhere;
mod event;
mod form;
mod handle;
mod holders;
mod inbox;
mod kv_events;
mod lending;
mod logprobs;
mod member;
mod options;
mod outlet;
mod pass;
mod places;
pub mod policy;
mod record;
mod request;
mod rules;
mod series;
mod snapshot;
mod state;
mod step;
mod tiers;
mod view;

pub use elsewhere::{Courier, Exchange, Prefiller, Wanted};
pub use event::{Event, FinishReason, TokenEvent, Usage};
pub use form::STACK;
pub use handle::{EngineHandle, Ticket};
pub use kv_events::KvEvents;
pub use lending::{BlocksOf, Exchanged};
pub use options::{EngineOptions, KvFile, MakeProposer};
pub use record::{Kind, PassRecord, SpanRecord};
pub use request::{Constraint, EngineRequest, Limits, Refused, TokenSet};
pub use rules::Rules;
pub use series::Series;
pub use state::{BlockCounts, Cell, Counters, EngineState, PassRow, PrefixRow, RequestRow, Stage};
pub use step::Step;

use costs::Costs;
use holders::Holders;
use inbox::Inbox;
use kv_cache::{CachedExecutor, KvCache};
use kv_events::Listener;
use lending::Waiting;
use member::Member;
use naive_decode::{CpuExecutor, Error, Model, Result, Sampler, Sampling};
use paged_cache::{Behind, PagedCache, Room};
use prefix_radix::{Nothing, PrefixCache, RadixTree, SharedPool, Tiered};
use speculative::PassTimes;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tiers::{Bell, Below, Host, Unsaved};
use tokio::sync::oneshot;

/// The least that a client may leave unread: what one pass may send without a guess, and the end.
const LEAST_EVENTS: usize = 8;

// ANCHOR: engine
/// A model on some device, with its pool.
pub type Target = Box<dyn CachedExecutor<Cache = PagedCache> + Send>;

/// Model, pool and requests. Whoever calls [`Engine::step`] runs it: a test by hand, a server on a thread.
pub struct Engine {
    pool: SharedPool<Box<dyn PrefixCache>, Target>,
    /// Where blocks of preempted requests go, if anywhere.
    host: Option<Host>,
    unsaved: Unsaved,
    /// Those who wait for blocks.
    borrowers: Vec<Waiting>,
    /// Those who are told what is known.
    listeners: Vec<Listener>,
    /// Whether it was said that a tier fails.
    has_reported: bool,
    /// Whether it was said that one is slow.
    has_reported_late: bool,
    /// Whether the file is asked for nothing, as its disk does not answer.
    disk_is_silent: bool,
    options: EngineOptions,
    inbox: Arc<Inbox>,
    /// Who holds which block, as it was when it was last counted.
    holders: Holders,
    /// Everyone who is not done, in order of submission.
    members: Vec<Member>,
    /// Those that are done in the step at hand, with their last event.
    ended: Vec<(Member, Event)>,
    /// What passes take, by number of rows.
    times: PassTimes,
    costs: Costs,
    counters: Counters,
    /// The last passes, oldest first.
    passes: VecDeque<PassRow>,
    started: Instant,
    /// When a snapshot was last published; none if there has to be another.
    published: Option<Instant>,
    /// Asked for by proposers that draw; guesses here are compared, not weighed.
    guesser: Sampler,
}
// ANCHOR_END: engine

impl Engine {
    /// An engine for a model on this machine's processor; its pool is set aside.
    ///
    /// # Errors
    /// Options that contradict each other, a pool without room for one block, a model without keys and values, or
    /// a file that cannot be had.
    pub fn new(model: Arc<Model>, options: EngineOptions) -> Result<Self> {
        let EngineOptions { pool_bytes: bytes, block, kept, .. } = options;
        let capacity = model.context();
        let room = Room { bytes, block, capacity, kept, behind: Behind::Kept, rollback: 0 };
        let attention = PagedCache::new(&model, room)?;
        attention.claim();
        Engine::over(Box::new(CpuExecutor { model, attention }), options)
    }

    /// The same for a model on any device, whose pool is there and empty: what the options say of it, its blocks
    /// included, is not asked.
    ///
    /// # Errors
    /// As [`Engine::new`].
    pub fn over(mut target: Target, options: EngineOptions) -> Result<Self> {
        let block = target.cache().layout().tokens();
        let options = EngineOptions { block, ..options };
        let at_least = |what: &str, found: usize, least: usize| match found >= least {
            true => Ok(()),
            false => Err(Error::invalid(what, found, format!("at least {least}"))),
        };
        at_least("requests that run at once", options.running, 1)?;
        at_least("rows of a pass", options.rows, options.running)?;
        at_least("requests that may wait", options.queue, 1)?;
        at_least("events that a client may leave unread", options.events, LEAST_EVENTS)?;
        let expected = "none: it is for prefixes, which are not to be kept";
        let what = match (&options.kv_file, &options.exchange) {
            (Some(_), _) => Some("a file of keys and values"),
            (None, Some(_)) => Some("an exchange of keys and values"),
            (None, None) => None,
        };
        if let Some(what) = what.filter(|_| !options.prefixes) {
            return Err(Error::invalid(what, "asked for", expected));
        }
        let bell = Bell::default();
        let Below { host, tiers, chain, fingerprint } =
            Below::new(&mut target, &options, bell.ring())?;
        let block_bytes = target.cache().layout().block_bytes();
        let exchanged = fingerprint.filter(|_| options.exchange.is_some());
        let exchanged = exchanged.map(|fingerprint| Exchanged {
            fingerprint,
            block_tokens: block,
            block_bytes,
        });
        let pool_tokens = target.cache().blocks().count() * block;
        let capacity = target.context().min(target.cache().capacity());
        let most = options.context.unwrap_or(capacity);
        let limits = Limits {
            context: capacity.min(pool_tokens).min(most),
            capacity: capacity.min(most),
            vocabulary: target.config().vocab_size,
            hidden: target.config().hidden_size,
            pool_tokens,
            queue: options.queue,
            running: options.running,
        };
        let prefixes: Box<dyn PrefixCache> = match options.prefixes {
            true => Box::new(RadixTree::new(block, chain)?),
            false => Box::new(Nothing::new(block)),
        };
        let pool = SharedPool::over(target, Tiered::new(prefixes, chain, tiers))?;
        let puts_away = pool.prefixes().outlives_process();
        let holders = Holders::new(pool.pool().blocks().count());
        let mut engine = Engine {
            pool,
            host,
            unsaved: Unsaved::default(),
            borrowers: Vec::new(),
            listeners: Vec::new(),
            has_reported: false,
            has_reported_late: false,
            disk_is_silent: false,
            inbox: Inbox::new(limits, options.events, exchanged, puts_away),
            options,
            members: Vec::new(),
            holders,
            ended: Vec::new(),
            times: PassTimes::default(),
            costs: Costs::default(),
            counters: Counters::default(),
            passes: VecDeque::new(),
            started: Instant::now(),
            published: None,
            guesser: Sampler::new(Sampling::default())?,
        };
        bell.tie(&engine.inbox);
        let state = engine.snapshot();
        engine.inbox.publish(state);
        Ok(engine)
    }

    /// Queues a request, as [`EngineHandle::submit`] does.
    ///
    /// # Errors
    /// See [`Refused`].
    pub fn submit(&self, request: EngineRequest) -> std::result::Result<Ticket, Refused> {
        self.inbox.submit_one(request)
    }

    /// Waits for blocks, as [`EngineHandle::blocks_of`] does.
    pub fn blocks_of(&self, blocks: BlocksOf) -> oneshot::Receiver<Vec<Vec<u8>>> {
        self.inbox.blocks_of(blocks)
    }

    /// Listens to what becomes known, as [`EngineHandle::kv_events`] does.
    pub fn kv_events(&self) -> KvEvents {
        self.inbox.listen()
    }

    /// What the engine can take.
    pub fn limits(&self) -> Limits {
        self.inbox.limits()
    }

    /// What it looked like after the last step that published, as [`EngineHandle::state`].
    pub fn state(&self) -> Arc<EngineState> {
        self.inbox.state()
    }

    /// Who decides what runs next.
    pub fn policy_name(&self) -> &'static str {
        self.options.policy.name()
    }

    /// How long ago it was made: its clock.
    pub fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    /// The pool, to look at.
    pub fn pool(&self) -> &SharedPool<Box<dyn PrefixCache>, Target> {
        &self.pool
    }

    fn inbox(&self) -> &Arc<Inbox> {
        &self.inbox
    }

    /// Whether pool, tables, prefix cache and requests agree on who holds what.
    ///
    /// # Errors
    /// Names the first thing that they disagree on.
    pub fn check_integrity(&self) -> Result<()> {
        self.pool.check_integrity()?;
        let inside = self.members.iter().filter_map(Member::session);
        for (member, session) in self.members.iter().filter_map(|m| Some((m, m.session()?))) {
            let what = format!("tokens of request {} in the pool", member.id);
            let held = session.text().len();
            if !member.text.starts_with(session.text()) || held >= member.text.len() {
                let expected = format!("the first of its {}, without the last", member.text.len());
                return Err(Error::invalid(what, held, expected));
            }
        }
        self.check_holders()?;
        let (open, known) = (self.pool.pool().open_sequences(), inside.count());
        match open == known {
            true => Ok(()),
            false => Err(Error::invalid("sequences in the pool", open, known.to_string())),
        }
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.inbox.end();
        // Whoever waits for the end waits for the file, too.
        self.pool.prefixes_mut().close_tiers();
        self.inbox.report(true, true);
    }
}
