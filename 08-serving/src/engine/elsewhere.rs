//! Prompts that are read elsewhere: prefill-decode disaggregation, from the side that decodes.
//!
//! Whoever reads prompts for an engine is a [`Prefiller`]. It is asked for the keys and values of a prompt when the
//! request comes in. Until they are here the request waits, and others run; then it begins as after a hit in the prefix
//! cache. As with tiers, nothing is relied on: what does not come is read here.

use super::Engine;
use super::inbox::Inbox;
use super::lending::Exchanged;
use super::member::Member;
use paged_cache::offload::Key;
use prefix_radix::Salt;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

/// Tokens that nobody here knows from which on a prompt is sent elsewhere. Fewer are read in less time than is
/// gained.
const LEAST: usize = 64;

/// Keys and values that engines give each other.
#[derive(Clone)]
pub struct Exchange {
    /// A digest of the model's files, as [`KvFile::model`](super::KvFile::model): no engine takes blocks of another that
    /// would have computed others.
    pub model: [u8; 32],
    /// Who reads prompts for this engine, if anybody does.
    pub prefiller: Option<Arc<dyn Prefiller>>,
}

// ANCHOR: prefiller
/// Reads prompts for an engine.
pub trait Prefiller: Send + Sync {
    /// Begins to have blocks computed and brought, and comes back at once; none if nobody is there to do it. What is given
    /// is dropped as soon as the blocks are not wanted any more.
    fn begin(&self, wanted: Wanted, courier: Courier) -> Option<Box<dyn Send>>;
}
// ANCHOR_END: prefiller

/// What is wanted of a prompt.
#[derive(Debug, Clone)]
pub struct Wanted {
    /// Stands for all that keys and values depend on besides the text.
    pub fingerprint: [u8; 32],
    /// With whom the text is shared.
    pub salt: Salt,
    /// The prompt's beginning, in whole blocks.
    pub tokens: Vec<u32>,
    /// How many of its first blocks are here already.
    pub known: usize,
    /// Names of those that are wanted, in order.
    pub names: Vec<Key>,
    /// Bytes of one.
    pub block_bytes: usize,
    /// When the request's time is up, if it ever is.
    pub deadline: Option<Instant>,
}

impl Wanted {
    /// Only the first so many blocks.
    pub(crate) fn truncate(&mut self, blocks: usize) {
        let block = self.tokens.len() / (self.known + self.names.len()).max(1);
        self.names.truncate(blocks);
        self.tokens.truncate((self.known + self.names.len()) * block);
    }
}

/// Blocks on their way; none until they are here, or will not come.
type Parcel = Mutex<Option<HashMap<Key, Vec<u8>>>>;

/// Hands over what was asked for. Dropped before, it says that nothing will come.
pub struct Courier {
    parcel: Arc<Parcel>,
    inbox: Arc<Inbox>,
}

impl Courier {
    /// Hands over blocks by name: all that were wanted, or the first of them. Whoever brings them has made sure of what
    /// they are.
    pub fn deliver(self, blocks: HashMap<Key, Vec<u8>>) {
        *self.parcel.lock().unwrap_or_else(PoisonError::into_inner) = Some(blocks);
    }
}

impl Drop for Courier {
    fn drop(&mut self) {
        let mut parcel = self.parcel.lock().unwrap_or_else(PoisonError::into_inner);
        parcel.get_or_insert_default();
        drop(parcel);
        self.inbox.ring();
    }
}

/// How a request stands with those who read prompts elsewhere.
#[derive(Default)]
pub(super) enum Elsewhere {
    /// Nobody was asked yet.
    #[default]
    Unasked,
    /// Another request has asked for the same, and has not come in yet.
    Behind,
    /// Blocks are on their way, or here.
    Asked(Delivery),
    /// What is not known is read here.
    Here,
}

/// What was asked for.
pub(super) struct Delivery {
    parcel: Arc<Parcel>,
    /// Tokens that were known before.
    known: usize,
    /// Calls it off when nobody waits any more.
    _under_way: Box<dyn Send>,
}

impl Delivery {
    fn is_here(&self) -> bool {
        self.parcel.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }
}

impl Elsewhere {
    /// Whether the request has to wait for it.
    pub(super) fn is_awaited(&self) -> bool {
        match self {
            Elsewhere::Behind => true,
            Elsewhere::Asked(delivery) => !delivery.is_here(),
            Elsewhere::Unasked | Elsewhere::Here => false,
        }
    }

    /// What has come, and how many tokens were known before; from now on the rest is read here.
    pub(super) fn unpack(&mut self) -> (HashMap<Key, Vec<u8>>, usize) {
        let Elsewhere::Asked(delivery) = std::mem::replace(self, Elsewhere::Here) else {
            return Default::default();
        };
        let mut parcel = delivery.parcel.lock().unwrap_or_else(PoisonError::into_inner);
        (parcel.take().unwrap_or_default(), delivery.known)
    }
}

impl Engine {
    // ANCHOR: elsewhere
    /// Has the prompts of those who have just come read elsewhere, as far as that is worth it.
    pub(super) fn ask_elsewhere(&mut self) {
        let exchange = self.options.exchange.as_ref();
        let prefiller = exchange.and_then(|exchange| exchange.prefiller.clone());
        let (Some(prefiller), Some(exchanged)) = (prefiller, self.inbox.exchanged()) else {
            return;
        };
        for index in 0..self.members.len() {
            let member = &self.members[index];
            if matches!(member.elsewhere, Elsewhere::Unasked | Elsewhere::Behind) {
                let next = match self.known_of(member) {
                    None => Elsewhere::Here,
                    Some(known) if self.is_on_its_way(member, known) => Elsewhere::Behind,
                    Some(known) => self.ask(&*prefiller, wanted(member, known, exchanged)),
                };
                self.members[index].elsewhere = next;
            }
        }
    }
    // ANCHOR_END: elsewhere

    /// How many blocks of a prompt are here, if those that are not are worth asking for.
    fn known_of(&self, member: &Member) -> Option<usize> {
        if member.is_running() || member.reads_all() || member.reads_only {
            return None;
        }
        let block = self.options.block;
        let tokens = in_blocks(member, block);
        let known = self.pool.within_reach(member.salt, tokens);
        (tokens.len() >= known * block + LEAST).then_some(known)
    }

    /// Whether another request has asked for most of what is not here: answers to one question come together, and the
    /// prompt of all need be brought once. What only the system prompt is common to is asked for by itself.
    fn is_on_its_way(&self, member: &Member, known: usize) -> bool {
        let known = known * self.options.block;
        let unknown = in_blocks(member, self.options.block).len() - known;
        let alike = known + LEAST.max(unknown / 2 + 1);
        self.members.iter().any(|other| {
            matches!(other.elsewhere, Elsewhere::Asked(_))
                && other.salt == member.salt
                && other.text.get(..alike) == member.text.get(..alike)
        })
    }

    fn ask(&self, prefiller: &dyn Prefiller, wanted: Wanted) -> Elsewhere {
        let parcel = Arc::<Parcel>::default();
        let courier = Courier { parcel: parcel.clone(), inbox: self.inbox.clone() };
        let known = wanted.known * self.options.block;
        match prefiller.begin(wanted, courier) {
            Some(under_way) => Elsewhere::Asked(Delivery { parcel, known, _under_way: under_way }),
            None => Elsewhere::Here,
        }
    }
}

/// A prompt's beginning, in whole blocks. Its last token is read here in any case: what comes next is chosen after it.
fn in_blocks(member: &Member, block: usize) -> &[u32] {
    &member.text[..(member.text.len() - 1) / block * block]
}

fn wanted(member: &Member, known: usize, exchanged: Exchanged) -> Wanted {
    let Exchanged { fingerprint, block_tokens, block_bytes } = exchanged;
    let tokens = in_blocks(member, block_tokens);
    let names = exchanged.names(member.salt, tokens, known);
    let (salt, tokens, deadline) = (member.salt, tokens.to_vec(), member.deadline);
    Wanted { fingerprint, salt, tokens, known, names, block_bytes, deadline }
}
