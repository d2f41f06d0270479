//! `GET /kv-events`: which blocks of earlier texts are known, as server-sent events.
//!
//! The first event says what a block is. What follows up to the first change is all that is known now; whatever an earlier
//! connection has told is not to be relied on any more. The stream ends when its reader falls behind: he asks again.

use super::App;
use super::events::sent_at_once;
use crate::api::ApiError;
use crate::engine::KvEvents;
use axum::extract::State;
use axum::response::IntoResponse;
use axum::response::sse::{Event, KeepAlive, Sse};
use futures_util::stream::{self, Stream, StreamExt};
use paged_cache::offload::Key;
use prefix_radix::KvEvent;
use serde::Serialize;
use std::convert::Infallible;
use std::sync::Arc;
use tokio::sync::OwnedSemaphorePermit;

/// Where it is asked.
pub(super) const PATH: &str = "/kv-events";

/// Those who may listen at a time: each may leave hundreds of steps unread.
pub(super) const MOST_LISTENERS: usize = 32;

// ANCHOR: line
/// What is told.
#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Told<'a> {
    /// Blocks have so many tokens, and there is room for so many of them.
    Begin { block_tokens: usize, blocks: usize },
    /// These are known from now on, each after the one before it, the first after `parent`.
    Stored { parent: Option<String>, blocks: Vec<String>, tokens: &'a [u32] },
    /// These are not any more.
    Removed { blocks: Vec<String> },
}
// ANCHOR_END: line

impl<'a> Told<'a> {
    fn of(event: &'a KvEvent) -> Self {
        let names = |blocks: &[Key]| blocks.iter().map(name).collect();
        match event {
            KvEvent::Stored { parent, blocks, tokens } => {
                Told::Stored { parent: parent.as_ref().map(name), blocks: names(blocks), tokens }
            }
            KvEvent::Removed { blocks } => Told::Removed { blocks: names(blocks) },
        }
    }

    fn event(&self) -> Result<Event, Infallible> {
        // Numbers and strings can always be written.
        Ok(Event::default().data(serde_json::to_string(self).unwrap_or_default()))
    }
}

/// A block's name, in hexadecimal digits.
fn name(key: &Key) -> String {
    blake3::Hash::from(key.0).to_hex().to_string()
}

/// What is known, and what changes of it.
///
/// # Errors
/// 429 if [`MOST_LISTENERS`] listen already.
pub(super) async fn kv_events(State(app): State<Arc<App>>) -> Result<impl IntoResponse, ApiError> {
    let place = app.kv_listeners.clone().try_acquire_owned().map_err(|_| {
        ApiError::full(format!(
            "{MOST_LISTENERS} routers listen to {PATH} already, the most that may"
        ))
    })?;
    let blocks = app.engine.state().blocks;
    let begin = Told::Begin { block_tokens: blocks.tokens, blocks: blocks.total }.event();
    let changes = changes(app.engine.kv_events(), place);
    let until_drained = changes.take_until(async move { app.draining().await });
    let events = stream::iter([begin]).chain(until_drained);
    Ok(sent_at_once(Sse::new(events).keep_alive(KeepAlive::default())))
}

/// What a listener is told; the place is his as long as the stream is.
fn changes(
    events: KvEvents,
    place: OwnedSemaphorePermit,
) -> impl Stream<Item = Result<Event, Infallible>> {
    let steps = stream::unfold((events, place), async |(mut events, place)| {
        Some((events.recv().await?, (events, place)))
    });
    // Each line when it is its turn: the first step has all that is known.
    steps.flat_map(|step| stream::iter((0..step.len()).map(move |i| Told::of(&step[i]).event())))
}
