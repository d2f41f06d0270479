//! A fork that writes where its twin reads.

use super::TOKENS;
use super::scene::Scene;
use crate::blocks::BlockId;
use kv_cache::KvCache;
use naive_decode::break_it::{Bench, BreakIt, Side, Trial, same_logits};
use naive_decode::{Decoder, Executor, Pass, Result, Span, Want, argmax};
use ndarray::Axis;

/// Two samples of one prompt, side by side in every pass. The one that is decoded here takes what it is fed;
/// its twin begins with the second best token and goes on by itself.
struct Twins {
    scene: Scene,
    side: Side,
    /// The twin, and the token that it is to be fed; none before the prompt has been run.
    twin: Option<(usize, u32)>,
}

impl Twins {
    // ANCHOR: fault
    /// The prompt's blocks in a second table. The broken side forgets to count that: so nobody knows that the
    /// last block, which is not full yet, has two who write to it.
    fn fork(&mut self) -> Result<usize> {
        let sequence = self.scene.sequence;
        let twin = self.scene.cache().fork(sequence)?;
        if self.side == Side::Broken {
            let shared: Vec<BlockId> = self.scene.cache().tables(twin)?.held().collect();
            let (blocks, _) = self.scene.cache().parts();
            for block in shared {
                blocks.release(block);
            }
        }
        Ok(twin)
    }
    // ANCHOR_END: fault
}

impl Decoder for Twins {
    fn feed(&mut self, tokens: &[u32]) -> Result<Vec<f32>> {
        let Some((twin, next)) = self.twin else {
            let logits = self.scene.feed(tokens)?;
            self.twin = Some((self.fork()?, second_best(&logits)?));
            return Ok(logits);
        };
        let mut rows = Vec::new();
        // One by one, as they would be generated.
        for token in tokens.chunks(1) {
            let own = self.scene.sequence;
            let next = self.twin.map_or(next, |(_, next)| next);
            let span = |sequence, token: &[u32], cache: &mut crate::PagedCache| {
                Span::new(sequence, cache.len(sequence), token, Want::Last)
            };
            let cache = self.scene.cache();
            let spans = vec![span(own, token, cache), span(twin, &[next], cache)];
            self.scene.text.extend_from_slice(token);
            let logits = self.scene.executor.execute(&Pass { spans })?;
            self.twin = Some((twin, argmax(&logits.index_axis(Axis(0), 1).to_vec())?));
            rows = logits.index_axis(Axis(0), 0).to_vec();
        }
        Ok(rows)
    }

    fn capacity(&self) -> usize {
        self.scene.executor.model.context()
    }

    fn rows(&self) -> usize {
        2 * self.scene.text.len()
    }

    fn kv_bytes_per_token(&self) -> usize {
        self.scene.executor.attention.bytes_per_token()
    }
}

fn second_best(logits: &[f32]) -> Result<u32> {
    let mut others = logits.to_vec();
    others[argmax(logits)? as usize] = f32::NEG_INFINITY;
    argmax(&others)
}

/// A shared block is written without being copied first.
pub const SHARED_WRITE: BreakIt = BreakIt {
    name: "shared-write",
    package: "paged-cache",
    cites: &["Kwon et al. 2023, section 4.4"],
    symptom: "two samples of one prompt mix: each reads some of the other's tokens, up to a block's end",
    guard: "every block is in as many tables as it has references",
    weaker_test: Some("samples of a prompt that ends with a whole block are the naive loop's"),
    run: |bench| {
        let twins = |side| -> Result<Twins> {
            Ok(Twins { scene: Scene::new(&bench.model)?, side, twin: None })
        };
        let decoder = |side| -> Result<Box<dyn Decoder>> { Ok(Box::new(twins(side)?)) };
        let guard = |side| {
            let mut twins = twins(side)?;
            twins.feed(&bench.prompt)?;
            twins.scene.cache().check_integrity([])
        };
        let weaker = |side| whole_blocks(bench, &mut twins(side)?);
        Trial {
            about: &SHARED_WRITE,
            tokens: TOKENS,
            decoder: &decoder,
            guard: &guard,
            weaker_test: Some(&weaker),
            recall: None,
        }
        .run_until_it_shows(bench)
    },
};

/// A prompt that ends with a whole block, and a few tokens more.
fn whole_blocks(bench: &Bench, twins: &mut Twins) -> Result<()> {
    let whole = bench.prompt.len() / 16 * 16 - 16;
    twins.feed(&bench.prompt[..whole])?;
    let found = twins.feed(&bench.prompt[whole..whole + 4])?;
    let expected = bench.naive_logits(&twins.scene.text)?;
    same_logits("logits of a twin", &found, &expected, "as the naive loop has it")
}
