//! Places for connections, and who loses theirs.
//!
//! A connection on which nothing is asked is worth less than one that comes. So each tells its place how far it is, and
//! the place when it has waited too long for what its client sends; when all places are taken, whoever has waited
//! longest makes room.

use axum::body::{Body, Bytes};
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

/// How long a connection may wait for what its client sends.
#[derive(Debug, Clone, Copy)]
pub(super) struct Waits {
    /// For the first byte of another request.
    pub(super) idle: Duration,
    /// For the end of a request's headers, from its first byte on; on a connection that is new, from its beginning.
    pub(super) headers: Duration,
}

/// Whoever has waited for less has only just begun, or has an answer that is on its way still.
const LEAST_WAIT: Duration = Duration::from_secs(1);

/// How far a connection is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// Its last answer is written, and no byte of another request has come.
    Idle,
    /// The headers of a request are coming.
    Headers,
    /// A request is being answered.
    Answering,
    /// Its answer is written, and the client has not taken all of it. How long that may take others say.
    Unread,
    /// It is to end.
    Over,
}

/// A connection's place.
pub(super) struct Place {
    stage: watch::Sender<(Stage, Instant)>,
    waits: Waits,
    /// Whether it ends with an answer to a request whose body may not have been read to its end.
    is_cut_short: AtomicBool,
}

impl Place {
    /// A place of a connection that is new.
    pub(super) fn new(waits: Waits) -> Arc<Self> {
        let stage = watch::Sender::new((Stage::Headers, Instant::now()));
        Arc::new(Place { stage, waits, is_cut_short: AtomicBool::new(false) })
    }

    /// What it is in now begins now, if it was in `before`.
    fn turn(&self, before: Stage, now: Stage) {
        self.stage.send_if_modified(|stage| {
            let turns = stage.0 == before;
            if turns {
                *stage = (now, Instant::now());
            }
            turns
        });
    }

    /// Bytes have come.
    pub(super) fn has_heard(&self) {
        self.turn(Stage::Idle, Stage::Headers);
    }

    /// Bytes have gone: the rest of an answer, though it is written.
    pub(super) fn has_told(&self) {
        self.turn(Stage::Idle, Stage::Idle);
        self.turn(Stage::Unread, Stage::Idle);
    }

    /// Bytes wait to go.
    pub(super) fn is_not_read(&self) {
        self.turn(Stage::Idle, Stage::Unread);
    }

    /// A request is here. It is answered once the body of its answer is gone.
    pub(super) fn asked(self: &Arc<Self>) -> Asked {
        self.turn(Stage::Idle, Stage::Answering);
        self.turn(Stage::Headers, Stage::Answering);
        self.turn(Stage::Unread, Stage::Answering);
        Asked(self.clone())
    }

    /// It ends with an answer that comes before all of what it answers.
    pub(super) fn cut_short(&self) {
        self.is_cut_short.store(true, Ordering::Relaxed);
    }

    /// Whether its client may still be sending what nobody reads.
    pub(super) fn is_cut_short(&self) -> bool {
        self.is_cut_short.load(Ordering::Relaxed)
    }

    /// Since when its client has been waited for.
    fn waiting_since(&self) -> Option<Instant> {
        match *self.stage.borrow() {
            (Stage::Idle | Stage::Headers, since) => Some(since),
            (Stage::Answering | Stage::Unread | Stage::Over, _) => None,
        }
    }

    /// Ends it, if its client has been waited for since `since` and still is.
    fn ends(&self, since: Instant) -> bool {
        self.stage.send_if_modified(|stage| {
            let waits = matches!(stage.0, Stage::Idle | Stage::Headers) && stage.1 == since;
            if waits {
                *stage = (Stage::Over, Instant::now());
            }
            waits
        })
    }

    /// Its client has this long for the rest of a request's headers, if it has begun them.
    fn hurry(&self, left: Duration) {
        let since = (Instant::now() + left).checked_sub(self.waits.headers);
        self.stage.send_if_modified(|stage| {
            let since = since.filter(|since| stage.0 == Stage::Headers && *since < stage.1);
            since.inspect(|since| stage.1 = *since).is_some()
        });
    }

    /// Waits until the connection has lost its place.
    pub(super) async fn lost(&self) {
        let mut stages = self.stage.subscribe();
        loop {
            let (stage, since) = *stages.borrow_and_update();
            let until = match stage {
                Stage::Idle => since + self.waits.idle,
                Stage::Headers => since + self.waits.headers,
                Stage::Over => return,
                Stage::Answering | Stage::Unread => {
                    // The sender lives as long as this.
                    let _ = stages.changed().await;
                    continue;
                }
            };
            tokio::select! {
                () = sleep_until(until) => return,
                _ = stages.changed() => {}
            }
        }
    }
}

/// A request that is being answered.
pub(super) struct Asked(Arc<Place>);

impl Drop for Asked {
    fn drop(&mut self) {
        self.0.turn(Stage::Answering, Stage::Idle);
    }
}

/// The body of an answer, after which its connection waits for another request.
pub(super) struct Answered {
    pub(super) body: Body,
    pub(super) _asked: Asked,
}

impl HttpBody for Answered {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// The places that there are.
pub(super) struct Places {
    most: usize,
    waits: Waits,
    taken: Arc<Mutex<Taken>>,
}

/// Those that are taken, in order of arrival.
#[derive(Default)]
struct Taken {
    arrived: u64,
    places: BTreeMap<u64, Arc<Place>>,
}

/// A place that is taken until this is dropped.
pub(super) struct Seat {
    pub(super) place: Arc<Place>,
    number: u64,
    taken: Arc<Mutex<Taken>>,
}

impl Drop for Seat {
    fn drop(&mut self) {
        lock(&self.taken).places.remove(&self.number);
    }
}

/// A panic elsewhere leaves nothing half done.
fn lock(taken: &Mutex<Taken>) -> std::sync::MutexGuard<'_, Taken> {
    taken.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Places {
    pub(super) fn new(most: usize, waits: Waits) -> Self {
        Places { most, waits, taken: Arc::default() }
    }

    /// A place for a connection that is new; none if all are taken by those who are being answered.
    pub(super) fn take(&self) -> Option<Seat> {
        let mut taken = lock(&self.taken);
        if taken.places.len() >= self.most && !taken.make_room() {
            return None;
        }
        let (number, place) = (taken.arrived, Place::new(self.waits));
        taken.arrived += 1;
        taken.places.insert(number, place.clone());
        Some(Seat { place, number, taken: self.taken.clone() })
    }

    /// Whoever has begun a request has this long for the rest of its headers.
    pub(super) fn hurry(&self, left: Duration) {
        lock(&self.taken).places.values().for_each(|place| place.hurry(left));
    }
}

impl Taken {
    /// Whoever has been waited for longest loses their place. Says whether there was somebody.
    fn make_room(&mut self) -> bool {
        let waiting = self.places.iter();
        let waiting = waiting.filter_map(|(number, place)| Some((place.waiting_since()?, *number)));
        let mut waiting: Vec<_> =
            waiting.filter(|(since, _)| since.elapsed() >= LEAST_WAIT).collect();
        waiting.sort_unstable();
        // Whoever's request has come in this moment keeps the place: the next one is asked.
        let lost = waiting.into_iter().find(|(since, number)| self.places[number].ends(*since));
        lost.is_some_and(|(_, number)| self.places.remove(&number).is_some())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::time::{advance, timeout};

    const WAITS: Waits = Waits { idle: Duration::from_secs(75), headers: Duration::from_secs(15) };

    /// How many whole seconds later the place is lost, if nothing happens.
    async fn seconds_left(place: &Place) -> u64 {
        let begun = Instant::now();
        timeout(Duration::from_secs(1_000), place.lost()).await.unwrap();
        begun.elapsed().as_secs()
    }

    #[tokio::test(start_paused = true)]
    async fn headers_are_timed_from_their_first_byte_and_idleness_from_the_last_answer() {
        let place = Place::new(WAITS);
        assert_eq!(seconds_left(&place).await, 15, "new");
        let asked = place.asked();
        assert!(timeout(Duration::from_secs(1_000), place.lost()).await.is_err(), "it is answered");
        // What comes while it is answered is a request for later.
        place.has_heard();
        drop(asked);
        assert_eq!(seconds_left(&place).await, 75, "idle");
        place.has_told();
        assert_eq!(seconds_left(&place).await, 75, "the rest of an answer goes");
        place.is_not_read();
        assert!(timeout(Duration::from_secs(1_000), place.lost()).await.is_err(), "some does not");
        assert_eq!(place.waiting_since(), None);
        place.has_told();
        assert_eq!(seconds_left(&place).await, 75, "and then it does");
        advance(Duration::from_secs(70)).await;
        place.has_heard();
        assert_eq!(seconds_left(&place).await, 15, "another request comes");
        place.has_heard();
        assert_eq!(seconds_left(&place).await, 0, "byte after byte makes it no longer");
    }

    #[tokio::test(start_paused = true)]
    async fn who_has_begun_a_request_may_be_hurried_and_who_is_answered_may_not() {
        let places = Places::new(3, WAITS);
        let [begun, asked, late] = [0; 3].map(|_| places.take().unwrap());
        let answer = asked.place.asked();
        advance(Duration::from_millis(14_500)).await;
        places.hurry(Duration::from_secs(1));
        timeout(Duration::from_secs(1), begun.place.lost()).await.expect("no longer than it had");
        late.place.asked();
        late.place.has_heard();
        places.hurry(Duration::from_secs(1));
        assert_eq!(seconds_left(&late.place).await, 1, "it had fifteen");
        assert!(timeout(Duration::from_secs(1_000), asked.place.lost()).await.is_err());
        drop(answer);
        assert_eq!(seconds_left(&asked.place).await, 75);
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_has_waited_longest_makes_room_and_whoever_is_answered_does_not() {
        let places = Places::new(3, WAITS);
        let [first, second, third] = [0; 3].map(|_| places.take().unwrap());
        assert!(places.take().is_none(), "all have only just begun");
        let asked = first.place.asked();
        advance(LEAST_WAIT).await;
        second.place.asked();
        advance(LEAST_WAIT).await;
        let fourth = places.take().expect("the third has waited longest");
        timeout(Duration::ZERO, third.place.lost()).await.expect("it is told");
        let fifth = places.take().expect("then the second");
        timeout(Duration::ZERO, second.place.lost()).await.expect("it is told");
        assert!(places.take().is_none(), "the first is answered, the others are new");
        drop((asked, second, third));
        assert_eq!(
            lock(&places.taken).places.len(),
            3,
            "a place that was lost is not given up twice"
        );
        let since = fifth.place.waiting_since().unwrap();
        let asked = fifth.place.asked();
        assert!(!fifth.place.ends(since), "its request came in the same moment");
        drop((asked, first, fourth, fifth));
        assert_eq!(lock(&places.taken).places.len(), 0);
    }
}
