//! A request that comes back to its own blocks.

use super::TOKENS;
use super::scene::{Sharing, pool, tree};
use crate::{PrefixCache, Salt, Session};
use naive_decode::break_it::{Bench, BreakIt, Side, Trial, same_logits};
use naive_decode::{Decoder, Error, Result};

/// Tokens after the prompt at which the request has to wait.
const AFTER: usize = 22;

/// A request that is preempted once.
struct Preempted {
    inner: Sharing,
    side: Side,
    /// Length of the prompt; none before it has been read.
    prompt: Option<usize>,
    /// Tokens after the prompt at which it has to wait, if it does.
    after: Option<usize>,
}

impl Preempted {
    fn new(bench: &Bench, side: Side, after: Option<usize>) -> Result<Self> {
        let pool = pool(&bench.model, 3 * bench.model.context(), tree()?)?;
        let inner = Sharing::new(pool, |_, _| Ok(()));
        Ok(Preempted { inner, side, prompt: None, after })
    }

    // ANCHOR: fault
    /// The request gives its blocks up; the full ones stay known. It comes back, and finds them: more than its
    /// prompt, for it had said something.
    ///
    /// The broken side reads what is missing of the *prompt*. A range that ends before it begins is out of
    /// bounds in one language and empty in another; here it is empty, and the last words are lost.
    fn wait_and_come_back(&mut self, prompt: usize) -> Result<()> {
        let pool = &mut self.inner.pool;
        let session = self.inner.session.take().expect("its prompt has been read");
        let text = session.text.clone();
        pool.end(session)?;
        if self.side == Side::Clean {
            self.inner.session = Some(pool.begin(Salt::NONE, &text)?.0);
            return Ok(());
        }
        let (blocks, _) = pool.executor.attention.parts();
        let prefix = pool.prefixes.cache_mut().find(Salt::NONE, &text, blocks);
        let found = prefix.tokens;
        let sequence = pool.executor.attention.adopt(&prefix.blocks, found)?;
        let known = text[..found].to_vec();
        let mut session = Session { salt: Salt::NONE, sequence, text: known, found };
        let missing = &text[found..prompt.max(found)];
        if !missing.is_empty() {
            pool.feed(&mut session, missing)?;
        }
        self.inner.session = Some(session);
        Ok(())
    }
    // ANCHOR_END: fault

    /// Tokens in the cache.
    fn held(&self) -> usize {
        self.inner.session.as_ref().map_or(0, |session| session.text.len())
    }
}

impl Decoder for Preempted {
    fn feed(&mut self, tokens: &[u32]) -> Result<Vec<f32>> {
        match self.prompt {
            None => self.prompt = Some(tokens.len()),
            Some(prompt) if self.after == Some(self.held() - prompt) => {
                self.wait_and_come_back(prompt)?
            }
            Some(_) => {}
        }
        self.inner.feed(tokens)
    }

    fn capacity(&self) -> usize {
        self.inner.capacity()
    }

    fn rows(&self) -> usize {
        self.inner.rows()
    }

    fn kv_bytes_per_token(&self) -> usize {
        self.inner.kv_bytes_per_token()
    }
}

/// A preempted request finds its own blocks, which hold more than its prompt.
pub const PREEMPTED_HIT: BreakIt = BreakIt {
    name: "preempted-hit",
    package: "prefix-radix",
    cites: &["GeeeekExplorer/nano-vllm#211", "GeeeekExplorer/nano-vllm#233"],
    symptom: "a request that had to wait has forgotten its last few words; or the server has crashed",
    guard: "after it has come back, a request has as many tokens in the cache as it had before",
    weaker_test: Some(
        "a request that is preempted before it has said anything goes on with the naive loop's logits",
    ),
    run: |bench| {
        let decoder = |side| -> Result<Box<dyn Decoder>> {
            Ok(Box::new(Preempted::new(bench, side, Some(AFTER))?))
        };
        let guard = |side| {
            let (mut request, before) = begun(bench, side, AFTER)?;
            request.wait_and_come_back(before - AFTER)?;
            match request.held() == before {
                true => Ok(()),
                false => {
                    let expected = format!("{before}, as before it had to wait");
                    Err(Error::invalid("tokens in the cache", request.held(), expected))
                }
            }
        };
        let weaker = |side| {
            let (mut request, before) = begun(bench, side, 0)?;
            request.wait_and_come_back(before)?;
            let next = bench.prompt[before];
            let found = request.inner.feed(&[next])?;
            let expected = bench.naive_logits(&bench.prompt[..=before])?;
            same_logits("logits after coming back", &found, &expected, "as the naive loop has it")
        };
        Trial {
            about: &PREEMPTED_HIT,
            tokens: TOKENS,
            decoder: &decoder,
            guard: &guard,
            weaker_test: Some(&weaker),
            recall: None,
        }
        .run_until_it_shows(bench)
    },
};

/// A request whose prompt is the first half of the bench's, and that has said `said` tokens, which are the
/// next; with how many tokens that are.
fn begun(bench: &Bench, side: Side, said: usize) -> Result<(Preempted, usize)> {
    let mut request = Preempted::new(bench, side, None)?;
    let prompt = bench.prompt.len() / 2;
    request.feed(&bench.prompt[..prompt])?;
    for token in bench.prompt[prompt..prompt + said].chunks(1) {
        request.feed(token)?;
    }
    Ok((request, prompt + said))
}
