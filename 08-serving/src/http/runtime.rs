//! The threads of the server's front.

use super::aside::PREPARING;
use crate::engine::STACK;
use tokio::runtime::{Builder, Runtime};

/// Two threads for connections, and those that prepare requests: the engine's are on the cores already.
///
/// # Errors
/// If the system gives no threads.
pub fn runtime() -> std::io::Result<Runtime> {
    let mut threads = Builder::new_multi_thread();
    threads.worker_threads(2).max_blocking_threads(PREPARING).thread_stack_size(STACK);
    threads.enable_all().build()
}
