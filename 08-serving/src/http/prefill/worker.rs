//! `POST /prefill`: keys and values of a prompt, for a server that writes the answer.

use super::{Ask, seal};
use crate::api::ApiError;
use crate::engine::{BlocksOf, EngineHandle, EngineRequest, Exchanged, Ticket};
use crate::http::App;
use crate::http::auth::Tenant;
use crate::http::pieces::refusal;
use axum::body::{Body, Bytes};
use axum::extract::{Extension, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use paged_cache::offload::Key;
use prefix_radix::Salt;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Instant;

/// Bytes that are copied out of the pool at a time, if a block is no larger. That happens between passes, so it has to be as
/// much as a pass makes, or blocks would wait for the prompt's end: 256 rows of an eight-billion model make 32 MiB.
const AT_A_TIME: usize = 32 << 20;

/// Reads a prompt, and gives its blocks as they come to be.
pub(in crate::http) async fn prefill(
    State(app): State<Arc<App>>,
    Extension(tenant): Extension<Tenant>,
    body: Bytes,
) -> Result<Response, ApiError> {
    let deadline = app.deadline(Instant::now());
    let (ask, exchanged) = app.work(body, |app, body| prepare(app, body)).await?;
    // Whoever asks may name any salt, so what he asks for is kept apart from what others of his key have said here.
    let salt = tenant.salt_of_peer(&ask.salt);
    let request = EngineRequest { salt, ..EngineRequest::reading(ask.tokens.clone()) };
    let ticket = app.engine.submit(EngineRequest { deadline, ..request });
    let ticket = ticket.map_err(|refused| refusal(refused, "tokens"))?;
    let lending = Lending::new(app.engine.clone(), exchanged, ticket, salt, &ask);
    let blocks = stream::unfold(lending, async |mut lending| {
        let block = lending.next().await?;
        Some((Ok::<_, Infallible>(block), lending))
    });
    let kind = [(header::CONTENT_TYPE, "application/octet-stream")];
    Ok((kind, Body::from_stream(blocks)).into_response())
}

fn prepare(app: &App, body: &[u8]) -> Result<(Ask, Exchanged), ApiError> {
    let ask: Ask = serde_json::from_slice(body).map_err(|problem| {
        let message = format!("the body is no question for a prefill worker: {problem}");
        ApiError::refused(StatusCode::BAD_REQUEST, message)
    })?;
    let exchanged = app.engine.exchanged().filter(|here| here.fingerprint == ask.fingerprint);
    let Some(exchanged) = exchanged else {
        let message = "keys and values here are of another model, other weights, or another --kv or program, \
            expected the same on both sides";
        return Err(ApiError::refused(StatusCode::CONFLICT, message));
    };
    let block = exchanged.block_tokens;
    let whole = ask.tokens.len() / block * block;
    if ask.tokens.is_empty() || whole < ask.tokens.len() {
        let expected = format!("some blocks of {block}");
        return Err(ApiError::value("tokens", format!("{} tokens", ask.tokens.len()), &expected));
    }
    if ask.known >= whole / block {
        let expected = format!("fewer than the {} blocks of the text", whole / block);
        return Err(ApiError::value("known", ask.known, &expected));
    }
    Ok((ask, exchanged))
}

/// Blocks on their way out. When this is dropped, the request is cancelled.
struct Lending {
    engine: EngineHandle,
    _ticket: Ticket,
    wanted: BlocksOf,
    /// Names of the blocks from the first that is wanted on.
    names: std::vec::IntoIter<Key>,
    /// Blocks that have come out of the pool and are not sent yet.
    ready: std::vec::IntoIter<Vec<u8>>,
}

impl Lending {
    fn new(
        engine: EngineHandle,
        exchanged: Exchanged,
        ticket: Ticket,
        salt: Salt,
        ask: &Ask,
    ) -> Self {
        // As the other side has them, which knows nothing of the salt here.
        let names = exchanged.names(Salt(ask.salt), &ask.tokens, ask.known);
        let most = (AT_A_TIME / exchanged.block_bytes).max(1);
        let text = Arc::from(&ask.tokens[..]);
        let wanted = BlocksOf { request: ticket.id(), salt, text, from: ask.known, most };
        let (names, ready) = (names.into_iter(), Vec::new().into_iter());
        Lending { engine, _ticket: ticket, wanted, names, ready }
    }

    /// The next block with its checksum; none after the last.
    async fn next(&mut self) -> Option<Bytes> {
        let name = self.names.next()?;
        if self.ready.len() == 0 {
            let ready = self.engine.blocks_of(self.wanted.clone()).await.unwrap_or_default();
            self.wanted.from += ready.len();
            self.ready = ready.into_iter();
        }
        let mut block = self.ready.next()?;
        // There is room for it: to copy megabytes once more would take as long as to send them.
        block.extend(seal(name, &block));
        Some(block.into())
    }
}
