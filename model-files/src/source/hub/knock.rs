//! Whether the hub's machine answers at all.

use super::{Hub, HubName};
use naive_decode::Result;
use std::net::{TcpStream, ToSocketAddrs};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

/// How long to wait for the hub's machine to answer at all.
const PATIENCE: Duration = Duration::from_secs(10);

impl Hub {
    /// Finds out within [`PATIENCE`] whether the hub's machine answers. Without this, a network
    /// that swallows everything would be waited for as long as the operating system sees fit.
    pub(super) fn knock(&self, name: &HubName) -> Result<()> {
        let proxies =
            ["HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy", "HTTP_PROXY", "http_proxy"];
        if proxies.iter().any(|proxy| std::env::var_os(proxy).is_some()) {
            // A proxy knows the way; this machine need not.
            return Ok(());
        }
        let (scheme, rest) = self.endpoint.split_once("://").unwrap_or(("https", &self.endpoint));
        let host = rest.split('/').next().unwrap_or(rest);
        let with_port = match host.contains(':') {
            true => host.to_owned(),
            false => format!("{host}:{}", if scheme == "http" { 80 } else { 443 }),
        };
        let addresses = with_port.to_socket_addrs();
        let addresses = addresses.map_err(|e| self.unreachable(name, &e.to_string()))?;
        let answers = |at| TcpStream::connect_timeout(&at, PATIENCE).is_ok();
        match any_at_once(addresses, answers) {
            true => Ok(()),
            false => Err(self.unreachable(name, &format!("{with_port} does not answer"))),
        }
    }
}

/// Whether any of these is so, asked of all at once: as soon as one is, or when none was. A machine of many addresses
/// is waited for as long as one of one.
fn any_at_once<T: Send + 'static>(
    these: impl IntoIterator<Item = T>,
    is_so: impl Fn(T) -> bool + Clone + Send + 'static,
) -> bool {
    let (tell, told) = mpsc::channel();
    for this in these {
        let (is_so, tell) = (is_so.clone(), tell.clone());
        // Whoever comes after the first has nobody to tell.
        thread::spawn(move || is_so(this).then(|| tell.send(()).ok()));
    }
    drop(tell);
    told.recv().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Arc, Mutex};

    #[test]
    fn all_addresses_are_tried_at_once() {
        // The first waits for the second to be tried: one after the other, it would wait in vain.
        let (tell, told) = mpsc::channel();
        let told = Arc::new(Mutex::new(told));
        let answers = move |address| match address {
            "swallows" => told.lock().unwrap().recv_timeout(PATIENCE).is_ok(),
            _ => tell.send(()).is_err(),
        };
        assert!(any_at_once(["swallows", "refuses"], answers));
        assert!(any_at_once([false, true, false], |answers| answers));
        assert!(!any_at_once([false, false], |answers| answers));
        assert!(!any_at_once([], |answers| answers));
    }
}
