//! The cache that carries out what an eviction policy chooses.

mod pass;

use super::head::{Head, Turn};
use super::{Budget, Evict, Phase};
use kv_cache::{KvCache, KvShape, Lengths};
use naive_decode::{Error, Isa, Model, Result, Rope};
use std::ops::Range;

/// Attention over the entries that a policy has kept.
///
/// `len` and all slots count tokens seen, as in any cache; what is gone is merely not looked at. As
/// long as nothing is, answers are those of [`kv_cache::Cached`], bit for bit, in chunks of any
/// size.
///
/// A clone is an independent cache in the same state: the way to ask several questions of one text,
/// for a question costs entries and [`KvCache::truncate`] cannot bring them back.
#[derive(Clone)]
pub struct EvictingCache<P> {
    shape: KvShape,
    bytes_per_token: usize,
    lengths: Lengths,
    /// In entries.
    budget: usize,
    isa: Isa,
    observes: bool,
    /// There if positions are counted in the cache: the model's turns, and nothing of its magnitude,
    /// which keys that are kept have already.
    rope: Option<Rope>,
    sequences: Vec<Sequence<P>>,
    peak_bytes: usize,
}

#[derive(Clone)]
struct Sequence<P> {
    /// `[layers][kv_heads]`
    heads: Vec<Head<P>>,
    /// Its prompt's length, once that has ended.
    prompt: Option<usize>,
    /// Its length when entries were last dropped.
    dropped_at: usize,
}

impl<P: Evict> Sequence<P> {
    fn new(shape: KvShape, policy: &P) -> Self {
        let heads = (0..shape.layers * shape.kv_heads).map(|_| Head::new(shape, policy)).collect();
        Sequence { heads, prompt: None, dropped_at: 0 }
    }
}

impl<P: Evict> EvictingCache<P> {
    /// An empty cache for sequences of at most `capacity` tokens, of which it keeps what `budget`
    /// allows.
    ///
    /// # Errors
    /// A budget of nothing, one of more than there could be, or one that is too small for the
    /// policy.
    pub fn new(
        model: &Model,
        capacity: usize,
        sequences: usize,
        budget: Budget,
        policy: P,
    ) -> Result<Self> {
        let budget = budget.entries(capacity)?;
        policy.check(budget)?;
        let shape = KvShape::of(model);
        let (isa, observes) = (model.isa, policy.observes());
        let lengths = Lengths::new(sequences, capacity);
        let sequences = (0..sequences).map(|_| Sequence::new(shape, &policy)).collect();
        Ok(EvictingCache {
            shape,
            bytes_per_token: KvShape::of_makers(model).bytes_per_token(),
            lengths,
            budget,
            isa,
            observes,
            rope: None,
            sequences,
            peak_bytes: 0,
        })
    }

    /// Counts positions inside the cache (Xiao et al. 2023, §3.2): keys count as being as far from
    /// a query as there are entries between them. Queries stay where they are, and a key behind a
    /// gap is turned towards them by the gap's width each time it is read, so that what is kept
    /// need not change.
    ///
    /// # Errors
    /// If not the whole of a key is turned by the model's RoPE, as in a latent cache; if a layer turns
    /// by a RoPE of its own; or if one has a window, which counts the text's tokens.
    pub fn with_positions_in_cache(self, model: &Model) -> Result<Self> {
        let turned = 2 * model.rope.frequencies().len();
        if turned != self.shape.key_dim {
            let expected = format!("{}, all of a key", self.shape.key_dim);
            return Err(Error::invalid("width that RoPE turns", turned, expected));
        }
        for (layer, block) in model.blocks.iter().enumerate() {
            if block.projection.has_own_rope() {
                let expected = "the model's: all keys are turned by one";
                return Err(Error::invalid(format!("RoPE of layer {layer}"), "its own", expected));
            }
            if let Some(window) = block.window {
                let expected = "none: positions in the cache are not those that it counts";
                return Err(Error::invalid(format!("window of layer {layer}"), window, expected));
            }
        }
        let frequencies = model.rope.frequencies().to_vec();
        let rope = Rope::with_frequencies(frequencies, 1.0, model.rope.positions());
        Ok(EvictingCache { rope: Some(rope), ..self })
    }

    /// Entries that each head keeps at most between passes, as the policy understands it.
    pub fn budget(&self) -> usize {
        self.budget
    }

    /// Slots of the entries that one head holds, ascending.
    ///
    /// # Panics
    /// If there is no such sequence, layer or head.
    pub fn slots(&self, sequence: usize, layer: usize, kv_head: usize) -> &[usize] {
        assert!(kv_head < self.shape.kv_heads, "head {kv_head} of {}", self.shape.kv_heads);
        self.sequences[sequence].heads[layer * self.shape.kv_heads + kv_head].slots()
    }

    /// Most bytes of keys and values that were ever set aside: in a pass, those of its rows come on
    /// top.
    pub fn peak_bytes(&self) -> usize {
        self.peak_bytes
    }

    /// Bytes kept besides keys and values: slot numbers and what the policy remembers. While a pass is
    /// under way, and after one that failed until the next begins, policies that watch remember twice.
    pub fn bookkeeping_bytes(&self) -> usize {
        self.heads().map(Head::bookkeeping_bytes).sum()
    }

    fn heads(&self) -> impl Iterator<Item = &Head<P>> {
        self.sequences.iter().flat_map(|sequence| &sequence.heads)
    }

    /// Drops the entries of some tokens, in every layer and head. Length and positions stay.
    ///
    /// # Errors
    /// If there is no such sequence, or it has not seen that many tokens.
    pub fn drop_range(&mut self, sequence: usize, slots: Range<usize>) -> Result<()> {
        let held = self.lengths.check(sequence)?;
        if slots.start > slots.end || slots.end > held {
            let what = format!("tokens to drop of sequence {sequence}");
            let expected = format!("a range within 0..{held}, what it has seen");
            return Err(Error::invalid(what, format!("{slots:?}"), expected));
        }
        let sequence = &mut self.sequences[sequence];
        for head in &mut sequence.heads {
            if head.drop_slots(&slots, held) {
                sequence.dropped_at = held;
            }
        }
        Ok(())
    }

    /// Whether everything is as it should be between passes: slots ascend and are of tokens seen,
    /// each has its entry, and no head holds more than its policy wants.
    ///
    /// # Errors
    /// Names the layer and head, and what is wrong.
    pub fn check_integrity(&self) -> Result<()> {
        for (sequence, Sequence { heads, prompt, .. }) in self.sequences.iter().enumerate() {
            let phase = if prompt.is_some() { Phase::Generation } else { Phase::Prompt };
            let turns = self.turns(self.lengths.of(sequence), phase);
            heads.iter().zip(turns).try_for_each(|(head, turn)| head.check_integrity(turn))?;
        }
        Ok(())
    }

    /// Every head's turn to choose, `[layers][kv_heads]`.
    fn turns(&self, length: usize, phase: Phase) -> impl Iterator<Item = Turn> + use<P> {
        let (KvShape { layers, kv_heads, .. }, budget) = (self.shape, self.budget);
        (0..layers * kv_heads).map(move |i| Turn {
            layer: i / kv_heads,
            kv_head: i % kv_heads,
            length,
            budget,
            phase,
        })
    }
}

impl<P: Evict> KvCache for EvictingCache<P> {
    fn len(&self, sequence: usize) -> usize {
        self.lengths.of(sequence)
    }

    fn capacity(&self) -> usize {
        self.lengths.capacity()
    }

    /// Back to the first `length` tokens, provided that nothing has been dropped since there were
    /// so many: what is held is then what was held then. Everything else is refused, but for 0, the
    /// reset. Policies that count votes have counted those of the tokens taken back, and do not
    /// take them back.
    fn truncate(&mut self, sequence: usize, length: usize) -> Result<()> {
        self.lengths.check_truncate(sequence, length)?;
        let Sequence { dropped_at, prompt, .. } = self.sequences[sequence];
        if length > 0 && length < dropped_at {
            let expected = format!("0, or at least {dropped_at}: entries were dropped there");
            let what = format!("length to truncate sequence {sequence} to");
            return Err(Error::invalid(what, length, expected));
        }
        self.lengths.truncate(sequence, length);
        let sequence = &mut self.sequences[sequence];
        for head in &mut sequence.heads {
            head.drop_slots(&(length..usize::MAX), length);
        }
        sequence.prompt = prompt.filter(|&prompt| prompt <= length && length > 0);
        if length == 0 {
            sequence.dropped_at = 0;
        }
        Ok(())
    }

    fn bytes_per_token(&self) -> usize {
        self.bytes_per_token
    }

    /// Bytes of keys and values in every layer that has been written: the budget's, whatever the context, and
    /// more where a policy keeps more, as SnapKV does. What comes on top is
    /// [`EvictingCache::bookkeeping_bytes`].
    fn allocated_bytes(&self) -> usize {
        self.heads().map(Head::bytes).sum()
    }
}
