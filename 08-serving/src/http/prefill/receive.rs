//! One answer of a prefill worker, from the connection to blocks.

use super::{Ask, PATH, SEAL, seal};
use crate::api::TOO_LONG;
use crate::engine::Wanted;
use axum::body::{Body, BodyDataStream};
use axum::http::{Request, StatusCode, Uri, header};
use futures_util::StreamExt;
use hyper::client::conn::http1::handshake;
use hyper_util::rt::TokioIo;
use paged_cache::offload::Key;
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::timeout;

/// How long a worker may take to answer a connection, and to begin its answer: it does so before it reads anything.
const CONNECTS_IN: Duration = Duration::from_secs(1);
const ANSWERS_IN: Duration = Duration::from_secs(2);

/// How long it may take to the next block. Its queue counts: a prompt that waits for longer is read here.
const GOES_ON_IN: Duration = Duration::from_secs(10);

/// Bytes of a refusal that are read.
const MOST_TOLD: usize = 4 << 10;

/// Why no more blocks came.
#[derive(Debug, thiserror::Error)]
pub(super) enum Problem {
    /// Nobody answers, or he stops.
    #[error("{0}")]
    Lost(String),
    /// It has other things to do, or this one is not for it; the next one may be.
    #[error("it does not read this one: {0}")]
    Busy(String),
    /// The request cannot wait any longer.
    #[error("half of the request's time is over")]
    Late,
    /// It will not do it, now or later.
    #[error("it answers {0}: {1}")]
    Refused(StatusCode, String),
}

/// When something came from a worker for the last time, for whichever request.
#[derive(Default)]
pub(super) struct Heard(Mutex<Option<Instant>>);

impl Heard {
    pub(super) fn now(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
    }

    /// For how long nothing has come, to somebody who has waited since then.
    pub(super) fn silence(&self, since: Instant) -> Duration {
        let last = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        last.map_or(since, |last| last.max(since)).elapsed()
    }
}

/// Blocks that have come whole, by name.
pub(super) type Blocks = HashMap<Key, Vec<u8>>;

// ANCHOR: receive
/// Asks a worker for blocks, and notes when something comes. What has come by the time that something goes wrong is
/// kept. A request waits for half of what is left until its prompt has to be read, and has the other half to be read here.
pub(super) async fn receive(
    worker: &Uri,
    key: Option<&str>,
    wanted: Wanted,
    heard: &Heard,
) -> (Blocks, Result<(), Problem>) {
    let mut unpacking = Unpacking::new(wanted.names.clone(), wanted.block_bytes);
    let left = wanted.deadline.saturating_duration_since(Instant::now());
    let following = follow(worker, key, wanted, &mut unpacking, heard);
    let result = timeout(left / 2, following).await.unwrap_or(Err(Problem::Late));
    (unpacking.blocks, result)
}
// ANCHOR_END: receive

async fn follow(
    worker: &Uri,
    key: Option<&str>,
    wanted: Wanted,
    unpacking: &mut Unpacking,
    heard: &Heard,
) -> Result<(), Problem> {
    let authority = worker.authority().expect("it was checked").as_str();
    let host = worker.host().expect("it was checked").trim_matches(['[', ']']);
    let connecting = TcpStream::connect((host, worker.port_u16().unwrap_or(80)));
    let stream = soon(CONNECTS_IN, connecting).await?.map_err(lost)?;
    let (mut sender, connection) = handshake(TokioIo::new(stream)).await.map_err(lost)?;
    // Ends with this.
    let mut beside = JoinSet::new();
    beside.spawn(connection);
    let Wanted { fingerprint, salt, tokens, known, .. } = wanted;
    let ask = Ask { fingerprint, salt: salt.0, tokens, known };
    let body = serde_json::to_vec(&ask).map_err(lost)?;
    let mut request = Request::post(PATH)
        .header(header::HOST, authority)
        .header(header::CONTENT_TYPE, "application/json");
    if let Some(key) = key {
        request = request.header(header::AUTHORIZATION, format!("Bearer {key}"));
    }
    let request = request.body(Body::from(body)).map_err(lost)?;
    let response = soon(ANSWERS_IN, sender.send_request(request)).await?.map_err(lost)?;
    heard.now();
    let (status, mut data) =
        (response.status(), Body::new(response.into_body()).into_data_stream());
    match status {
        StatusCode::OK => unpack(&mut data, unpacking, heard).await,
        status => Err(refusal(status, &mut data).await),
    }
}

/// Takes in an answer to its end. That bytes come is not enough: in the time for it there has to be a whole block.
async fn unpack(
    data: &mut BodyDataStream,
    unpacking: &mut Unpacking,
    heard: &Heard,
) -> Result<(), Problem> {
    while soon(GOES_ON_IN, unpacking.next(data, heard)).await?? {}
    match unpacking.is_done() {
        true => Ok(()),
        false => Err(Problem::Busy("it ended before the last block".to_owned())),
    }
}

async fn soon<T>(time: Duration, future: impl Future<Output = T>) -> Result<T, Problem> {
    timeout(time, future).await.map_err(|_| silent(time))
}

/// It was waited for so long in vain.
pub(super) fn silent(time: Duration) -> Problem {
    let seconds = time.as_secs_f32();
    Problem::Lost(format!("neither an answer nor a block came for {seconds:.1} seconds"))
}

fn lost(problem: impl ToString) -> Problem {
    Problem::Lost(problem.to_string())
}

async fn refusal(status: StatusCode, data: &mut BodyDataStream) -> Problem {
    let mut told = Vec::new();
    let telling = async {
        while let Some(Ok(chunk)) = data.next().await
            && told.len() < MOST_TOLD
        {
            told.extend_from_slice(&chunk);
        }
    };
    // What has come by then says enough.
    let _ = soon(ANSWERS_IN, telling).await;
    told.truncate(MOST_TOLD);
    let envelope: Option<serde_json::Value> = serde_json::from_slice(&told).ok();
    let message = envelope.as_ref().and_then(|told| told["error"]["message"].as_str());
    let message = message.unwrap_or("it does not say why").to_owned();
    // A worker with a shorter context than this server's reads others.
    let is_too_long = envelope.is_some_and(|told| told["error"]["code"] == TOO_LONG);
    match status {
        StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => Problem::Busy(message),
        StatusCode::BAD_REQUEST if is_too_long => Problem::Busy(message),
        status => Problem::Refused(status, message),
    }
}

/// Cuts a body into blocks.
struct Unpacking {
    names: std::vec::IntoIter<Key>,
    block_bytes: usize,
    /// The beginning of the next block with its seal.
    begun: Vec<u8>,
    blocks: Blocks,
}

impl Unpacking {
    fn new(names: Vec<Key>, block_bytes: usize) -> Self {
        let names = names.into_iter();
        Unpacking { names, block_bytes, begun: Vec::new(), blocks: Blocks::new() }
    }

    /// Takes in what comes until a block is whole; says whether there is one, or the answer has ended.
    async fn next(&mut self, data: &mut BodyDataStream, heard: &Heard) -> Result<bool, Problem> {
        let left = self.names.len();
        while self.names.len() == left {
            let next = data.next().await;
            heard.now();
            let Some(chunk) = next else { return Ok(false) };
            self.take(&chunk.map_err(lost)?)?;
        }
        Ok(true)
    }

    /// Takes in the next bytes.
    ///
    /// # Errors
    /// If a block is not what its name says, or there are more than were asked for.
    fn take(&mut self, mut bytes: &[u8]) -> Result<(), Problem> {
        let whole = self.block_bytes + SEAL;
        while !bytes.is_empty() {
            let (next, rest) = bytes.split_at(bytes.len().min(whole - self.begun.len()));
            self.begun.reserve_exact(whole - self.begun.len());
            self.begun.extend_from_slice(next);
            bytes = rest;
            if self.begun.len() == whole {
                let mut block = std::mem::take(&mut self.begun);
                let sealed = block.split_off(self.block_bytes);
                let name =
                    self.names.next().ok_or_else(|| lost("more blocks than were asked for"))?;
                if seal(name, &block)[..] != sealed[..] {
                    return Err(lost("a block that is not what its name says"));
                }
                self.blocks.insert(name, block);
            }
        }
        Ok(())
    }

    fn is_done(&self) -> bool {
        self.names.len() == 0 && self.begun.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::stream;
    use std::convert::Infallible;
    use tokio::time::sleep;

    const NAMES: [Key; 2] = [Key([1; 32]), Key([2; 32])];

    /// Two blocks of three bytes, as they come.
    fn sent() -> Vec<u8> {
        let blocks = [[7, 8, 9], [4, 5, 6]];
        NAMES
            .iter()
            .zip(blocks)
            .flat_map(|(&name, block)| [&block[..], &seal(name, &block)].concat())
            .collect()
    }

    fn taken(bytes: &[u8], at_a_time: usize) -> (Unpacking, Result<(), Problem>) {
        let mut unpacking = Unpacking::new(NAMES.to_vec(), 3);
        let result = bytes.chunks(at_a_time).try_for_each(|chunk| unpacking.take(chunk));
        (unpacking, result)
    }

    #[test]
    fn blocks_come_in_pieces_of_any_size() {
        for at_a_time in [1, 2, 34, 35, 36, 70] {
            let (unpacking, result) = taken(&sent(), at_a_time);
            result.unwrap();
            assert!(unpacking.is_done());
            assert_eq!(unpacking.blocks[&NAMES[0]], [7, 8, 9]);
            assert_eq!(unpacking.blocks[&NAMES[1]], [4, 5, 6]);
        }
    }

    #[test]
    fn what_comes_before_a_break_is_kept() {
        let (unpacking, result) = taken(&sent()[..60], 7);
        result.unwrap();
        assert!(!unpacking.is_done());
        assert_eq!(unpacking.blocks.len(), 1);
    }

    #[test]
    fn no_byte_may_be_another() {
        for at in 0..70 {
            let mut bytes = sent();
            bytes[at] ^= 1;
            let (unpacking, result) = taken(&bytes, 70);
            assert!(result.unwrap_err().to_string().contains("not what its name says"));
            assert_eq!(unpacking.blocks.len(), at / 35);
        }
        let more = [sent(), sent()].concat();
        let (unpacking, result) = taken(&more, 70);
        assert!(result.unwrap_err().to_string().contains("more blocks"));
        assert_eq!(unpacking.blocks.len(), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn a_worker_has_to_send_a_block_every_ten_seconds() {
        // So many bytes come at a time, after so many seconds each.
        let followed = async |at_a_time: usize, seconds: u64| {
            let pieces: Vec<Vec<u8>> = sent().chunks(at_a_time).map(<[u8]>::to_vec).collect();
            let pieces = stream::iter(pieces).then(move |piece| async move {
                sleep(Duration::from_secs(seconds)).await;
                Ok::<_, Infallible>(piece)
            });
            let mut data = Body::from_stream(pieces).into_data_stream();
            let mut unpacking = Unpacking::new(NAMES.to_vec(), 3);
            let begun = tokio::time::Instant::now();
            let result = unpack(&mut data, &mut unpacking, &Heard::default()).await;
            (result, unpacking.blocks.len(), begun.elapsed().as_secs())
        };
        let (result, blocks, seconds) = followed(35, 9).await;
        assert!(result.is_ok() && blocks == 2 && seconds == 18, "{result:?}: {seconds} s");
        // Slower, with few pauses or long ones.
        for (at_a_time, pause) in [(1, 1), (1, 2), (17, 6), (35, 11)] {
            let (result, blocks, seconds) = followed(at_a_time, pause).await;
            assert!(matches!(result, Err(Problem::Lost(_))), "{at_a_time}, {pause}: {result:?}");
            assert_eq!((blocks, seconds), (0, 10), "{at_a_time}, {pause}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_refusal_that_has_no_end_is_read_for_a_while() {
        let words = stream::repeat(()).then(|()| async {
            sleep(Duration::from_secs(1)).await;
            Ok::<_, Infallible>("no ")
        });
        let begun = tokio::time::Instant::now();
        let mut data = Body::from_stream(words).into_data_stream();
        let problem = refusal(StatusCode::CONFLICT, &mut data).await;
        assert!(matches!(problem, Problem::Refused(StatusCode::CONFLICT, _)), "{problem}");
        assert!(begun.elapsed() < GOES_ON_IN, "{:?}", begun.elapsed());
    }

    #[tokio::test]
    async fn a_prompt_that_is_too_long_for_a_worker_says_nothing_of_others() {
        let refusal = async |status: u16, code: &str| {
            let body = serde_json::json!({"error": {"message": "no", "code": code}});
            let mut data = Body::from(body.to_string()).into_data_stream();
            super::refusal(StatusCode::from_u16(status).unwrap(), &mut data).await
        };
        assert!(matches!(refusal(400, TOO_LONG).await, Problem::Busy(_)));
        assert!(matches!(refusal(503, "").await, Problem::Busy(_)));
        assert!(matches!(refusal(400, "other").await, Problem::Refused(..)));
        assert!(matches!(refusal(409, TOO_LONG).await, Problem::Refused(..)));
    }
}
