//! A server inside a program: for tests, and for measurements without a second process.

use super::{App, bind, listen, runtime};
use std::future::pending;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use tokio::runtime::Runtime;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// A server in this process, on a port of 127.0.0.1 that is free. When this is dropped, what is under way is cut off.
pub struct InProcess {
    address: SocketAddr,
    end: Option<oneshot::Sender<()>>,
    served: JoinHandle<()>,
    runtime: Option<Runtime>,
}

impl InProcess {
    /// Starts it on threads of its own.
    ///
    /// # Errors
    /// If there are no threads or no port to be had.
    pub fn start(app: Arc<App>) -> std::io::Result<Self> {
        let runtime = runtime()?;
        let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let listening = runtime.block_on(async { listen(bind(any)?, app) })?;
        let address = listening.address()?;
        let (end, ended) = oneshot::channel();
        let served = runtime.spawn(listening.serve(async {
            if ended.await.is_err() {
                // Whoever could say so is gone, and the runtime with him.
                pending().await
            }
        }));
        Ok(InProcess { address, end: Some(end), served, runtime: Some(runtime) })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Tells it to end: it takes no more requests and finishes those there are, as on ctrl-c.
    pub fn end(&mut self) {
        if let Some(end) = self.end.take() {
            // It may have ended already.
            let _ = end.send(());
        }
    }

    /// Whether it has ended.
    pub fn has_ended(&self) -> bool {
        self.served.is_finished()
    }
}

impl Drop for InProcess {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}
