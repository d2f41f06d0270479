//! Bodies of requests, as they are read.

use super::App;
use super::aside::LARGE;
use crate::api::{ApiError, MOST_BODY_BYTES};
use axum::body::{Body, Bytes, HttpBody};
use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::Next;
use axum::response::Response;
use futures_util::StreamExt;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout_at};

/// Large bodies that there may be at once: with all connections' small ones, half a gigabyte.
pub(super) const LARGE_AT_ONCE: usize = 64;

/// Bytes of a body that is too large that are read all the same, and forgotten.
const MOST_BYTES_PASSED_OVER: usize = 4 * MOST_BODY_BYTES;

/// How long a client may take to send a body.
const BODY_IN: Duration = Duration::from_secs(30);

/// Reads a request's body, as much as may come, and no longer than it may take.
pub(super) async fn whole(
    State(app): State<Arc<App>>,
    request: Request,
    next: Next,
) -> Result<Response, ApiError> {
    if !is_json(request.headers()) {
        let found = kind(request.headers()).unwrap_or("missing");
        let message = format!("content-type is {found}, expected application/json");
        return Err(ApiError::refused(StatusCode::UNSUPPORTED_MEDIA_TYPE, message));
    }
    let (parts, sent) = request.into_parts();
    let whole = read(sent, &app.large_bodies, Instant::now() + BODY_IN).await?;
    let mut response = next.run(Request::from_parts(parts, whole.into())).await;
    response.extensions_mut().insert(BodyRead);
    Ok(response)
}

/// The request's body was read to its end.
#[derive(Clone, Copy)]
struct BodyRead;

/// Whether the body of the request that this answers was read to its end.
pub(super) fn was_read(response: &Response) -> bool {
    response.extensions().get::<BodyRead>().is_some()
}

/// Whether a request has a body.
pub(super) fn is_there(request: &Request) -> bool {
    !request.body().is_end_stream()
}

/// All of a body. A large one keeps one of the places for them for as long as anybody has it.
///
/// # Errors
/// 413 if it is too large, 408 if it has not come by then, 429 if there was no place, 400 if it breaks off or is none that
/// HTTP knows.
async fn read(sent: Body, places: &Arc<Semaphore>, until: Instant) -> Result<Bytes, ApiError> {
    let mut chunks = sent.into_data_stream();
    let (mut whole, mut bytes, mut place) = (Vec::new(), 0, None);
    loop {
        let chunk = timeout_at(until, chunks.next()).await.map_err(|_| {
            let message = format!("the body did not come within {} seconds", BODY_IN.as_secs());
            ApiError::refused(StatusCode::REQUEST_TIMEOUT, message)
        })?;
        let Some(chunk) = chunk else { break };
        let chunk = chunk.map_err(|problem| {
            let message = format!("the body could not be read to its end: {problem}");
            ApiError::refused(StatusCode::BAD_REQUEST, message)
        })?;
        bytes += chunk.len();
        if bytes > MOST_BODY_BYTES {
            // Many clients read no answer before they have sent everything.
            (whole, place) = (Vec::new(), None);
        } else {
            if bytes >= LARGE && place.is_none() {
                place = Some(turn(places, until).await?);
            }
            whole.extend_from_slice(&chunk);
        }
        if bytes > MOST_BYTES_PASSED_OVER {
            break;
        }
    }
    match bytes <= MOST_BODY_BYTES {
        true => Ok(Bytes::from_owner(Whole { bytes: whole, _place: place })),
        false => {
            let message = format!("the body is larger than {MOST_BODY_BYTES} bytes");
            Err(ApiError::refused(StatusCode::PAYLOAD_TOO_LARGE, message))
        }
    }
}

/// Waits for a place. Meanwhile the client has to wait, too, as nothing is read of what it sends.
async fn turn(places: &Arc<Semaphore>, until: Instant) -> Result<OwnedSemaphorePermit, ApiError> {
    let place = timeout_at(until, places.clone().acquire_owned()).await.map_err(|_| {
        ApiError::full(format!("{LARGE_AT_ONCE} large bodies are here, and no more than that may"))
    })?;
    place.map_err(ApiError::failed)
}

/// A body with its place.
struct Whole {
    bytes: Vec<u8>,
    _place: Option<OwnedSemaphorePermit>,
}

impl AsRef<[u8]> for Whole {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// Other kinds a page of somebody else's may send without asking (CSRF).
fn is_json(headers: &HeaderMap) -> bool {
    kind(headers).is_some_and(|kind| kind.eq_ignore_ascii_case("application/json"))
}

/// What a body says that it is.
fn kind(headers: &HeaderMap) -> Option<&str> {
    let kind = headers.get(header::CONTENT_TYPE)?.to_str().ok()?;
    Some(kind.split(';').next().unwrap_or_default().trim())
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::body::to_bytes;
    use futures_util::poll;

    #[tokio::test(start_paused = true)]
    async fn large_bodies_have_places_for_as_long_as_somebody_has_them() {
        let places = Arc::new(Semaphore::new(1));
        let body = |bytes: usize| Body::from(vec![b' '; bytes]);
        let soon = || Instant::now() + Duration::from_secs(1);
        let first = read(body(LARGE), &places, soon()).await.unwrap();
        // As a handler has it.
        let first = to_bytes(Body::from(first), usize::MAX).await.unwrap();
        assert_eq!(first.len(), LARGE);
        let mut second = Box::pin(read(body(LARGE), &places, soon()));
        assert!(poll!(&mut second).is_pending());
        assert_eq!(read(body(LARGE - 1), &places, soon()).await.unwrap().len(), LARGE - 1);
        let huge = read(body(MOST_BODY_BYTES + 1), &places, soon()).await.unwrap_err();
        assert_eq!(huge.status, StatusCode::PAYLOAD_TOO_LARGE);
        let refused = read(body(LARGE), &places, soon()).await.unwrap_err();
        assert_eq!(refused.status, StatusCode::TOO_MANY_REQUESTS);
        let mut third = Box::pin(read(body(LARGE), &places, soon()));
        assert!(poll!(&mut third).is_pending());
        drop((first, second));
        assert_eq!(third.await.unwrap().len(), LARGE);
        assert_eq!(places.available_permits(), 1);
    }
}
