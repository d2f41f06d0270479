//! `GET /state`: the engine as it runs, as server-sent events.

use super::App;
use super::events::sent_at_once;
use crate::engine::EngineState;
use axum::extract::State;
use axum::response::IntoResponse;
use axum::response::sse::{Event, KeepAlive, Sse};
use futures_util::stream::unfold;
use serde::Serialize;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{MissedTickBehavior, interval};

use super::metrics::Recent;

/// Between two looks.
const EVERY: Duration = Duration::from_millis(200);

/// What is told.
#[derive(Serialize)]
struct Told<'a> {
    model: &'a str,
    context: usize,
    #[serde(flatten)]
    engine: &'a EngineState,
    recent: Recent,
}

/// The engine's state, whenever it has changed. The last one says that the server ends.
#[utoipa::path(
    get, path = "/state", tag = "server",
    responses((status = 200, description = "Events, each the engine's state as JSON", content_type = "text/event-stream")),
)]
pub(super) async fn state(State(app): State<Arc<App>>) -> impl IntoResponse {
    let mut ticks = interval(EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let events = unfold(Some((app, ticks, String::new())), async |watching| {
        let (app, mut ticks, mut last) = watching?;
        loop {
            let ends = tokio::select! {
                () = app.draining() => true,
                _ = ticks.tick() => false,
            };
            let mut engine = app.engine.state();
            if ends {
                // The engine tells it with its next pass, and where it has nothing to do there is none.
                Arc::make_mut(&mut engine).draining = true;
            }
            let (model, context) = (app.name.as_str(), app.limits().context);
            let recent = app.metrics.recent();
            let json =
                serde_json::to_string(&Told { model, context, engine: &engine, recent }).ok()?;
            if ends || json != last {
                last.clone_from(&json);
                let event: Result<Event, Infallible> = Ok(Event::default().data(json));
                return Some((event, (!ends).then_some((app, ticks, last))));
            }
        }
    });
    sent_at_once(Sse::new(events).keep_alive(KeepAlive::default()))
}
