//! Server-sent events: answers as they come.

use super::pieces::Pieces;
use crate::api::ApiError;
use crate::text::Piece;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::StreamExt;
use futures_util::stream::{once, poll_fn};
use serde::Serialize;
use std::convert::Infallible;
use std::future::ready;
use std::time::Duration;
use tokio::sync::mpsc::{self, Sender};
use tokio::time::timeout;

/// Events that wait for the connection.
const WAITING: usize = 16;

/// How long a client may leave everything unread. The engine has given up on the answer by then.
const PATIENCE: Duration = Duration::from_secs(120);

/// How pieces of answers are written as events.
pub(super) trait Format: Send + 'static {
    /// One event.
    type Event: Serialize + Send;

    /// What comes after the last, if anything does.
    const END: Option<&'static str> = Some("[DONE]");

    /// What an event is called, for clients that listen to some and not to others.
    fn name(_event: &Self::Event) -> Option<&'static str> {
        None
    }

    /// Before anything else, together with the first piece.
    fn first(&mut self) -> Vec<Self::Event>;

    /// What a piece of an answer comes to.
    ///
    /// # Errors
    /// If it cannot be written; the stream ends.
    fn piece(&mut self, index: usize, piece: Piece) -> Result<Vec<Self::Event>, ApiError>;

    /// After all answers.
    fn last(&mut self) -> Vec<Self::Event>;

    /// Instead of all that would come, where an answer has failed: what it is called, and what it says.
    fn broken(&mut self, problem: &ApiError) -> (Option<&'static str>, String) {
        told(problem)
    }
}

/// A problem as an event: what it is called, and what it says.
fn told(problem: &ApiError) -> (Option<&'static str>, String) {
    (None, serde_json::to_string(&problem.envelope()).unwrap_or_default())
}

/// Sends answers as they come, from the first piece on. When the client goes away, so do they, also before that.
///
/// # Errors
/// Whatever ended an answer before there was anything of any: it has a status then, as where answers are whole.
pub(super) async fn stream<F: Format>(
    mut pieces: Pieces,
    mut format: F,
) -> Result<Response, ApiError> {
    let mut said = format.first();
    while let Some((index, piece)) = pieces.next().await? {
        // Whether anything comes of the others is not known yet.
        let is_empty = matches!(&piece, Piece::End(ending) if ending.tokens == 0);
        said.extend(format.piece(index, piece)?);
        if !is_empty {
            break;
        }
    }
    let (sender, mut events) = mpsc::channel(WAITING);
    let written = tokio::spawn(write(said, pieces, format, sender));
    let events = poll_fn(move |context| events.poll_recv(context));
    let panicked = once(written).filter_map(|written| ready(written.err()));
    let panicked = panicked.map(|panic| {
        let (name, said) = told(&ApiError::failed(panic));
        Ok(called(name).data(said))
    });
    Ok(sent_at_once(Sse::new(events.chain(panicked)).keep_alive(KeepAlive::default())))
}

/// Asks proxies not to keep events back until there are more (nginx does otherwise).
pub(super) fn sent_at_once(events: impl IntoResponse) -> Response {
    ([("x-accel-buffering", "no")], events).into_response()
}

type Line = Result<Event, Infallible>;

/// The client reads no more.
struct Gone;

/// Writes the events that there are already, and what the other pieces come to.
async fn write<F: Format>(
    said: Vec<F::Event>,
    mut pieces: Pieces,
    mut format: F,
    to: Sender<Line>,
) {
    let run = async {
        send_all::<F>(&to, said).await?;
        loop {
            let next = tokio::select! {
                () = to.closed() => return Err(Gone),
                next = pieces.next() => next,
            };
            let next = next.map(|next| next.map(|(index, piece)| format.piece(index, piece)));
            match next.and_then(Option::transpose) {
                Ok(Some(events)) => send_all::<F>(&to, events).await?,
                Ok(None) => break send_all::<F>(&to, format.last()).await?,
                Err(problem) => {
                    let (name, said) = format.broken(&problem);
                    break send(&to, called(name).data(said)).await?;
                }
            }
        }
        match F::END {
            Some(end) => send(&to, Event::default().data(end)).await,
            None => Ok(()),
        }
    };
    // Whoever has gone does not need to be told.
    let _: Result<(), Gone> = run.await;
}

async fn send_all<F: Format>(to: &Sender<Line>, events: Vec<F::Event>) -> Result<(), Gone> {
    for event in events {
        let json = serde_json::to_string(&event);
        let json = json.or_else(|e| serde_json::to_string(&ApiError::failed(e).envelope()));
        send(to, called(F::name(&event)).data(json.unwrap_or_default())).await?;
    }
    Ok(())
}

/// An event of this name, if it has one.
fn called(name: Option<&str>) -> Event {
    name.map_or_else(Event::default, |name| Event::default().event(name))
}

async fn send(to: &Sender<Line>, event: Event) -> Result<(), Gone> {
    match timeout(PATIENCE, to.send(Ok(event))).await {
        Ok(Ok(())) => Ok(()),
        _ => Err(Gone),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::Written;
    use axum::body::to_bytes;

    /// Says texts as they are.
    struct Plain;

    impl Format for Plain {
        type Event = String;

        fn first(&mut self) -> Vec<String> {
            Vec::new()
        }

        fn piece(&mut self, _: usize, piece: Piece) -> Result<Vec<String>, ApiError> {
            match piece {
                Piece::Text(written) => Ok(vec![written.text]),
                _ => panic!("on purpose"),
            }
        }

        fn last(&mut self) -> Vec<String> {
            vec!["last".to_owned()]
        }
    }

    /// What is said of pieces of one answer, after which nobody says more.
    async fn said(pieces: Vec<Piece>) -> String {
        let (sender, receiver) = mpsc::channel(WAITING);
        for piece in pieces {
            sender.send(Ok((0, piece))).await.unwrap();
        }
        drop(sender);
        let response = stream(Pieces::new(receiver, 1), Plain).await.unwrap();
        let said = to_bytes(response.into_body(), usize::MAX).await.unwrap();
        String::from_utf8(said.to_vec()).unwrap()
    }

    #[tokio::test]
    async fn a_stream_that_breaks_off_says_so_and_not_what_comes_last() {
        let text = |text: &str| Piece::Text(Written { text: text.into(), ..Written::default() });
        // Whoever follows the answer is gone.
        let broken = said(vec![text("Once"), text(" upon")]).await;
        assert!(broken.contains("Once") && broken.contains(" upon"), "{broken}");
        assert!(broken.contains("an answer has no end") && !broken.contains("last"), "{broken}");
        // Whoever writes the stream is.
        let broken = said(vec![text("Once"), Piece::Prompt(Vec::new())]).await;
        let errors = broken.matches(r#"data: {"error":"#).count();
        assert!(broken.contains("Once") && errors == 1, "{broken}");
        assert!(!broken.contains("last") && !broken.contains("DONE"), "{broken}");
    }
}
