//! A client has gone, and its request goes on.

use super::scene::{engine, read, same_text, submit};
use crate::engine::{Engine, EngineRequest, Ticket};
use naive_decode::break_it::{Bench, BreakIt, Side, Written};
use naive_decode::{Error, Result};

/// Tokens that the client who stays asks for, and the passes that it waits for them.
const TOKENS: usize = 60;
const PASSES: usize = 90;

/// Tokens that the client who goes has asked for.
const ASKED: usize = 300;

/// Passes before the other one goes.
const BEFORE: usize = 10;

// ANCHOR: fault
/// What a front does when a client's connection is gone. On the broken side whoever writes the answer keeps the
/// ticket and goes on reading, for a connection that nobody listens to.
fn connection_closed(ticket: Ticket, side: Side) -> Option<Ticket> {
    match side {
        Side::Clean => None,
        Side::Broken => Some(ticket),
    }
}
// ANCHOR_END: fault

/// A client has gone, and the blocks of its request are kept.
pub const BLOCKS_KEPT: BreakIt = BreakIt {
    name: "blocks-kept",
    package: "serving",
    cites: &["ROCm/ATOM#1562", "vllm-project/vllm#32439"],
    symptom: "every answer is right, and later than it should be; the pool is full of texts that nobody reads",
    guard: "one step after a client has gone, as many blocks are in use as before it came",
    weaker_test: Some(
        "whoever stays, and waits as long as it takes, has the tokens that he has alone",
    ),
    run: |bench| {
        let served = |side| served(bench, side, PASSES);
        let guard = |side| {
            let mut engine = engine(bench, 2 * bench.model.context(), 1)?;
            let _kept = client_goes(&mut engine, bench, side)?;
            engine.step()?;
            match engine.state().blocks.used() {
                0 => Ok(()),
                used => Err(Error::invalid("blocks in use once the client has gone", used, "0")),
            }
        };
        let weaker = |side| {
            let alone = self::served(bench, Side::Clean, usize::MAX)?;
            same_text("the text", &self::served(bench, side, usize::MAX)?, &alone)
        };
        Written {
            about: &BLOCKS_KEPT,
            prompt: &bench.prompt,
            clean: &served(Side::Clean)?,
            broken: &served(Side::Broken)?,
            guard: &guard,
            weaker_test: Some(&weaker),
        }
        .report(bench)
    },
};

/// A client comes, and goes before its text is done.
fn client_goes(engine: &mut Engine, bench: &Bench, side: Side) -> Result<Option<Ticket>> {
    let prompt = bench.tokenizer.encode(&Bench::tale(7))?;
    let ticket = submit(engine, EngineRequest::new(prompt, ASKED))?;
    for _ in 0..BEFORE {
        engine.step()?;
    }
    Ok(connection_closed(ticket, side))
}

/// What a second client has after so many passes.
fn served(bench: &Bench, side: Side, passes: usize) -> Result<Vec<u32>> {
    let mut engine = engine(bench, 2 * bench.model.context(), 1)?;
    let mut kept = client_goes(&mut engine, bench, side)?;
    let mut second = submit(&engine, EngineRequest::new(bench.prompt.clone(), TOKENS))?;
    let mut text = Vec::new();
    for _ in 0..passes {
        if let crate::engine::Step::Idle(_) = engine.step()? {
            break;
        }
        kept.as_mut().map(read);
        text.extend(read(&mut second));
    }
    Ok(text)
}
