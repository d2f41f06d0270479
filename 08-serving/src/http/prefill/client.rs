//! Whom to ask to read a prompt, and what to do when nothing comes.

use super::receive::{Heard, Problem, receive, silent};
use crate::engine::{Courier, Prefiller, Wanted};
use axum::http::Uri;
use std::str::FromStr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;
use tokio::sync::Semaphore;
use tokio::task::AbortHandle;
use tracing::{info, warn};

/// Bytes that may be on their way, or wait for their request's turn. Prompts beyond them are read here.
const MOST_BYTES: usize = 1 << 30;

/// A permit is for so many bytes.
const UNIT: usize = 4 << 10;

/// For how long a worker is not asked that did not answer, and one that would not.
const LOST_FOR: Duration = Duration::from_secs(5);
const REFUSED_FOR: Duration = Duration::from_secs(60);

/// A worker from which nothing has come for so long counts as lost when somebody waits for it no longer.
const SILENT_FOR: Duration = Duration::from_secs(1);

/// A server that reads prompts for others: `http://HOST:PORT`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkerAddress(Uri);

impl FromStr for WorkerAddress {
    type Err = String;

    fn from_str(written: &str) -> Result<Self, String> {
        let expected = "expected http://HOST:PORT of a server that runs with --prefill-worker";
        let address: Uri = written.parse().map_err(|problem| format!("{problem}, {expected}"))?;
        let is_plain = address.scheme_str() == Some("http") && matches!(address.path(), "" | "/");
        match address.host() {
            Some(_) if is_plain && address.query().is_none() => Ok(WorkerAddress(address)),
            _ => Err(expected.to_owned()),
        }
    }
}

/// Servers that read prompts for this one. The one with the fewest tokens to read has the next.
pub struct PrefillWorkers {
    workers: Vec<Arc<Worker>>,
    key: Option<Arc<str>>,
    room: Arc<Semaphore>,
    /// One thread: what it does between waits is to copy bytes and to sum them up.
    runtime: Option<Runtime>,
}

struct Worker {
    address: Uri,
    /// Tokens of prompts that it was asked for, until their requests come in or go away.
    tokens: AtomicUsize,
    /// Until when it is not asked.
    away_until: Mutex<Option<Instant>>,
    heard: Heard,
}

/// Calls a transfer off when nobody waits for it any more, and counts it until then.
struct UnderWay {
    task: AbortHandle,
    worker: Arc<Worker>,
    asked_at: Instant,
    tokens: usize,
    _room: tokio::sync::OwnedSemaphorePermit,
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        if !self.task.is_finished() {
            self.worker.note_left(self.asked_at);
        }
        self.task.abort();
        self.worker.tokens.fetch_sub(self.tokens, Ordering::Relaxed);
    }
}

impl PrefillWorkers {
    /// Asks these, with a key if they want one.
    ///
    /// # Errors
    /// If the system gives no thread.
    pub fn new(workers: Vec<WorkerAddress>, key: Option<&str>) -> std::io::Result<Self> {
        let mut runtime = tokio::runtime::Builder::new_multi_thread();
        let runtime = runtime.worker_threads(1).thread_name("prefill").enable_all().build()?;
        Ok(PrefillWorkers {
            workers: workers.into_iter().map(|address| Arc::new(Worker::new(address))).collect(),
            key: key.map(Arc::from),
            room: Arc::new(Semaphore::new(MOST_BYTES / UNIT)),
            runtime: Some(runtime),
        })
    }
}

impl Drop for PrefillWorkers {
    fn drop(&mut self) {
        // Nobody waits: this may be a thread that must not.
        self.runtime.take().expect("it is there until now").shutdown_background();
    }
}

impl Prefiller for PrefillWorkers {
    fn begin(&self, mut wanted: Wanted, courier: Courier) -> Option<Box<dyn Send>> {
        let there = self.workers.iter().filter(|worker| worker.is_there());
        let worker = there.min_by_key(|worker| worker.tokens.load(Ordering::Relaxed))?.clone();
        wanted.truncate(MOST_BYTES / wanted.block_bytes.max(1));
        let units = (wanted.names.len() * wanted.block_bytes).div_ceil(UNIT) as u32;
        let room = self.room.clone().try_acquire_many_owned(units).ok()?;
        let (tokens, asked_at) = (wanted.tokens.len(), Instant::now());
        worker.note_asked();
        worker.tokens.fetch_add(tokens, Ordering::Relaxed);
        let (asked, key) = (worker.clone(), self.key.clone());
        let task = self.runtime.as_ref()?.spawn(async move {
            let (blocks, result) =
                receive(&asked.address, key.as_deref(), wanted, &asked.heard).await;
            match result {
                Err(Problem::Late) => asked.note_left(asked_at),
                result => asked.note(&result),
            }
            courier.deliver(blocks);
        });
        let task = task.abort_handle();
        Some(Box::new(UnderWay { task, worker, asked_at, tokens, _room: room }))
    }
}

impl Worker {
    fn new(WorkerAddress(address): WorkerAddress) -> Self {
        Worker {
            address,
            tokens: AtomicUsize::new(0),
            away_until: Mutex::new(None),
            heard: Heard::default(),
        }
    }

    fn is_there(&self) -> bool {
        !self.is_away_at(Instant::now())
    }

    fn is_away_at(&self, moment: Instant) -> bool {
        let until = *self.away_until.lock().unwrap_or_else(PoisonError::into_inner);
        until.is_some_and(|until| until > moment)
    }

    /// Notes that it is asked. If it was away, this finds out whether it is back, and others do not ask meanwhile.
    fn note_asked(&self) {
        let mut until = self.away_until.lock().unwrap_or_else(PoisonError::into_inner);
        *until = until.and_then(|_| Instant::now().checked_add(LOST_FOR));
    }

    /// Notes that somebody who asked it then waits no longer: out of time, or gone away. If nothing has come meanwhile,
    /// the next would wait in vain as well.
    fn note_left(&self, asked_at: Instant) {
        let silence = self.heard.silence(asked_at);
        // One that has refused is away for longer than one that is silent.
        let is_known = self.is_away_at(Instant::now() + LOST_FOR);
        if silence >= SILENT_FOR && !is_known {
            self.note(&Err(silent(silence)));
        }
    }

    /// Notes what came of asking, and says it where that is something new.
    fn note(&self, result: &Result<(), Problem>) {
        let away_for = match result {
            Ok(()) | Err(Problem::Busy(_) | Problem::Late) => None,
            Err(Problem::Lost(_)) => Some(LOST_FOR),
            Err(Problem::Refused(..)) => Some(REFUSED_FOR),
        };
        let mut until = self.away_until.lock().unwrap_or_else(PoisonError::into_inner);
        let was_away = until.is_some();
        *until = away_for.and_then(|time| Instant::now().checked_add(time));
        drop(until);
        match result {
            Err(problem) if away_for.is_some() && !was_away => {
                warn!(worker = %self.address, "prompts are read here, the prefill worker does not: {problem}");
            }
            Ok(()) if was_away => {
                info!(worker = %self.address, "the prefill worker reads prompts again")
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::StatusCode;

    fn somebody() -> Worker {
        Worker::new("http://127.0.0.1:8001".parse().unwrap())
    }

    #[test]
    fn one_request_finds_out_whether_a_worker_is_back() {
        let worker = somebody();
        worker.note_asked();
        assert!(worker.is_there(), "many may ask one that was never away");
        for (result, is_back) in [(Err(silent(SILENT_FOR)), false), (Ok(()), true)] {
            worker.note(&Err(silent(SILENT_FOR)));
            assert!(!worker.is_there());
            *worker.away_until.lock().unwrap() = Some(Instant::now());
            assert!(worker.is_there());
            worker.note_asked();
            assert!(!worker.is_there(), "others wait for what comes of it");
            worker.note(&result);
            assert_eq!(worker.is_there(), is_back);
        }
    }

    #[test]
    fn whoever_waits_no_longer_tells_of_a_silence_only() {
        let long_ago = Instant::now().checked_sub(SILENT_FOR * 2).unwrap();
        let worker = somebody();
        worker.note_left(Instant::now());
        assert!(worker.is_there(), "it had no time to answer");
        // Something has come, if for another request.
        worker.heard.now();
        worker.note_left(long_ago);
        assert!(worker.is_there());
        let worker = somebody();
        worker.note_left(long_ago);
        assert!(!worker.is_there());
        worker.note(&Err(Problem::Refused(StatusCode::CONFLICT, "another model".to_owned())));
        worker.note_left(long_ago);
        assert!(worker.is_away_at(Instant::now() + REFUSED_FOR / 2), "it has said why");
    }

    #[test]
    fn an_address_is_a_scheme_a_host_and_a_port() {
        for good in
            ["http://127.0.0.1:8001", "http://reader:80/", "http://[::1]:9000", "http://reader"]
        {
            good.parse::<WorkerAddress>().unwrap_or_else(|problem| panic!("{good}: {problem}"));
        }
        for bad in [
            "",
            "reader:80",
            "https://reader:80",
            "http://reader/v1",
            "http://",
            "http://reader:80?a=b",
        ] {
            let problem = bad.parse::<WorkerAddress>().unwrap_err();
            assert!(problem.contains("expected http://HOST:PORT"), "{bad}: {problem}");
        }
    }
}
