//! What a corrupted key costs in answers.

use super::overwritten_key::{overwrite_key, value_slot};
use super::store;
use crate::{Cached, CachedDecoder, ContiguousStore};
use naive_decode::break_it::{Bench, Recall, Score};
use naive_decode::{Decoder, Result, argmax};

const WORLDS: u64 = 20;
const FACTS: usize = 6;

/// Asks about every fact of some held-out worlds: with the cache as written, and with the keys of
/// one fact's value overwritten, each fact in turn.
pub(super) fn recall(bench: &Bench) -> Result<Recall> {
    let (mut hit, mut others) = (Score::default(), Score::default());
    for number in 0..WORLDS {
        let world = Bench::world(number, FACTS, 1);
        let prompt = bench.tokenizer.encode(world.prompt())?;
        let questions = (0..FACTS)
            .map(|i| {
                let question = bench.tokenizer.encode(&world.question(i))?;
                Ok((question, bench.tokenizer.encode(world.answer(i))?))
            })
            .collect::<Result<Vec<_>>>()?;
        let mut notepad = Notepad::over(bench, &prompt)?;
        let clean = notepad.answers(&questions)?;
        for (edited, fact) in world.facts.iter().enumerate() {
            let mut notepad = Notepad::over(bench, &prompt)?;
            let slot = value_slot(bench, &world.prompt()[..fact.value_bytes.end])?;
            overwrite_key(notepad.decoder.executor.attention.store_mut(), slot);
            for (asked, after) in notepad.answers(&questions)?.into_iter().enumerate() {
                let score = if asked == edited { &mut hit } else { &mut others };
                score.asked += 1;
                score.clean += usize::from(clean[asked]);
                score.broken += usize::from(after);
            }
        }
    }
    let edit = "noise in the place of the keys of one fact's value: one position, every layer and \
                head; each fact in turn, and each time a question about every fact"
        .to_owned();
    Ok(Recall { edit, hit, others, chance_one_in: FACTS })
}

/// A cache that holds a prompt, to be asked again and again.
struct Notepad {
    decoder: CachedDecoder<Cached<ContiguousStore>>,
    prompt: usize,
}

impl Notepad {
    fn over(bench: &Bench, prompt: &[u32]) -> Result<Self> {
        let cache = Cached::new(store(&bench.model, 1), bench.model.isa);
        let mut decoder = CachedDecoder::new(bench.model.clone(), cache, None)?;
        decoder.feed(prompt)?;
        Ok(Notepad { decoder, prompt: prompt.len() })
    }

    /// Whether each question gets its answer, a single token.
    fn answers(&mut self, questions: &[(Vec<u32>, Vec<u32>)]) -> Result<Vec<bool>> {
        let mut right = Vec::new();
        for (question, answer) in questions {
            let logits = self.decoder.feed(question)?;
            right.push([argmax(&logits)?] == answer[..]);
            self.decoder.truncate(self.prompt)?;
        }
        Ok(right)
    }
}
