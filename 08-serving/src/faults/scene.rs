//! An engine stepped by hand.

use crate::engine::{Engine, EngineOptions, EngineRequest, Event, Ticket};
use naive_decode::break_it::Bench;
use naive_decode::{Error, Result};
use paged_cache::Room;

/// An engine with a pool for so many tokens that runs so many requests at once, and guesses nothing: what
/// a step does is then always the same.
pub(super) fn engine(bench: &Bench, tokens: usize, running: usize) -> Result<Engine> {
    let pool_bytes = Room::for_tokens(&bench.model, tokens)?.bytes;
    let options = EngineOptions::for_model(&bench.model)?;
    let options = EngineOptions { pool_bytes, running, draft: 0, ..options };
    Engine::new(bench.model.clone(), options)
}

/// Hands a request in.
pub(super) fn submit(engine: &Engine, request: EngineRequest) -> Result<Ticket> {
    let expected = "one that the engine takes";
    engine.submit(request).map_err(|refused| Error::invalid("a request", refused, expected))
}

/// The tokens that have come.
pub(super) fn read(ticket: &mut Ticket) -> Vec<u32> {
    let mut tokens = Vec::new();
    while let Ok(event) = ticket.try_recv() {
        if let Event::Token(token) = event {
            tokens.push(token.token);
        }
    }
    tokens
}

/// Both texts are the same.
pub(super) fn same_text(what: &str, found: &[u32], expected: &[u32]) -> Result<()> {
    let differ = found.iter().zip(expected).position(|(a, b)| a != b);
    match differ.or((found.len() != expected.len()).then(|| found.len().min(expected.len()))) {
        None => Ok(()),
        Some(at) => {
            let token = |text: &[u32]| text.get(at).map_or("none".into(), u32::to_string);
            let expected = format!("{}, as alone", token(expected));
            Err(Error::invalid(format!("token {at} of {what}"), token(found), expected))
        }
    }
}
