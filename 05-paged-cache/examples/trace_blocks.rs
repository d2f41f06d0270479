//! Writes what a small pool goes through, for the block-table stepper of the book's chapter 5.
//!
//!     cargo run --release -p paged-cache --example trace_blocks > 05-paged-cache/traces/blocks.json
//!
//! The cache is the real one, and so is the model, though it is small and its weights are random. What a step
//! shows is read out of the cache after it. Only the words are written by hand.

use anyhow::{Result, ensure};
use kv_cache::KvCache;
use naive_decode::{Config, CpuExecutor, Executor, LoadOptions, Model, Pass, Span, Want};
use paged_cache::{Behind, BlockId, Layout, PagedCache, Room};
use serde::Serialize;
use std::sync::Arc;

/// Tokens of a block, few enough to draw.
const BLOCK: usize = 4;
const BLOCKS: usize = 12;

#[derive(Serialize)]
struct Trace {
    kind: &'static str,
    command: &'static str,
    block_tokens: usize,
    frames: Vec<Frame>,
}

#[derive(Serialize)]
struct Frame {
    event: String,
    /// By block: how many tables hold it.
    references: Vec<u32>,
    sequences: Vec<Sequence>,
}

#[derive(Serialize)]
struct Sequence {
    name: &'static str,
    tokens: usize,
    table: Vec<u32>,
}

/// A pool, who is in it, and what has happened.
struct Story {
    executor: CpuExecutor<PagedCache>,
    /// Names and sequences, in the order in which they came.
    inside: Vec<(&'static str, usize)>,
    frames: Vec<Frame>,
}

#[allow(dead_code, reason = "the test of the kept trace uses the rest of this file")]
fn main() -> Result<()> {
    print!("{}", trace()?);
    Ok(())
}

/// The whole trace as JSON.
pub(crate) fn trace() -> Result<String> {
    let mut story = Story::new()?;
    story.tell("The pool is empty: twelve blocks with room for four tokens each.")?;
    story.open("A", 10)?;
    story.tell(
        "A comes with a prompt of ten tokens and takes three blocks. The last has room for two \
         more.",
    )?;
    story.open("B", 5)?;
    story.tell(
        "B comes with five. Its second block holds a single token, and three slots wait. It never \
         gets worse than that: what a request wastes is less than one block.",
    )?;
    story.pass(&["A", "B"])?;
    story.pass(&["A", "B"])?;
    story.tell("Two passes, each with a token for both. There was room in their last blocks.")?;
    story.pass(&["A", "B"])?;
    story.tell(
        "A's blocks were full, so its thirteenth token takes another: 5, which is not beside A's \
         others.",
    )?;
    story.fork("A", "A′")?;
    story.tell(
        "A second way to go on from A's text: A′ gets a copy of A's table. Four blocks now have \
         two holders. No key or value was copied, and no block taken.",
    )?;
    story.pass(&["A", "A′"])?;
    story.tell(
        "Both go on, each with a token of its own, in a block that they share. A writes first, so \
         A gets a copy of block 5, in block 6. Then A′ holds block 5 alone and writes where it \
         is.",
    )?;
    story.close("B")?;
    story.tell("B ends. Nobody else holds its two blocks, so they are free.")?;
    story.open("C", 14)?;
    story.tell(
        "C comes with fourteen tokens. What was given back last is given out first: 4, then 3, \
         then two that were never used. The order means nothing.",
    )?;
    for _ in 0..2 {
        story.pass(&["A", "A′", "C"])?;
    }
    story.tell("Two more passes. All blocks in use are full to the last slot.")?;
    story.pass(&["A", "A′", "C"])?;
    story.tell("Each takes a block for its next token. That was the last free one.")?;
    for _ in 0..3 {
        story.pass(&["A", "A′", "C"])?;
    }
    story.tell(
        "Three passes later each needs a block again, and there is none. Somebody has to wait.",
    )?;
    ensure!(story.pass(&["A", "A′", "C"]).is_err(), "the pool was to be full");
    story.close("C")?;
    story.tell(
        "C is the youngest, and gives up its five blocks. What it has been asked and has answered \
         so far is kept, as tokens: 21 numbers, of which the last has not been through the model.",
    )?;
    story.pass(&["A", "A′"])?;
    story.tell("Now there is room for the other two.")?;
    story.close("A")?;
    story.tell(
        "A ends. The blocks that it had for itself are free. Those that it shared are not: A′ \
         still holds them.",
    )?;
    story.open("C", 21)?;
    story.tell(
        "C comes back. All of its tokens go through the model in one pass, and get other blocks \
         than before. What it answers is what it would have answered.",
    )?;
    story.close("A′")?;
    story.close("C")?;
    story.tell("Both end, and nothing is left: every block is free.")?;
    let command = "cargo run --release -p paged-cache --example trace_blocks";
    let trace = Trace { kind: "blocks", command, block_tokens: BLOCK, frames: story.frames };
    Ok(serde_json::to_string_pretty(&trace)? + "\n")
}

impl Story {
    fn new() -> Result<Self> {
        let json = r#"{"architectures": ["LlamaForCausalLM"], "hidden_size": 16, "num_hidden_layers": 2,
            "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8, "intermediate_size": 24,
            "vocab_size": 61, "rms_norm_eps": 1e-5, "max_position_embeddings": 64,
            "tie_word_embeddings": true}"#;
        let config = Config::from_json("config.json", json.as_bytes())?;
        let model = Arc::new(Model::random(config, 7, LoadOptions::default())?);
        let (kept, behind) = (model.kv_element.into(), Behind::Kept);
        let bytes = BLOCKS * Layout::new(&model, BLOCK, kept, behind)?.block_bytes();
        let room = Room { bytes, block: BLOCK, capacity: 64, kept, behind, rollback: 0 };
        let attention = PagedCache::new(&model, room)?;
        let executor = CpuExecutor { model, attention };
        Ok(Story { executor, inside: Vec::new(), frames: Vec::new() })
    }

    /// A new request, whose prompt goes through the model at once.
    fn open(&mut self, name: &'static str, prompt: usize) -> Result<()> {
        let sequence = self.executor.attention.open();
        self.inside.push((name, sequence));
        self.run(&[(name, prompt)])
    }

    fn fork(&mut self, from: &str, name: &'static str) -> Result<()> {
        let sequence = self.executor.attention.fork(self.sequence(from))?;
        self.inside.push((name, sequence));
        Ok(())
    }

    fn close(&mut self, name: &str) -> Result<()> {
        self.executor.attention.close(self.sequence(name))?;
        self.inside.retain(|&(inside, _)| inside != name);
        Ok(())
    }

    /// One token for each.
    fn pass(&mut self, names: &[&str]) -> Result<()> {
        let rows: Vec<_> = names.iter().map(|&name| (name, 1)).collect();
        self.run(&rows)
    }

    /// So many tokens for each; which ones does not matter to blocks.
    fn run(&mut self, rows: &[(&str, usize)]) -> Result<()> {
        let span = |&(name, count): &(&str, usize)| {
            let sequence = self.sequence(name);
            let start = self.executor.attention.len(sequence);
            let token = |place: usize| (7 * place + sequence) as u32 % 61;
            let tokens: Vec<u32> = (start..start + count).map(token).collect();
            Span::new(sequence, start, &tokens, Want::Last)
        };
        let spans = rows.iter().map(span).collect();
        self.executor.execute(&Pass { spans })?;
        Ok(())
    }

    fn sequence(&self, name: &str) -> usize {
        let found = self.inside.iter().find(|&&(inside, _)| inside == name);
        found.expect("a name of somebody inside").1
    }

    /// Notes what the cache looks like now.
    fn tell(&mut self, event: &str) -> Result<()> {
        let cache = &self.executor.attention;
        cache.check_integrity([])?;
        let blocks = cache.blocks();
        let references =
            (0..BLOCKS as u32).map(|block| blocks.references(BlockId(block))).collect();
        let sequence = |&(name, sequence): &(&'static str, usize)| -> Result<Sequence> {
            let table = cache.tables(sequence)?.held().map(|block| block.0).collect();
            Ok(Sequence { name, tokens: cache.len(sequence), table })
        };
        let sequences = self.inside.iter().map(sequence).collect::<Result<_>>()?;
        self.frames.push(Frame { event: event.into(), references, sequences });
        Ok(())
    }
}
