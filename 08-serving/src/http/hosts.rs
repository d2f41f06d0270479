//! Names that a server is called by.
//!
//! A server that lets in everybody on this machine must not let in every page that a browser here has open. Browsers keep pages
//! of others out ([`super::origins`]), but a page may have its own name lead to 127.0.0.1 once it is loaded, and then ask this
//! server as if it were where the page came from (DNS rebinding). What it cannot do is call the server by another name than its
//! own.

use super::{App, Origin};
use crate::api::ApiError;
use axum::extract::{Request, State};
use axum::http::uri::Authority;
use axum::http::{StatusCode, Uri, header};
use axum::middleware::Next;
use axum::response::Response;
use std::net::IpAddr;
use std::sync::Arc;

/// Names that requests may call the server by.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Hosts {
    /// Any.
    #[default]
    Any,
    /// Addresses, names that lead nowhere outside of this network, and these.
    Near(Vec<String>),
}

/// Ends of names that nobody has in the public DNS (RFC 6761, 6762 and 8375; ICANN keeps `internal` free).
const PRIVATE: [&str; 4] = [".localhost", ".local", ".internal", ".home.arpa"];

impl Hosts {
    /// Those of a server that can be reached from its own machine alone: the name that it listens on, and where pages come from
    /// that may ask, besides what is near.
    pub fn near(listens_on: &str, origins: &[Origin]) -> Self {
        if origins.contains(&Origin::Any) {
            return Hosts::Any;
        }
        let of_page = |origin: &Origin| match origin {
            Origin::One(origin) => {
                Some(origin.to_str().ok()?.parse::<Uri>().ok()?.host()?.to_owned())
            }
            Origin::Any => None,
        };
        let names = origins.iter().filter_map(of_page).chain([listens_on.to_owned()]);
        Hosts::Near(names.map(|name| name.to_ascii_lowercase()).collect())
    }

    /// Whether a request may call it so.
    fn have(&self, called: &str) -> bool {
        let Hosts::Near(named) = self else { return true };
        let Ok(authority) = called.parse::<Authority>() else { return false };
        let host = authority.host().to_ascii_lowercase();
        let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(&host);
        let name = host.strip_suffix('.').unwrap_or(&host);
        bare.parse::<IpAddr>().is_ok()
            || !name.contains('.')
            || PRIVATE.iter().any(|end| name.ends_with(end))
            || named.iter().any(|named| named == name)
    }
}

/// Refuses requests that call the server by a name that it does not have. Programs that send none are no browsers.
pub(super) async fn check(
    State(app): State<Arc<App>>,
    request: Request,
    next: Next,
) -> Result<Response, ApiError> {
    let of_path = request.uri().authority().map(|authority| authority.as_str().as_bytes());
    let called = of_path.or_else(|| Some(request.headers().get(header::HOST)?.as_bytes()));
    if let Some(called) =
        called.map(String::from_utf8_lossy).filter(|called| !app.hosts.have(called))
    {
        let message = format!(
            "the host is {called}, expected an address, localhost or another name that only this network has: who lets in \
             everybody on this machine lets in no page that has its name lead here; --allowed-origin http://{called} lets it in, \
             and so does a key (--api-key)"
        );
        return Err(ApiError::refused(StatusCode::FORBIDDEN, message));
    }
    Ok(next.run(request).await)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_are_addresses_names_of_this_network_and_those_that_are_given() {
        let origins = ["https://Chat.example", "http://other.example:3000"];
        let origins = origins.map(|origin| origin.parse().unwrap());
        let hosts = Hosts::near("My.Machine.example", &origins);
        for called in [
            "localhost",
            "localhost:8000",
            "LOCALHOST.:8000",
            "ladder.localhost",
            "127.0.0.1:8000",
            "[::1]:8000",
            "192.168.1.7",
            "workstation:8000",
            "workstation.local",
            "host.docker.internal:8000",
            "my.machine.example:8000",
            "chat.example",
            "other.example",
        ] {
            assert!(hosts.have(called), "{called}");
        }
        for called in [
            "page.example",
            "page.example:8000",
            "chat.example.page.example",
            "localhost.page.example:8000",
            "127.0.0.1.page.example",
            "local.example",
            "user@page.example",
            "localhost/@page.example",
            "",
        ] {
            assert!(!hosts.have(called), "{called}");
        }
        assert!(Hosts::Any.have("page.example"));
        assert_eq!(Hosts::near("localhost", &[Origin::Any]), Hosts::Any);
    }
}
