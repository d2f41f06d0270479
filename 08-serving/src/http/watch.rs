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
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
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

impl Told<'_> {
    /// `ends`: whether the server does, which the engine tells with its next pass, and where it has nothing to do there is none.
    fn of(app: &App, ends: bool) -> Option<Arc<str>> {
        let mut engine = app.engine.state();
        if ends {
            Arc::make_mut(&mut engine).draining = true;
        }
        let (model, context) = (app.name.as_str(), app.limits().context);
        let told = Told { model, context, engine: &engine, recent: app.metrics.recent() };
        serde_json::to_string(&told).ok().map(Arc::from)
    }
}

/// What was told last, and when: however many watch, it is written down once.
#[derive(Default)]
pub(super) struct LastTold(Mutex<Option<(Instant, Arc<str>)>>);

impl LastTold {
    fn of(&self, app: &App) -> Option<Arc<str>> {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, json)) = last.as_ref().filter(|(when, _)| when.elapsed() < EVERY / 2) {
            return Some(json.clone());
        }
        let json = Told::of(app, false)?;
        *last = Some((Instant::now(), json.clone()));
        Some(json)
    }
}

/// The engine's state, whenever it has changed. The last one says that the server ends.
#[utoipa::path(
    get, path = "/state", tag = "server",
    responses((status = 200, description = "Events, each the engine's state as JSON", content_type = "text/event-stream")),
)]
pub(super) async fn state(State(app): State<Arc<App>>) -> impl IntoResponse {
    let mut ticks = interval(EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let events = unfold(Some((app, ticks, Arc::from(""))), async |watching| {
        let (app, mut ticks, mut last) = watching?;
        loop {
            let ends = tokio::select! {
                () = app.draining() => true,
                _ = ticks.tick() => false,
            };
            let json = if ends { Told::of(&app, true)? } else { app.last_told.of(&app)? };
            if ends || json != last {
                last = json;
                let event: Result<Event, Infallible> = Ok(Event::default().data(&last));
                return Some((event, (!ends).then_some((app, ticks, last))));
            }
        }
    });
    sent_at_once(Sse::new(events).keep_alive(KeepAlive::default()))
}
