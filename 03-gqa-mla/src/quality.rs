//! What a cache that loses something costs in quality: one judge for all of them.
//!
//! A lossy cache cannot be judged by equal bits, nor by whether its text still reads well: it does, long
//! after it has stopped being about the prompt. So each is held against the cache that loses nothing, on
//! text that the model was not trained on:
//!
//! * **Perplexity** along a text that is fed whatever the model would have said: how much worse it has
//!   become at predicting.
//! * **KL divergence** of its predictions from the full cache's, token by token: how much it has changed,
//!   for better or worse. The most sensitive of the four.
//! * **Agreement**: how often the likeliest next token is the same, which is what greedy decoding sees.
//! * **Recall**: questions whose answers hang on single cached positions. Averages over tokens hide the
//!   loss of one; this does not.
//!
//! | File | Holds |
//! |---|---|
//! | `material.rs` | held-out texts and questions |
//! | `divergence.rs` | probabilities from logits, and how far apart two predictions are |

mod divergence;
mod material;

pub use divergence::divergence;
pub use material::{Material, Question, Quiz};

use divergence::log_probabilities;
use kv_cache::{Cached, ContiguousStore, KvCache, KvShape};
use naive_decode::{Error, Model, Pass, Result, Span, Want, argmax};
use ndarray::Array2;

/// Rows of a pass. A cache that drops tokens decides with a pass what to drop, so that longer ones would
/// be judged before they have dropped anything.
const CHUNK: usize = 32;

/// Makes an empty cache for a model: room for so many tokens in each of so many sequences.
pub type Make<'a> = &'a dyn Fn(&Model, usize, usize) -> Result<Box<dyn KvCache>>;

/// Judges caches of one model, on the same material.
pub struct Judge<'a> {
    model: &'a Model,
    material: Material,
    /// The full cache's logits along the second half of each text, `[rows, vocab]`.
    full: Vec<Array2<f32>>,
}

/// What came out for one cache.
#[derive(Debug, Clone, PartialEq)]
pub struct Quality {
    /// Bytes that each token adds to the cache when it is fed.
    pub bytes_per_token: usize,
    /// Bytes set aside for the keys and values of one sequence of the model's context before anything is fed,
    /// scales and windows included. What an eviction policy remembers is not.
    pub allocated_bytes: usize,
    /// Bytes that a token still takes at a text's end, on average over all its tokens: less than it
    /// added if the cache evicts, and never more. What is set aside whatever the text's length, as KIVI's
    /// rows that wait, is in `allocated_bytes` only.
    pub kept_bytes_per_token: f64,
    /// One for each text.
    pub texts: Vec<TextQuality>,
    /// Share of right answers in each quiz.
    pub recall: Vec<f64>,
}

/// Averages over the tokens of one text's second half. The first half is the prompt: caches that choose
/// what to keep when a prompt ends have chosen by then.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TextQuality {
    /// -ln of the probability of the token that comes next.
    pub nats: f64,
    /// KL divergence from the full cache's prediction to this one's, in nats.
    pub divergence: f64,
    /// Share of tokens where both find the same next token likeliest.
    pub agreement: f64,
}

impl Quality {
    /// e to the mean of the texts' nats.
    pub fn perplexity(&self) -> f64 {
        libm::exp(self.mean(|text| text.nats))
    }

    /// Mean KL divergence in nats per token.
    pub fn divergence(&self) -> f64 {
        self.mean(|text| text.divergence)
    }

    /// Whether the mean KL divergence is below a bound, in nats a token.
    ///
    /// # Errors
    /// If it is not, with both.
    pub fn check_divergence(&self, bound: f64) -> Result<()> {
        let found = self.divergence();
        match found < bound {
            true => Ok(()),
            false => Err(Error::invalid(
                "KL divergence from full precision",
                format!("{found:.3} nats a token"),
                format!("less than {bound}"),
            )),
        }
    }

    /// Mean share of tokens where the likeliest next one is the same.
    pub fn agreement(&self) -> f64 {
        self.mean(|text| text.agreement)
    }

    /// Mean share of right answers.
    pub fn recall(&self) -> f64 {
        self.recall.iter().sum::<f64>() / self.recall.len() as f64
    }

    fn mean(&self, of: impl Fn(&TextQuality) -> f64) -> f64 {
        self.texts.iter().map(of).sum::<f64>() / self.texts.len() as f64
    }
}

/// The cache that loses nothing, which all others are held against.
///
/// # Errors
/// As [`ContiguousStore::new`].
pub fn full(model: &Model, capacity: usize, sequences: usize) -> Result<Box<dyn KvCache>> {
    let store = ContiguousStore::new(KvShape::of(model), capacity, sequences)?;
    Ok(Box::new(Cached::new(store, model.isa)))
}

impl<'a> Judge<'a> {
    /// Runs the full cache over the texts, once for all.
    ///
    /// # Errors
    /// If there are no texts or no questions, a text has fewer than two tokens, or one is longer than the
    /// model's context.
    pub fn new(model: &'a Model, material: Material) -> Result<Self> {
        for (what, found) in
            [("texts to judge by", material.texts.len()), ("questions", material.quizzes.len())]
        {
            if found == 0 {
                return Err(Error::invalid(what, found, "at least 1"));
            }
        }
        if let Some(quiz) = material.quizzes.iter().find(|quiz| quiz.questions.is_empty()) {
            let what = format!("questions about a prompt of {} tokens", quiz.prompt.len());
            return Err(Error::invalid(what, 0, "at least 1"));
        }
        if let Some(text) = material.texts.iter().find(|text| text.len() < 2) {
            return Err(Error::invalid("tokens of a text", text.len(), "at least 2"));
        }
        let mut cache = full(model, model.context(), 1)?;
        let texts = material.texts.iter();
        let along = texts.map(|text| logits_along(model, &mut *cache, text));
        let full = along.collect::<Result<_>>()?;
        Ok(Judge { model, full, material })
    }

    /// Judges the caches that `make` makes. The same caches give the same figures, to the bit.
    ///
    /// # Errors
    /// If one cannot be made, or refuses what it is fed.
    pub fn judge(&self, make: Make) -> Result<Quality> {
        self.judge_on(self.model, make)
    }

    /// Judges another model with the cache that loses nothing: the same weights, stored otherwise.
    ///
    /// # Errors
    /// If it refuses what it is fed.
    pub fn judge_model(&self, model: &Model) -> Result<Quality> {
        self.judge_on(model, &full)
    }

    fn judge_on(&self, model: &Model, make: Make) -> Result<Quality> {
        let mut cache = make(model, model.context(), 1)?;
        let (bytes_per_token, allocated_bytes) = (cache.bytes_per_token(), cache.allocated_bytes());
        let mut texts = Vec::with_capacity(self.full.len());
        let mut kept_bytes_per_token = 0.0f64;
        for (text, full) in self.material.texts.iter().zip(&self.full) {
            let logits = logits_along(model, &mut *cache, text)?;
            texts.push(compare(text, full, &logits)?);
            let share = cache.allocated_bytes() as f64 / cache.len(0) as f64;
            // What is set aside beforehand is for more tokens than these.
            kept_bytes_per_token = kept_bytes_per_token.max(share.min(bytes_per_token as f64));
        }
        let quizzes = self.material.quizzes.iter();
        let recall = quizzes.map(|quiz| ask(model, &mut *cache, quiz)).collect::<Result<_>>()?;
        Ok(Quality { bytes_per_token, allocated_bytes, kept_bytes_per_token, texts, recall })
    }
}

/// Share of questions that are answered right: greedily, token for token.
fn ask(model: &Model, cache: &mut dyn KvCache, quiz: &Quiz) -> Result<f64> {
    feed_prompt(model, cache, &quiz.prompt)?;
    let mut right = 0;
    for Question { ask, answer } in &quiz.questions {
        let mut next = None;
        for &token in ask {
            next = Some(step(model, cache, token)?);
        }
        let mut is_right = true;
        for &expected in answer {
            is_right &= next == Some(expected);
            next = Some(step(model, cache, expected)?);
        }
        right += usize::from(is_right);
        // Back to the prompt; a cache that cannot undo reads it again.
        if cache.truncate(0, quiz.prompt.len()).is_err() {
            feed_prompt(model, cache, &quiz.prompt)?;
        }
    }
    Ok(right as f64 / quiz.questions.len() as f64)
}

/// Empties the cache and feeds it a prompt, in chunks. Nobody reads the last one's logits; that they are
/// wanted tells a cache that the prompt ends there.
fn feed_prompt(model: &Model, cache: &mut dyn KvCache, prompt: &[u32]) -> Result<()> {
    cache.reset(0)?;
    for chunk in prompt.chunks(CHUNK) {
        let start = cache.len(0);
        let is_last = start + chunk.len() == prompt.len();
        let want = if is_last { Want::Last } else { Want::Nothing };
        let span = Span::new(0, start, chunk, want);
        model.forward(&Pass::one(span), cache)?;
    }
    Ok(())
}

/// Feeds one token; the likeliest next one.
fn step(model: &Model, cache: &mut dyn KvCache, token: u32) -> Result<u32> {
    let span = Span::new(0, cache.len(0), &[token], Want::Last);
    argmax(&model.forward(&Pass::one(span), cache)?.row(0).to_vec())
}

/// Logits after every token of a text's second half but the last, `[rows, vocab]`.
fn logits_along(model: &Model, cache: &mut dyn KvCache, text: &[u32]) -> Result<Array2<f32>> {
    let (prompt, rest) = text[..text.len() - 1].split_at((text.len() - 1) / 2);
    feed_prompt(model, cache, prompt)?;
    let mut logits = Array2::zeros((0, model.config.vocab_size));
    for chunk in rest.chunks(CHUNK) {
        let span = Span::new(0, cache.len(0), chunk, Want::All);
        let rows = model.forward(&Pass::one(span), cache)?;
        logits.append(ndarray::Axis(0), rows.view()).expect("rows as wide as the vocabulary");
    }
    Ok(logits)
}

/// Two predictions of the same text.
fn compare(text: &[u32], full: &Array2<f32>, lossy: &Array2<f32>) -> Result<TextQuality> {
    let (mut nats, mut apart, mut same) = (0.0, 0.0, 0);
    let next_tokens = &text[text.len() - full.nrows()..];
    for ((full, lossy), &next) in full.outer_iter().zip(lossy.outer_iter()).zip(next_tokens) {
        let (full, lossy) = (full.to_vec(), lossy.to_vec());
        let (p, q) = (log_probabilities(&full), log_probabilities(&lossy));
        nats -= q[next as usize];
        apart += divergence(&p, &q);
        same += usize::from(argmax(&full)? == argmax(&lossy)?);
    }
    let tokens = full.nrows() as f64;
    Ok(TextQuality {
        nats: nats / tokens,
        divergence: apart / tokens,
        agreement: same as f64 / tokens,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::evict::{Budget, EvictingCache, SnapKv};
    use embedded_models::DRAFT;
    use naive_decode::LoadOptions;

    #[test]
    fn a_cache_that_chooses_when_the_prompt_ends_has_chosen_before_anything_is_judged() {
        let options = LoadOptions::default();
        let model = Model::embedded(DRAFT.name, DRAFT.config, DRAFT.weights, options).unwrap();
        let policy = SnapKv::new(16, 5).unwrap();
        let mut cache = EvictingCache::new(&model, 128, 1, Budget::Entries(20), policy).unwrap();
        // The last chunk is a whole one, a part of one, and the only one.
        for length in [2 * CHUNK, 2 * CHUNK + 1, CHUNK - 1] {
            feed_prompt(&model, &mut cache, &vec![1; length]).unwrap();
            assert_eq!((cache.len(0), cache.slots(0, 0, 0).len()), (length, 20));
        }
    }
}
