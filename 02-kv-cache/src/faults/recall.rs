//! What a corrupted key costs in answers, and which position it is that costs them.

use super::overwritten_key::overwrite_key;
use super::store;
use crate::{Cached, CachedDecoder, ContiguousStore, Place, Store};
use naive_decode::break_it::{Bench, Recall, Score, World};
use naive_decode::{Decoder, Result, argmax};
use std::ops::{Range, RangeInclusive};

/// Facts in a world.
const FACTS: usize = 6;

/// Worlds that are asked about, and others that the position is looked for in.
const ASKED: Range<u64> = 0..20;
const SEARCHED: Range<u64> = 20..25;

/// Positions that may decide an answer, counted from the value: the name, the words between and the
/// full stop, in either form of the sentence.
const OFFSETS: RangeInclusive<isize> = -4..=1;

/// What an overwritten key costs, by where it lies.
pub(super) struct Search {
    /// The position that costs most answers, as an offset from the value's token.
    pub(super) offset: isize,
    by_position: Vec<(isize, Score)>,
    by_layer: Vec<(usize, Score)>,
}

impl Search {
    /// Overwrites each position around the value in turn, in all layers; then the one that costs
    /// most, layer by layer.
    pub(super) fn run(bench: &Bench) -> Result<Self> {
        let layers = bench.model.config.layers;
        let by_position = costs(bench, OFFSETS, |offset| (offset, 0..layers))?;
        // Of several that cost as many, the one nearest to the value.
        let fewest_right = |(offset, score): &&(isize, Score)| (score.broken, offset.abs());
        let offset = by_position.iter().min_by_key(fewest_right).map_or(0, |p| p.0);
        let by_layer = costs(bench, 0..layers, |layer| (offset, layer..layer + 1))?;
        Ok(Search { offset, by_position, by_layer })
    }
}

/// Right answers before and after, for each of some edits: an offset and the layers to hit there.
fn costs<T: Copy>(
    bench: &Bench,
    edits: impl Iterator<Item = T>,
    place: impl Fn(T) -> (isize, Range<usize>),
) -> Result<Vec<(T, Score)>> {
    let mut costs: Vec<(T, Score)> = edits.map(|edit| (edit, Score::default())).collect();
    for number in SEARCHED {
        let mut notepad = Notepad::of(bench, Bench::world(number, FACTS, 1))?;
        for fact in 0..FACTS {
            let before = notepad.knows(fact)?;
            for (edit, score) in &mut costs {
                let (offset, layers) = place(*edit);
                let slot = notepad.slot(fact, offset)?;
                score.add(before, notepad.with_noise(slot, layers, |notepad| notepad.knows(fact))?);
            }
        }
    }
    Ok(costs)
}

/// Asks about every fact of some held-out worlds: with the cache as written, and with noise in the
/// place of one fact's keys at the position found, each fact in turn.
pub(super) fn recall(bench: &Bench, found: Search) -> Result<Recall> {
    let layers = bench.model.config.layers;
    let (mut hit, mut others) = (Score::default(), Score::default());
    for number in ASKED {
        let mut notepad = Notepad::of(bench, Bench::world(number, FACTS, 1))?;
        let before = notepad.answers()?;
        for edited in 0..FACTS {
            let slot = notepad.slot(edited, found.offset)?;
            let after = notepad.with_noise(slot, 0..layers, Notepad::answers)?;
            for (asked, (before, after)) in before.iter().zip(after).enumerate() {
                let score = if asked == edited { &mut hit } else { &mut others };
                score.add(*before, after);
            }
        }
    }
    let edit =
        "noise in the place of the keys at one position of one fact, in every layer and head; \
                each fact in turn, and each time a question about every fact"
            .to_owned();
    let Search { by_position, by_layer, .. } = found;
    Ok(Recall { edit, hit, others, chance_one_in: FACTS, by_position, by_layer })
}

/// The slot `offset` tokens after a fact's value.
pub(super) fn slot_in_fact(
    bench: &Bench,
    world: &World,
    fact: usize,
    offset: isize,
) -> Result<usize> {
    let up_to_value = &world.prompt()[..world.facts[fact].value_bytes.end];
    let value = bench.tokenizer.encode(up_to_value)?.len() - 1;
    Ok(value.saturating_add_signed(offset))
}

/// A cache that holds a world's prompt, to be asked again and again.
struct Notepad<'a> {
    bench: &'a Bench,
    world: World,
    decoder: CachedDecoder<Cached<ContiguousStore>>,
    length: usize,
}

impl<'a> Notepad<'a> {
    fn of(bench: &'a Bench, world: World) -> Result<Self> {
        let cache = Cached::new(store(&bench.model, 1)?, bench.model.isa);
        let mut decoder = CachedDecoder::new(bench.model.clone(), cache, None)?;
        decoder.feed(&bench.tokenizer.encode(world.prompt())?)?;
        let length = decoder.len();
        Ok(Notepad { bench, world, decoder, length })
    }

    fn slot(&self, fact: usize, offset: isize) -> Result<usize> {
        slot_in_fact(self.bench, &self.world, fact, offset)
    }

    /// Whether the likeliest token after the question is the answer. The question is then forgotten.
    fn knows(&mut self, fact: usize) -> Result<bool> {
        let encode = |text: &str| self.bench.tokenizer.encode(text);
        let answer = encode(self.world.answer(fact))?;
        let logits = self.decoder.feed(&encode(&self.world.question(fact))?)?;
        self.decoder.truncate(self.length)?;
        Ok([argmax(&logits)?] == answer[..])
    }

    fn answers(&mut self) -> Result<Vec<bool>> {
        (0..FACTS).map(|fact| self.knows(fact)).collect()
    }

    /// Does something with the keys in `slot` overwritten, then puts them back.
    fn with_noise<T>(
        &mut self,
        slot: usize,
        layers: Range<usize>,
        run: impl Fn(&mut Self) -> Result<T>,
    ) -> Result<T> {
        let saved = keys_and_values(self.decoder.executor.attention.store(), slot);
        overwrite_key(self.decoder.executor.attention.store_mut(), slot, layers);
        let result = run(self);
        for (place, key, value) in saved {
            self.decoder.executor.attention.store_mut().write(place, &key, &value);
        }
        result
    }
}

/// Everything that a store keeps in one slot of sequence 0.
fn keys_and_values(store: &dyn Store, slot: usize) -> Vec<(Place, Vec<f32>, Vec<f32>)> {
    let shape = store.shape();
    let heads = (0..shape.layers).flat_map(|layer| {
        (0..shape.kv_heads).map(move |kv_head| Place { sequence: 0, layer, kv_head, slot })
    });
    heads
        .map(|place| {
            let (mut key, mut value) = (vec![0.0; shape.key_dim], vec![0.0; shape.value_dim]);
            store.key(place, &mut key);
            store.value(place, &mut value);
            (place, key, value)
        })
        .collect()
}
