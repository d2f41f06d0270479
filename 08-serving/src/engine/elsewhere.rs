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
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Tokens that nobody here knows from which on a prompt is sent elsewhere. Fewer are read in less time than is
/// gained.
const LEAST: usize = 64;

/// How long a prompt may be waited for in all: so long for the queue of whoever reads it, and so much for each of its tokens.
/// One that comes no faster than this may as well be read here.
const QUEUE: Duration = Duration::from_secs(10);
const TOKEN: Duration = Duration::from_millis(10);

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
    /// By when the prompt has to be read. Half of the time until then is for bringing blocks, the other half for reading here
    /// what has not come.
    pub deadline: Instant,
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
#[derive(Default)]
struct Parcel(Mutex<Option<HashMap<Key, Vec<u8>>>>);

impl Parcel {
    fn open(&self) -> MutexGuard<'_, Option<HashMap<Key, Vec<u8>>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Hands over what was asked for. Dropped before, it says that nothing will come.
pub struct Courier {
    parcel: Arc<Parcel>,
    inbox: Arc<Inbox>,
}

impl Courier {
    /// Hands over blocks by name: all that were wanted, or the first of them. Whoever brings them has made sure of what
    /// they are.
    pub fn deliver(self, blocks: HashMap<Key, Vec<u8>>) {
        *self.parcel.open() = Some(blocks);
    }
}

impl Drop for Courier {
    fn drop(&mut self) {
        self.parcel.open().get_or_insert_default();
        self.inbox.ring();
    }
}

/// How a request stands with those who read prompts elsewhere.
#[derive(Default)]
pub(super) enum Elsewhere {
    /// Nobody was asked yet.
    #[default]
    Unasked,
    /// Blocks are on their way, or here.
    Asked(Arc<Delivery>),
    /// What is not known is read here.
    Here,
}

/// What was asked for, for all who wait for it.
pub(super) struct Delivery {
    parcel: Arc<Parcel>,
    /// Tokens that were known before.
    known: usize,
    /// Tokens that are to come.
    tokens: usize,
    /// By when the prompt has to be read.
    deadline: Instant,
    /// Calls it off when nobody waits any more; none once all has been taken.
    under_way: Mutex<Option<Box<dyn Send>>>,
}

impl Delivery {
    /// Whether it is of use to one more, of whom so many tokens are known and so many are not: it has not been taken yet,
    /// leaves nothing out before what it brings, brings little else, and will be there in time.
    fn is_for(&self, known: usize, unknown: usize, deadline: Option<Instant>) -> bool {
        self.parcel.open().as_ref().is_none_or(|blocks| !blocks.is_empty())
            && self.known <= known
            && self.tokens <= 2 * unknown
            && deadline.is_none_or(|until| self.deadline <= until)
    }

    /// Takes those of the blocks that one of those who wait begins with. The others wait for the rest.
    fn take(&self, names: &[Key]) -> HashMap<Key, Vec<u8>> {
        let mut parcel = self.parcel.open();
        let blocks = parcel.get_or_insert_default();
        let taken = names.iter().filter_map(|name| blocks.remove_entry(name)).collect();
        let is_all = blocks.is_empty();
        // Whatever is called off now may have a courier who looks at the parcel once more.
        drop(parcel);
        if is_all {
            drop(self.under_way.lock().unwrap_or_else(PoisonError::into_inner).take());
        }
        taken
    }
}

impl Elsewhere {
    /// Whether the request has to wait for it.
    pub(super) fn is_awaited(&self) -> bool {
        matches!(self, Elsewhere::Asked(delivery) if delivery.parcel.open().is_none())
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
            if let Elsewhere::Unasked = member.elsewhere {
                let next = match self.known_of(member) {
                    None => Elsewhere::Here,
                    Some(known) => match self.on_its_way(member, known) {
                        Some(delivery) => Elsewhere::Asked(delivery),
                        None => self.ask(&*prefiller, wanted(member, known, exchanged)),
                    },
                };
                self.members[index].elsewhere = next;
            }
        }
    }
    // ANCHOR_END: elsewhere

    /// What has come for a request that comes in, and how many tokens were known before; what it lacks is read here.
    pub(super) fn unpack(&mut self, index: usize) -> (HashMap<Key, Vec<u8>>, usize) {
        let member = &mut self.members[index];
        let asked = std::mem::replace(&mut member.elsewhere, Elsewhere::Here);
        let (Elsewhere::Asked(delivery), Some(exchanged)) = (asked, self.inbox.exchanged()) else {
            return Default::default();
        };
        let (block, known) = (self.options.block, delivery.known);
        let names = exchanged.names(member.salt, in_blocks(member, block), known / block);
        (delivery.take(&names), known)
    }

    /// How many blocks of a prompt are here, if those that are not are worth asking for.
    fn known_of(&self, member: &Member) -> Option<usize> {
        if member.is_running() || member.reads_all() || member.reads_only {
            return None;
        }
        let block = self.options.block;
        let tokens = in_blocks(member, block);
        // What a disk that does not answer has is out of reach.
        let prefixes = self.pool.prefixes();
        let known = match self.disk_is_silent {
            true => {
                let names = prefixes.names(member.salt, tokens);
                prefixes.at_hand(member.salt, tokens, &names)
            }
            false => prefixes.within_reach(member.salt, tokens),
        };
        (tokens.len() >= known * block + LEAST).then_some(known)
    }

    /// What another request has asked for, if it is most of what is not here: answers to one question come together, and the
    /// prompt of all need be brought once. What only the system prompt is common to is asked for by itself, and so is what
    /// would come with much more that nobody waits for, or for longer than this request has time. Each then comes in when its
    /// own turn is, whoever has asked.
    fn on_its_way(&self, member: &Member, known: usize) -> Option<Arc<Delivery>> {
        let known = known * self.options.block;
        let unknown = in_blocks(member, self.options.block).len() - known;
        let alike = known + LEAST.max(unknown / 2 + 1);
        self.members.iter().find_map(|other| match &other.elsewhere {
            Elsewhere::Asked(delivery)
                if other.salt == member.salt
                    && other.text.get(..alike) == member.text.get(..alike)
                    && delivery.is_for(known, unknown, member.deadline) =>
            {
                Some(delivery.clone())
            }
            _ => None,
        })
    }

    fn ask(&self, prefiller: &dyn Prefiller, wanted: Wanted) -> Elsewhere {
        let parcel = Arc::<Parcel>::default();
        let courier = Courier { parcel: parcel.clone(), inbox: self.inbox.clone() };
        let known = wanted.known * self.options.block;
        let (tokens, deadline) = (wanted.tokens.len() - known, wanted.deadline);
        match prefiller.begin(wanted, courier) {
            Some(under_way) => {
                let under_way = Mutex::new(Some(under_way));
                Elsewhere::Asked(Arc::new(Delivery { parcel, known, tokens, deadline, under_way }))
            }
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
    let (salt, tokens) = (member.salt, in_blocks(member, block_tokens).to_vec());
    let names = exchanged.names(salt, &tokens, known);
    // So much for bringing it, and as much again for reading here what has not come.
    let most = 2 * (QUEUE + TOKEN * (names.len() * block_tokens) as u32);
    let deadline = member.submitted + most;
    let deadline = member.deadline.map_or(deadline, |until| until.min(deadline));
    Wanted { fingerprint, salt, tokens, known, names, block_bytes, deadline }
}
