//! Connections, and how the server ends.

use super::{App, router};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpSocket};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval};
use tracing::{debug, info, warn};

/// Connections at once. More wait to be accepted.
const MOST_CONNECTIONS: usize = 1_024;

/// How long a client may take to send a request's headers, and how large they may be.
const HEADERS_IN: Duration = Duration::from_secs(15);
const MOST_HEADER_BYTES: usize = 64 << 10;
const MOST_HEADERS: usize = 100;

/// How long requests under way may take to finish once the server is to end.
const DRAIN_IN: Duration = Duration::from_secs(30);

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

    /// Serves until `end`; then takes no more requests, and waits half a minute for those there are.
    pub async fn serve(self, end: impl Future<Output = ()>) {
        let Listening { listener, app } = self;
        let service = TowerToHyperService::new(router(app.clone()));
        let mut http = http1::Builder::new();
        http.timer(TokioTimer::new()).header_read_timeout(HEADERS_IN);
        http.max_buf_size(MOST_HEADER_BYTES).max_headers(MOST_HEADERS);
        let graceful = GracefulShutdown::new();
        // Ends with this.
        let mut beside = JoinSet::new();
        beside.spawn(sum_up(app.clone()));
        let places = Arc::new(Semaphore::new(MOST_CONNECTIONS));
        let mut end = std::pin::pin!(end);
        loop {
            let place = places.clone().acquire_owned().await;
            let accepted = tokio::select! {
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
            let connection = http.serve_connection(TokioIo::new(stream), service.clone());
            let connection = graceful.watch(connection);
            tokio::spawn(async move {
                let _place = place;
                if let Err(problem) = connection.await {
                    debug!(%problem, "a connection broke");
                }
            });
        }
        drop(listener);
        info!("finishing what is under way, for {} seconds at most", DRAIN_IN.as_secs());
        app.drain();
        let done = async {
            graceful.shutdown().await;
            app.engine.drained().await;
        };
        if tokio::time::timeout(DRAIN_IN, done).await.is_err() {
            warn!("some requests were cut off");
        }
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
