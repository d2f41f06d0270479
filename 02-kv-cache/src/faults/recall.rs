//! What a corrupted key costs in answers, and which position it is that costs them.

use super::overwritten_key::overwrite_key;
use super::store;
use crate::{Cached, CachedDecoder, ContiguousStore, Place, Store};
use naive_decode::break_it::{Bench, PositionScore, Recall, Score, World};
use naive_decode::{Decoder, Result, argmax};

/// Facts in a world.
const FACTS: usize = 6;

/// Worlds that are asked about, and others that the position is looked for in.
const ASKED: std::ops::Range<u64> = 0..20;
const SEARCHED: std::ops::Range<u64> = 20..25;

/// Positions that may decide an answer, counted from the value: the name, the words between and the
/// full stop, in either form of the sentence.
const OFFSETS: std::ops::RangeInclusive<isize> = -4..=1;

/// The position whose key, overwritten, costs most answers, as an offset from the value's token;
/// and what each costs.
pub(super) fn decisive_position(bench: &Bench) -> Result<(isize, Vec<PositionScore>)> {
    let mut scores: Vec<PositionScore> =
        OFFSETS.map(|offset| PositionScore { offset, score: Score::default() }).collect();
    for number in SEARCHED {
        let mut notepad = Notepad::of(bench, Bench::world(number, FACTS, 1))?;
        for fact in 0..FACTS {
            let before = notepad.knows(fact)?;
            for PositionScore { offset, score } in &mut scores {
                let slot = notepad.slot(fact, *offset)?;
                let after = notepad.with_noise(slot, |notepad| notepad.knows(fact))?;
                score.add(before, after);
            }
        }
    }
    // Of several that cost as many, the one nearest to the value.
    let fewest_right = |p: &&PositionScore| (p.score.broken, p.offset.abs());
    let decisive = scores.iter().min_by_key(fewest_right).map_or(0, |p| p.offset);
    Ok((decisive, scores))
}

/// Asks about every fact of some held-out worlds: with the cache as written, and with noise in the
/// place of one fact's keys at `offset` from its value, each fact in turn.
pub(super) fn recall(bench: &Bench, offset: isize, found: Vec<PositionScore>) -> Result<Recall> {
    let (mut hit, mut others) = (Score::default(), Score::default());
    for number in ASKED {
        let mut notepad = Notepad::of(bench, Bench::world(number, FACTS, 1))?;
        let before = notepad.answers()?;
        for edited in 0..FACTS {
            let slot = notepad.slot(edited, offset)?;
            let after = notepad.with_noise(slot, Notepad::answers)?;
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
    Ok(Recall { edit, hit, others, chance_one_in: FACTS, by_position: found })
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
        let cache = Cached::new(store(&bench.model, 1), bench.model.isa);
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
    fn with_noise<T>(&mut self, slot: usize, run: impl Fn(&mut Self) -> Result<T>) -> Result<T> {
        let saved = keys_and_values(self.decoder.executor.attention.store(), slot);
        overwrite_key(self.decoder.executor.attention.store_mut(), slot);
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
            let (mut key, mut value) = (vec![0.0; shape.head_dim], vec![0.0; shape.head_dim]);
            store.key(place, &mut key);
            store.value(place, &mut value);
            (place, key, value)
        })
        .collect()
}
