//! Connections, and how the server ends.

use super::patient::Patient;
use super::places::{Answered, Place, Places, Waits};
use super::routes::crowded;
use super::{App, router};
use axum::Router;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::TokioIo;
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use std::convert::Infallible;
use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
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

/// How long a client may read nothing of what is written for it. The engine gives up on such a request sooner, and
/// frees its blocks; this frees the connection's place.
const READ_IN: Duration = Duration::from_secs(120);

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
        accept(listener, answers, Bounds::of_process(), &graceful, end).await;
        info!("finishing what is under way, for {} seconds at most", app.drain_in.as_secs_f64());
        app.drain();
        let done = async {
            graceful.shutdown().await;
            app.engine.drained().await;
        };
        let mut done = std::pin::pin!(done);
        if timeout(app.drain_in, &mut done).await.is_ok() {
            return;
        }
        warn!("some answers end before they are done");
        app.engine.cut_off();
        if timeout(LAST_IN, done).await.is_err() {
            warn!("some connections were cut off");
        }
    }
}

/// What connections may take.
struct Bounds {
    /// Connections at once.
    connections: usize,
    waits: Waits,
    /// How long a client may read nothing of what is written for it.
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

/// Accepts connections until `end`, and answers what comes on each.
async fn accept(
    listener: TcpListener,
    answers: Answers,
    bounds: Bounds,
    graceful: &GracefulShutdown,
    end: impl Future<Output = ()>,
) {
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
            () = &mut end => break,
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
                    () = &mut end => break,
                    turn = aside.clone().acquire_owned() => turn.ok(),
                };
                (None, turn, Place::new(WAITS_ASIDE), &answers.crowded)
            }
        };
        let stream = TokioIo::new(Patient::new(stream, place.clone(), bounds.read_in));
        let service = TowerToHyperService::new(router.clone());
        let answering = place.clone();
        let service = service_fn(move |request| {
            let (asked, answer) = (answering.asked(), service.call(request));
            async move {
                let response = answer.await?;
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

async fn sum_up(app: Arc<App>) {
    let mut ticks = interval(SUMMED_UP_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        app.metrics.sum_up();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::body::{Body, Bytes};
    use axum::routing::get;
    use futures_util::stream::{pending, repeat_with};
    use std::convert::Infallible;
    use std::io::{ErrorKind, Read, Write};
    use std::net::{Shutdown, TcpStream};
    use tokio::sync::oneshot;
    use tokio::time::timeout;

    const USUAL: Bounds = Bounds { connections: MOST_CONNECTIONS, waits: WAITS, read_in: READ_IN };

    /// Longer than anything here takes.
    const AT_MOST: Duration = Duration::from_secs(20);

    /// One answer that is short, one that never goes on, and one that has no end; and one where there is no place.
    fn answers() -> Answers {
        let endless = || repeat_with(|| Ok::<_, Infallible>(Bytes::from_static(&[b'x'; 1 << 16])));
        let usual = Router::new()
            .route("/short", get(async || "here"))
            .route(
                "/waits",
                get(async || Body::from_stream(pending::<Result<Bytes, Infallible>>())),
            )
            .route("/endless", get(async move || Body::from_stream(endless())));
        Answers { usual, crowded: Router::new().fallback(async || "no place") }
    }

    /// A connection on which something has been asked for.
    fn ask(address: SocketAddr, path: &str) -> TcpStream {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(AT_MOST)).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nhost: here\r\nconnection: close\r\n\r\n").unwrap();
        stream
    }

    /// Accepts within bounds while `client` does what it does with the address on a thread of its own, then ends.
    /// Gives what the client had of it.
    async fn beside<T: Send + 'static>(
        bounds: Bounds,
        client: impl FnOnce(SocketAddr) -> T + Send + 'static,
    ) -> T {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (end, ended) = oneshot::channel();
        let client = tokio::task::spawn_blocking(move || {
            let had = client(address);
            end.send(()).unwrap();
            had
        });
        let end = async { ended.await.unwrap() };
        let graceful = GracefulShutdown::new();
        let accepted = accept(listener, answers(), bounds, &graceful, end);
        timeout(AT_MOST, accepted).await.expect("it ends when it is told to");
        client.await.unwrap()
    }

    #[tokio::test]
    async fn it_ends_although_all_places_are_taken() {
        let bounds = Bounds { connections: 2, ..USUAL };
        let kept = beside(bounds, |address| {
            let mut taken = [ask(address, "/waits"), ask(address, "/waits")];
            taken.iter_mut().for_each(|stream| stream.read_exact(&mut [0; 12]).unwrap());
            taken
        });
        let kept = kept.await;
        kept.iter().for_each(|stream| stream.shutdown(Shutdown::Both).unwrap());
    }

    #[tokio::test]
    async fn whoever_does_not_read_loses_his_place() {
        let bounds = Bounds { connections: 1, read_in: Duration::from_millis(50), ..USUAL };
        let answer = beside(bounds, |address| {
            let mut unread = ask(address, "/endless");
            unread.read_exact(&mut [0; 12]).unwrap();
            is_answered_at_last(address)
        });
        assert!(answer.await);
    }

    /// All that is said to a request on a connection of its own.
    fn said(address: SocketAddr, path: &str) -> String {
        let mut said = String::new();
        ask(address, path).read_to_string(&mut said).unwrap();
        said
    }

    /// Whether there is a place again within a few seconds.
    fn is_answered_at_last(address: SocketAddr) -> bool {
        (0..200).any(|_| {
            std::thread::sleep(Duration::from_millis(20));
            said(address, "/short").ends_with("here")
        })
    }

    /// Whether the server has closed a connection.
    fn is_over(read: &std::io::Result<usize>) -> bool {
        match read {
            Ok(bytes) => *bytes == 0,
            Err(error) => error.kind() == ErrorKind::ConnectionReset,
        }
    }

    #[tokio::test]
    async fn whoever_comes_where_all_are_being_answered_is_told_so_at_once() {
        let bounds = Bounds { connections: 2, ..USUAL };
        let (told, then) = beside(bounds, |address| {
            let mut taken = [ask(address, "/waits"), ask(address, "/waits")];
            taken.iter_mut().for_each(|stream| stream.read_exact(&mut [0; 12]).unwrap());
            let told = said(address, "/short");
            drop(taken);
            // The server sees that they have gone a moment later.
            (told, is_answered_at_last(address))
        })
        .await;
        assert!(told.ends_with("no place"), "{told}");
        assert!(then, "a place that was given up is taken again");
    }

    #[tokio::test]
    async fn half_a_request_keeps_nobody_out() {
        let bounds = Bounds { connections: 2, ..USUAL };
        let (begun, heard, left) = beside(bounds, |address| {
            let half = || {
                let mut stream = TcpStream::connect(address).unwrap();
                stream.set_read_timeout(Some(AT_MOST)).unwrap();
                stream.write_all(b"GET /short HTTP/1.1\r\nhost:").unwrap();
                stream
            };
            let mut halves = [half(), half()];
            std::thread::sleep(Duration::from_millis(1_100));
            let begun = std::time::Instant::now();
            let heard = said(address, "/short");
            // The one that came first has made room.
            let left = halves[0].read(&mut [0; 1]);
            (begun.elapsed(), heard, left)
        })
        .await;
        assert!(heard.ends_with("here"), "{heard}");
        assert!(begun < HALF, "{begun:?}");
        assert!(is_over(&left), "{left:?}");
    }

    /// Half as long as headers may take.
    const HALF: Duration = Duration::from_secs(7);

    #[tokio::test]
    async fn a_connection_may_be_idle_for_longer_than_headers_may_take() {
        let waits = Waits { idle: AT_MOST, headers: Duration::from_millis(200) };
        let (first, second, half) = beside(Bounds { waits, ..USUAL }, |address| {
            let mut stream = TcpStream::connect(address).unwrap();
            stream.set_read_timeout(Some(AT_MOST)).unwrap();
            let mut asked = || {
                stream.write_all(b"GET /short HTTP/1.1\r\nhost: here\r\n\r\n").unwrap();
                let mut said = Vec::new();
                while !said.ends_with(b"here") {
                    let mut byte = [0];
                    if stream.read(&mut byte).unwrap_or(0) == 0 {
                        break;
                    }
                    said.extend(byte);
                }
                String::from_utf8(said).unwrap()
            };
            let first = asked();
            std::thread::sleep(Duration::from_millis(600));
            let second = asked();
            stream.write_all(b"GET /sh").unwrap();
            (first, second, stream.read(&mut [0; 1]))
        })
        .await;
        assert!(first.ends_with("here") && second.ends_with("here"), "{first} {second}");
        assert!(is_over(&half), "half a request is not waited for: {half:?}");
    }
}
