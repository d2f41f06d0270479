//! How much a device is to hold.

use crate::forward::Scratch;
use crate::graphs::{LAUNCH_BYTES, StepSize};
use crate::memory::BlockShape;
use crate::rehearsal;
use crate::shared::failed;
use crate::staging::most_bytes;
use crate::weights::{Weights, check};
use cuda_kernels::cache::BLOCK_TOKENS;
use naive_decode::{Config, Error, Result};

/// Positions that attention's kernels count. What is set aside for so many is still a number of bytes.
const MOST_POSITIONS: usize = 1 << 30;

/// How much a device is to hold beside the weights.
#[derive(Debug, Clone, Copy)]
pub struct Room {
    /// Tokens of keys and values in all; rounded up to whole blocks.
    pub tokens: usize,
    /// Most tokens of one sequence; at most the model's context, and 2^30.
    pub capacity: usize,
    /// Most rows of a pass; at most 65,535, and fewer where a matrix has so many outputs that their product is 2^31.
    pub rows: usize,
}

impl Room {
    /// Whether a model's passes can be run in it.
    ///
    /// # Errors
    /// If the kernels do not fit the model's sizes, the room is empty, or its passes have more rows than can be launched; names
    /// what does not fit.
    pub(crate) fn check(&self, config: &Config) -> Result<()> {
        if self.tokens == 0 || self.rows == 0 || self.capacity == 0 {
            return Err(Error::invalid("room on the device", format!("{self:?}"), "none of it 0"));
        }
        if self.capacity > MOST_POSITIONS {
            let expected = format!("at most {MOST_POSITIONS}, what attention's kernels count");
            return Err(Error::invalid(
                "tokens of a sequence on the device",
                self.capacity,
                expected,
            ));
        }
        rehearsal::check_rows(config, self.rows)
    }

    /// Bytes of a device's memory that a model and this room for it take together: what is set aside at the start, and what
    /// recorded steps take as they come. Not in it is what a Hopper tries its own kernels for prompts with
    /// ([`PromptKernels`](crate::PromptKernels)), less than two megabytes.
    ///
    /// # Errors
    /// If the kernels do not fit the model's sizes, the room is empty, or its passes have more rows than can be launched; names
    /// what does not fit.
    pub fn bytes(&self, config: &Config) -> Result<usize> {
        let heads = check(config)?;
        self.check(config)?;
        let pool = self.tokens.div_ceil(BLOCK_TOKENS) * BlockShape::of(config, heads).bytes();
        let turns = self.capacity * heads.wide * size_of::<f32>();
        let staged = most_bytes(self.rows, self.capacity);
        let mut bytes = Weights::bytes(config, heads) + turns + staged + pool;
        let mut count = |more: usize| {
            bytes += more;
            Ok(0)
        };
        Scratch::new(&mut count, config, heads, (self.rows, self.capacity)).map_err(failed)?;
        Ok(bytes + self.recorded_bytes(config)?)
    }

    /// Bytes that steps may take once one of every size has been recorded.
    ///
    /// # Errors
    /// If the kernels do not fit the model's sizes; names what does not.
    pub fn recorded_bytes(&self, config: &Config) -> Result<usize> {
        let launches = rehearsal::launches(config, 1)?.len();
        Ok(StepSize::count(self.rows, self.capacity) * launches * LAUNCH_BYTES)
    }
}
