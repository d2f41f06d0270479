//! Connections, and how the server ends.

use super::patient::Patient;
use super::places::{Answered, Place, Places, Waits};
use super::routes::crowded;
use super::{App, router};
use axum::Router;
use axum::http::{Request, header};
use axum::response::Response;
use hyper::body::{Body, Incoming};
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::TokioIo;
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use std::convert::Infallible;
use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::net::{TcpListener, TcpSocket};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval, timeout};
use tracing::{debug, info, warn};

/// Connections at once. Those on which nothing is asked make room for others.
const MOST_CONNECTIONS: usize = 1_024;

/// Files that may be open besides connections: the model's, keys and values, connections to others.
const OTHER_FILES: usize = 128;

/// How long a client may take to send a request's headers, and to ask again on a connection: longer than proxies keep
/// one that they do not use, so that they never ask on one that is just being closed.
const WAITS: Waits = Waits { idle: Duration::from_secs(75), headers: Duration::from_secs(15) };

/// Connections at once that are told that there is no place for them, and how long they may take. More wait to be accepted.
const ASIDE: usize = 64;
const WAITS_ASIDE: Waits = Waits { idle: Duration::from_secs(2), headers: Duration::from_secs(2) };

/// How large the headers of a request may be.
const MOST_HEADER_BYTES: usize = 64 << 10;
const MOST_HEADERS: usize = 100;

/// How long a client may take for the next part of what is written for it: see [`Patient`]. The engine gives up sooner on
/// a request of which nothing is read, and frees its blocks; this frees the connection's place.
const READ_IN: Duration = Duration::from_secs(120);

/// How long a client that has begun a request may take for the rest of its headers, once the server is to end. It is told no
/// more than that.
const HEADERS_AT_LAST: Duration = Duration::from_secs(1);

/// How long answers that were ended may take to reach their clients, once the server is to end.
const LAST_IN: Duration = Duration::from_secs(2);

/// How often measurements are summed up.
const SUMMED_UP_EVERY: Duration = Duration::from_secs(5);

/// How long to wait after a connection could not be accepted: files have run out, for one.
const PAUSE: Duration = Duration::from_millis(100);

/// A server that listens.
pub struct Listening {
    listener: TcpListener,
    app: Arc<App>,
}

/// Takes an address; port 0 takes any that is free. Nobody can connect before [`listen`], so that a model can be loaded
/// in between, and an address that is taken is found out before.
///
/// # Errors
/// If the address cannot be had.
pub fn bind(address: SocketAddr) -> std::io::Result<TcpSocket> {
    let socket = match address {
        SocketAddr::V4(_) => TcpSocket::new_v4()?,
        SocketAddr::V6(_) => TcpSocket::new_v6()?,
    };
    // A server that is started again need not wait until the last one's connections are forgotten.
    #[cfg(unix)]
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    Ok(socket)
}

/// Listens on an address that was taken. Runs inside a runtime of tokio's.
///
/// # Errors
/// If somebody else listens there by now.
pub fn listen(socket: TcpSocket, app: Arc<App>) -> std::io::Result<Listening> {
    Ok(Listening { listener: socket.listen(MOST_CONNECTIONS as u32)?, app })
}

impl Listening {
    /// Where it listens.
    ///
    /// # Errors
    /// If the system does not say.
    pub fn address(&self) -> std::io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves until `end`; then takes no more requests, and waits for those there are as long as the app says. What is
    /// not done by then ends where it is.
    pub async fn serve(self, end: impl Future<Output = ()>) {
        let Listening { listener, app } = self;
        let graceful = GracefulShutdown::new();
        // Ends with this.
        let mut beside = JoinSet::new();
        beside.spawn(sum_up(app.clone()));
        let answers = Answers { usual: router(app.clone()), crowded: crowded(app.clone()) };
        let places = accept(listener, answers, Bounds::of_process(), &graceful, end).await;
        app.drain();
        places.hurry(HEADERS_AT_LAST);
        info!("finishing what is under way, for {} seconds at most", app.drain_in.as_secs_f64());
        let are_closed = AtomicBool::new(false);
        let done = async {
            graceful.shutdown().await;
            are_closed.store(true, Ordering::Relaxed);
            app.engine.drained().await;
        };
        let mut done = std::pin::pin!(done);
        if timeout(app.drain_in, &mut done).await.is_ok() {
            return;
        }
        let state = app.engine.state();
        let not_all = || warn!("not all that the pool has is in the file of keys and values");
        let is_saving = state.running + state.waiting == 0 && !app.engine.is_drained();
        match is_saving {
            true => not_all(),
            false => warn!("some answers end before they are done"),
        }
        app.engine.cut_off();
        if timeout(LAST_IN, done).await.is_err() {
            match are_closed.load(Ordering::Relaxed) {
                true if is_saving => {} // It has been said.
                true => not_all(),
                false => warn!("some connections were cut off"),
            }
        }
    }
}

/// What connections may take.
struct Bounds {
    /// Connections at once.
    connections: usize,
    waits: Waits,
    /// How long a client may take for the next part of what is written for it.
    read_in: Duration,
}

impl Bounds {
    /// What this process may have: a connection is an open file. Many systems let a process have 1,024 or fewer of them at
    /// first, and more if it asks.
    fn of_process() -> Self {
        let besides = ASIDE + OTHER_FILES;
        let wanted = (MOST_CONNECTIONS + besides) as u64;
        let files = rlimit::increase_nofile_limit(wanted).unwrap_or(wanted);
        let room = usize::try_from(files).unwrap_or(usize::MAX).saturating_sub(besides).max(1);
        if room < MOST_CONNECTIONS {
            warn!(
                "{files} files may be open, so {room} connections at once and no more (ulimit -n)"
            );
        }
        Bounds { connections: MOST_CONNECTIONS.min(room), waits: WAITS, read_in: READ_IN }
    }
}

/// What is answered where there is a place for a connection, and where there is none.
struct Answers {
    usual: Router,
    crowded: Router,
}

/// Accepts connections until `end`, and answers what comes on each. Gives their places.
async fn accept(
    listener: TcpListener,
    answers: Answers,
    bounds: Bounds,
    graceful: &GracefulShutdown,
    end: impl Future<Output = ()>,
) -> Places {
    let mut http = http1::Builder::new();
    // Places time headers: hyper's time would run while nothing is asked, too.
    http.header_read_timeout(None);
    http.max_buf_size(MOST_HEADER_BYTES).max_headers(MOST_HEADERS);
    let places = Places::new(bounds.connections, bounds.waits);
    let aside = Arc::new(Semaphore::new(ASIDE));
    let mut end = std::pin::pin!(end);
    loop {
        let accepted = tokio::select! {
            biased;
            () = &mut end => return places,
            accepted = listener.accept() => accepted,
        };
        let stream = match accepted {
            Ok((stream, _)) => stream,
            Err(problem) => {
                warn!(%problem, "a connection was not accepted");
                tokio::time::sleep(PAUSE).await;
                continue;
            }
        };
        // Small events are sent at once.
        let _ = stream.set_nodelay(true);
        let (seat, turn, place, router) = match places.take() {
            Some(seat) => {
                let place = seat.place.clone();
                (Some(seat), None, place, &answers.usual)
            }
            None => {
                // Waiting for a turn must not keep the server from ending.
                let turn = tokio::select! {
                    () = &mut end => return places,
                    turn = aside.clone().acquire_owned() => turn.ok(),
                };
                (None, turn, Place::new(WAITS_ASIDE), &answers.crowded)
            }
        };
        let stream = TokioIo::new(Patient::new(stream, place.clone(), bounds.read_in));
        let service = TowerToHyperService::new(router.clone());
        let answering = place.clone();
        let service = service_fn(move |request: Request<Incoming>| {
            let (asked, has_body) = (answering.asked(), !request.body().is_end_stream());
            let (answering, answer) = (answering.clone(), service.call(request));
            async move {
                let response = answer.await?;
                if has_body && ends(&response) {
                    answering.cut_short();
                }
                Ok::<_, Infallible>(response.map(|body| Answered { body, _asked: asked }))
            }
        });
        let connection = graceful.watch(http.serve_connection(stream, service));
        tokio::spawn(async move {
            let _kept = (seat, turn);
            tokio::select! {
                ended = connection => {
                    if let Err(problem) = ended {
                        debug!(%problem, "a connection broke");
                    }
                }
                () = place.lost() => debug!("a connection on which nothing was asked is closed"),
            }
        });
    }
}

/// Whether an answer says that its connection ends with it.
fn ends(response: &Response) -> bool {
    response.headers().get(header::CONNECTION).is_some_and(|says| says == "close")
}

async fn sum_up(app: Arc<App>) {
    let mut ticks = interval(SUMMED_UP_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        app.metrics.sum_up();
    }
}

#[cfg(test)]
mod tests;
