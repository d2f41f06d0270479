//! What every rung is held to.

use naive_decode::{Model, NaiveAttention, Pass, Rung, Settings, Span, Want};
use ndarray::{Array2, ArrayView1};
use std::fmt::Display;
use std::sync::Arc;

/// A model, a text, and the logits that naive attention gives after each of its tokens.
pub(crate) struct Judge {
    pub(crate) model: Arc<Model>,
    pub(crate) tokens: Vec<u32>,
    /// `[tokens, vocab]`
    pub(crate) logits: Array2<f32>,
}

impl Judge {
    pub(crate) fn new(model: Arc<Model>, tokens: Vec<u32>) -> Self {
        let pass = Pass::one(Span::new(0, 0, &tokens, Want::All));
        let logits = model.forward(&pass, &mut NaiveAttention::new(model.isa)).unwrap();
        Judge { model, tokens, logits }
    }

    /// Feeds a fresh decoder of the rung the first `prompt` tokens in pieces of at most `piece`,
    /// then the rest one by one, and checks the logits after each.
    ///
    /// The tokens are the judge's own, never the rung's choice: a rung that errs cannot hide it by
    /// wandering off into another text.
    pub(crate) fn check(&self, rung: &Rung, feed: Feed) {
        let threads = rayon::ThreadPoolBuilder::new().num_threads(feed.threads).build().unwrap();
        threads.install(|| {
            let settings = Settings {
                capacity: self.tokens.len(),
                prefill_chunk: feed.prefill_chunk,
                // Matrices go to rayon's threads; attention, from rung 04 on, to these.
                threads: Some(feed.threads),
            };
            // A model of the same weights, packed for another instruction set perhaps.
            let mut decoder = (rung.start)(feed.model.clone(), settings).unwrap();
            let (prompt, rest) = self.tokens.split_at(feed.prompt);
            let mut held = 0;
            for piece in prompt.chunks(feed.piece).chain(rest.chunks(1)) {
                let logits = decoder.feed(piece).unwrap();
                held += piece.len();
                assert_same_bits(
                    ArrayView1::from(&logits),
                    self.logits.row(held - 1),
                    &format!("rung \"{}\", {feed}, after {held} tokens", rung.change),
                );
            }
        });
    }
}

/// How a text is fed to a rung.
pub(crate) struct Feed<'a> {
    /// What errors call the text.
    pub(crate) name: &'a str,
    pub(crate) model: &'a Arc<Model>,
    /// How many of the judge's tokens are the prompt; the others follow one by one.
    pub(crate) prompt: usize,
    /// Most tokens of the prompt that the test feeds in one call.
    pub(crate) piece: usize,
    /// Most tokens that the rung itself runs in one pass.
    pub(crate) prefill_chunk: Option<usize>,
    pub(crate) threads: usize,
}

impl<'a> Feed<'a> {
    /// Token by token from the first, on two threads.
    pub(crate) fn new(name: &'a str, model: &'a Arc<Model>) -> Self {
        Feed { name, model, prompt: 1, piece: usize::MAX, prefill_chunk: None, threads: 2 }
    }
}

impl Display for Feed<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        let Feed { name, model, prompt, piece, prefill_chunk, threads } = self;
        let piece = piece.min(prompt);
        let chunk = prefill_chunk.map_or("whole".into(), |chunk| chunk.to_string());
        write!(f, "{name}: prompt of {prompt} fed by {piece}, chunk {chunk}, ")?;
        write!(f, "{threads} threads, {}", model.isa.name())
    }
}

/// Panics at the first logit whose bits differ, saying which and where.
pub(crate) fn assert_same_bits(found: ArrayView1<f32>, expected: ArrayView1<f32>, place: &str) {
    assert_eq!(found.len(), expected.len(), "{place}: number of logits");
    let differ = |(a, b): (&f32, &f32)| a.to_bits() != b.to_bits();
    if let Some(i) = found.iter().zip(expected).position(differ) {
        let (a, b) = (found[i], expected[i]);
        panic!(
            "{place}: logit {i} is {a:e} ({:#010x}), not {b:e} ({:#010x})",
            a.to_bits(),
            b.to_bits()
        );
    }
    // Two rows of NaN would agree as well, and prove nothing.
    assert!(found.iter().all(|v| v.is_finite()), "{place}: logits that are not finite");
}
