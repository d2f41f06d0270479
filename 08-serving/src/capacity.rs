//! How much is served at once, as arguments, by vLLM's names.

use crate::engine::{EngineOptions, Limits};
use crate::sizes::count;
use anyhow::{Result, ensure};
use clap::Args;
use std::num::NonZeroUsize;

/// How much is served at once.
#[derive(Debug, Clone, Copy, Default, Args)]
pub struct CapacityArgs {
    /// Most tokens of a prompt with its answer; as many as the model is for, or the pool holds if those are fewer, if not
    /// given. Models that turn long texts otherwise than short ones (Phi-3's longrope) are for long ones if that is asked for
    #[arg(long, value_name = "TOKENS", value_parser = count)]
    max_model_len: Option<NonZeroUsize>,
    /// Most requests that run at once; 32 if not given
    #[arg(long, value_name = "REQUESTS", value_parser = count)]
    max_num_seqs: Option<NonZeroUsize>,
    /// Most tokens that a pass reads and writes, of all requests together: more make prompts faster, and texts wait longer
    /// for each of their tokens; 256 on the processor and 1,024 on a GPU if not given
    #[arg(long, value_name = "TOKENS", value_parser = count)]
    max_num_batched_tokens: Option<NonZeroUsize>,
    /// Most requests that wait, besides one for each free place; more are refused (429). 256 if not given
    #[arg(long, value_name = "REQUESTS", value_parser = count)]
    max_queue: Option<NonZeroUsize>,
}

impl CapacityArgs {
    /// Checks what can be checked before a model is there.
    ///
    /// # Errors
    /// More requests in a pass than tokens.
    pub fn check(self) -> Result<()> {
        if let (Some(tokens), Some(requests)) = (self.max_num_batched_tokens, self.max_num_seqs) {
            ensure!(
                requests <= tokens,
                "--max-num-batched-tokens is {tokens}, expected at least {requests}: one token for each request \
                 of --max-num-seqs"
            );
        }
        Ok(())
    }

    /// Whether longer texts are asked for than this.
    pub fn is_longer_than(self, tokens: usize) -> bool {
        self.max_model_len.is_some_and(|asked| asked.get() > tokens)
    }

    /// Options with what was asked for, of a model for texts of `capacity` tokens, with so many bytes of keys and values to
    /// a token.
    ///
    /// # Errors
    /// Texts longer than the model is for.
    pub fn set(
        self,
        options: EngineOptions,
        capacity: usize,
        token_bytes: usize,
    ) -> Result<EngineOptions> {
        let context = self.max_model_len.map(NonZeroUsize::get);
        let asked = self.max_num_batched_tokens.map(NonZeroUsize::get);
        let running = self.max_num_seqs.map_or(options.running, NonZeroUsize::get);
        // Whoever names one of the two means it; the other gives way.
        let rows = asked.unwrap_or(options.rows.max(running));
        let pool_bytes = match context {
            // One text of that length fits in any case.
            Some(context) => {
                ensure!(
                    context <= capacity,
                    "--max-model-len is {context}, expected at most {capacity}: the model is for no more"
                );
                let usual = EngineOptions::for_texts(context, token_bytes).pool_bytes;
                usual.max(EngineOptions::pool_for(context, token_bytes))
            }
            None => options.pool_bytes,
        };
        let queue = self.max_queue.map_or(options.queue, NonZeroUsize::get);
        let running = running.min(rows);
        Ok(EngineOptions { context, rows, running, queue, pool_bytes, ..options })
    }

    /// Checks that texts may be as long as was asked for. If nothing was, gives what is to be said of a pool that makes
    /// them shorter than the model does.
    ///
    /// # Errors
    /// Texts longer than the pool holds.
    pub fn check_context(self, limits: &Limits, token_bytes: usize) -> Result<Option<String>> {
        let Limits { context, capacity, .. } = *limits;
        let bytes = EngineOptions::pool_for(capacity, token_bytes);
        if let Some(asked) = self.max_model_len.map(NonZeroUsize::get) {
            ensure!(
                asked <= context,
                "--max-model-len is {asked}, expected at most {context}: the pool holds no more; \
                 --pool-bytes {bytes} holds as many"
            );
        }
        Ok((context < capacity).then(|| {
            format!(
                "texts have {context} tokens at most, and the model is for {capacity}: the pool holds no more; \
                 --pool-bytes {bytes} holds as many, --max-model-len says how many there are to be"
            )
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOKEN_BYTES: usize = 1 << 17;

    fn set(args: CapacityArgs) -> EngineOptions {
        args.set(EngineOptions::for_texts(1 << 17, TOKEN_BYTES), 1 << 17, TOKEN_BYTES).unwrap()
    }

    #[test]
    fn whichever_is_named_is_kept_and_the_other_gives_way() {
        let usual = set(CapacityArgs::default());
        assert_eq!((usual.running, usual.rows, usual.queue), (32, 256, 256));
        let many = CapacityArgs { max_num_seqs: NonZeroUsize::new(500), ..Default::default() };
        assert_eq!((set(many).running, set(many).rows), (500, 500));
        let short =
            CapacityArgs { max_num_batched_tokens: NonZeroUsize::new(9), ..Default::default() };
        assert_eq!((set(short).running, set(short).rows), (9, 9));
        let both = CapacityArgs { max_num_seqs: NonZeroUsize::new(500), ..short };
        let said = both.check().unwrap_err().to_string();
        assert!(said.contains("--max-num-batched-tokens is 9, expected at least 500"), "{said}");
    }

    #[test]
    fn a_pool_has_room_for_a_text_of_the_length_that_was_asked_for() {
        let asked = |tokens| CapacityArgs {
            max_model_len: NonZeroUsize::new(tokens),
            ..Default::default()
        };
        assert_eq!(set(CapacityArgs::default()).pool_bytes, 2 << 30);
        assert_eq!(set(asked(1_000)).pool_bytes, 4_000 * TOKEN_BYTES);
        assert_eq!(set(asked(20_001)).pool_bytes, 20_016 * TOKEN_BYTES);
        assert_eq!(set(asked(20_001)).context, Some(20_001));
        let usual = set(CapacityArgs::default());
        let refused = asked(20_001).set(usual, 20_000, TOKEN_BYTES).err().unwrap().to_string();
        assert!(refused.contains("20001, expected at most 20000"), "{refused}");
    }
}
