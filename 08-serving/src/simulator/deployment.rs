//! Everything that a run depends on.

use super::hardware::Hardware;
use super::model::SimulatedModel;
use super::pass_time::PassTime;
use crate::engine::policy::{Budget, Policy};
use naive_decode::{Error, Result};
use std::sync::Arc;

/// Blocks of a pool, at most: more than any text needs, and far from where counting overflows.
const MOST_BLOCKS: f64 = 1e12;

/// Rows of a pass, requests at once, guesses, at most.
const MOST_ROWS: usize = 1 << 20;
const MOST_DRAFT: usize = 64;

/// A model on its hardware, behind a scheduler.
#[derive(Debug, Clone)]
pub struct Deployment {
    /// What is served.
    pub model: SimulatedModel,
    /// What it runs on.
    pub hardware: Hardware,
    /// How long passes take there.
    pub pass_time: PassTime,
    /// Who runs next: the same code as in the engine.
    pub policy: Arc<dyn Policy>,
    /// What a pass may take, at most.
    pub budget: Budget,
    /// Tokens of a block.
    pub block: usize,
    /// Tokens that the pool has room for; all memory that the weights leave if not said.
    pub pool_tokens: Option<usize>,
    /// Guesses, if there are any.
    pub speculation: Speculation,
}

/// Somebody guesses ahead.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Speculation {
    /// Tokens guessed for each text, at most; 0 for none.
    pub draft: usize,
    /// How often a guess comes true, if those before it have.
    pub acceptance: f64,
    /// Time to guess one token, as a part of the target's pass over the texts' last tokens.
    pub cost: f64,
}

impl Speculation {
    /// Nobody guesses.
    pub const NONE: Speculation = Speculation { draft: 0, acceptance: 0.0, cost: 0.0 };
}

impl Deployment {
    /// # Errors
    /// Names the first number that nothing could be computed with.
    pub fn check(&self) -> Result<()> {
        self.hardware.check()?;
        let within = |what: &str, found: usize, least: usize, most: usize| match (least..=most)
            .contains(&found)
        {
            true => Ok(()),
            false => Err(Error::invalid(what, found, format!("{least} to {most}"))),
        };
        within("requests that run at once", self.budget.running, 1, MOST_ROWS)?;
        within("rows of a pass", self.budget.rows, self.budget.running, MOST_ROWS)?;
        within("tokens of a block", self.block, 1, MOST_ROWS)?;
        within("tokens to guess ahead", self.speculation.draft, 0, MOST_DRAFT)?;
        let Speculation { acceptance, cost, .. } = self.speculation;
        for (what, found, most) in
            [("acceptance", acceptance, 1.0), ("cost of a guess", cost, 100.0)]
        {
            if !(0.0..=most).contains(&found) {
                return Err(Error::invalid(what, found, format!("0 to {most}")));
            }
        }
        Ok(())
    }

    /// Bytes that the weights leave; below nothing if they do not fit.
    pub fn room(&self) -> f64 {
        self.hardware.memory_bytes - self.model.weight_bytes
    }

    /// Blocks of the pool.
    ///
    /// # Errors
    /// If the weights do not fit, or the pool beside them, or not one block.
    pub fn blocks(&self) -> Result<usize> {
        let memory = self.hardware.memory_bytes;
        if self.room() < 0.0 {
            let found = format!("{:.1} GB", self.model.weight_bytes / 1e9);
            let expected = format!(
                "at most the {:.1} GB of {} (more cards, fewer bits a weight, or a smaller model)",
                memory / 1e9,
                self.hardware.name
            );
            return Err(Error::invalid(
                format!("memory for the weights of {}", self.model.name),
                found,
                expected,
            ));
        }
        let block_bytes = self.block as f64 * self.model.kv_bytes_per_token();
        let fit = (self.room() / block_bytes).floor().min(MOST_BLOCKS) as usize;
        let blocks = match self.pool_tokens {
            Some(tokens) => tokens.div_ceil(self.block),
            None => fit,
        };
        if blocks > fit {
            let expected = format!("at most the {} that fit beside the weights", fit * self.block);
            return Err(Error::invalid("tokens of the pool", blocks * self.block, expected));
        }
        match blocks {
            0 => Err(Error::invalid("blocks of the pool", 0, "at least 1")),
            _ => Ok(blocks),
        }
    }

    /// Most tokens of a prompt and its answer together.
    ///
    /// # Errors
    /// As [`Deployment::blocks`].
    pub fn longest(&self) -> Result<usize> {
        Ok(self.model.context.min(self.blocks()?.saturating_mul(self.block)))
    }
}
