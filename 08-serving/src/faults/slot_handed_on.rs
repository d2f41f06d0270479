//! A request gets a finished one's place with what was in it.

use naive_decode::break_it::{Bench, BreakIt, Side, Trial, same_logits};
use naive_decode::{Decoder, Error, Pass, Result, Span, Want};
use paged_cache::{PagedCache, Room};
use prefix_radix::Chain;
use prefix_radix::{Nothing, Salt, Session, SharedPool, Tiered};

/// Tokens that this break-it generates.
const TOKENS: usize = 80;

type Pool = SharedPool<Nothing>;

/// A decoder of one request in a slot that another had before.
struct Slot {
    pool: Pool,
    session: Session,
    rows: usize,
    capacity: usize,
    /// Whether the next call is the prompt's.
    is_new: bool,
}

// ANCHOR: fault
/// The first request is done, and its slot goes to the next one. On the broken side nobody empties it: it says
/// that so many tokens have been run already, and they were another's.
fn next_request(pool: &mut Pool, finished: Session, side: Side) -> Result<Session> {
    match side {
        Side::Clean => {
            pool.end(finished)?;
            pool.open(Salt::NONE, &[0])
        }
        Side::Broken => Ok(finished),
    }
}
// ANCHOR_END: fault

impl Slot {
    fn new(bench: &Bench, side: Side) -> Result<Self> {
        Ok(Slot::after_another(bench, side)?.0)
    }

    /// The slot, and the logits after the prompt of the request that had it first: another user's.
    fn after_another(bench: &Bench, side: Side) -> Result<(Self, Vec<f32>)> {
        let mut pool = pool(bench)?;
        let (finished, logits) = pool.begin(Salt::NONE, &first_prompt(bench)?)?;
        let session = next_request(&mut pool, finished, side)?;
        let capacity = bench.model.context();
        Ok((Slot { pool, session, rows: 0, capacity, is_new: true }, logits))
    }
}

impl Decoder for Slot {
    fn feed(&mut self, tokens: &[u32]) -> Result<Vec<f32>> {
        let held = self.session.text().len();
        // Of a prompt, what the slot says has been run is not run again.
        let from = if self.is_new { held.min(tokens.len() - 1) } else { 0 };
        let span = Span::new(self.session.sequence(), held, &tokens[from..], Want::Last);
        let logits = self.pool.run(&Pass::one(span))?;
        let slots: Vec<usize> = (held..held + tokens.len() - from).collect();
        self.pool.advance(&mut self.session, &tokens[from..], &slots)?;
        self.rows += slots.len();
        self.is_new = false;
        Ok(logits.into_iter().collect())
    }

    fn capacity(&self) -> usize {
        self.capacity
    }

    fn rows(&self) -> usize {
        self.rows
    }

    fn kv_bytes_per_token(&self) -> usize {
        use kv_cache::KvCache;
        self.pool.pool().bytes_per_token()
    }
}

/// A finished request's slot is handed on with its state.
pub const SLOT_HANDED_ON: BreakIt = BreakIt {
    name: "slot-handed-on",
    package: "serving",
    cites: &["KV-cache workshop"],
    symptom: "the first answer in every slot is right; the next one begins in the middle of another's text",
    guard: "what a slot holds is the beginning of its request's text",
    weaker_test: Some(
        "the first request in a slot has the naive loop's logits, and nothing is left open when the next one has it",
    ),
    run: |bench| {
        let decoder = |side| -> Result<Box<dyn Decoder>> { Ok(Box::new(Slot::new(bench, side)?)) };
        let guard = |side| {
            let slot = Slot::new(bench, side)?;
            let held = slot.session.text();
            match bench.prompt.starts_with(held) {
                true => Ok(()),
                false => {
                    let found = format!("{} tokens of another's", held.len());
                    let expected = "nothing, or the beginning of this one's text";
                    Err(Error::invalid("what the slot of a new request holds", found, expected))
                }
            }
        };
        let weaker = |side| {
            let (slot, logits) = Slot::after_another(bench, side)?;
            let naive = bench.naive_logits(&first_prompt(bench)?)?;
            let what = "logits of the first request";
            same_logits(what, &logits, &naive, "as the naive loop has it")?;
            slot.pool.check_integrity()?;
            match slot.pool.pool().open_sequences() {
                1 => Ok(()),
                open => Err(Error::invalid("sequences of one slot", open, "1")),
            }
        };
        Trial {
            about: &SLOT_HANDED_ON,
            tokens: TOKENS,
            decoder: &decoder,
            guard: &guard,
            weaker_test: Some(&weaker),
            recall: None,
        }
        .run_until_it_shows(bench)
    },
};

fn pool(bench: &Bench) -> Result<Pool> {
    let room = Room::for_tokens(&bench.model, 2 * bench.model.context())?;
    let cache = PagedCache::new(&bench.model, room)?;
    let tiered = Tiered::new(Nothing::new(room.block), Chain::new(b"faults"), Vec::new());
    SharedPool::new(bench.model.clone(), cache, tiered)
}

fn first_prompt(bench: &Bench) -> Result<Vec<u32>> {
    bench.tokenizer.encode(&Bench::tale(7))
}
