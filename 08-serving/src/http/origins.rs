//! Pages of others, and what their browsers let them ask (CORS).

use super::request_id::REQUEST_ID;
use axum::http::uri::Scheme;
use axum::http::{HeaderValue, Method, Uri, header};
use std::time::Duration;
use tower_http::cors::{AllowHeaders, AllowOrigin, CorsLayer};

/// How long a browser need not ask again.
const KNOWN_FOR: Duration = Duration::from_secs(600);

/// A place that pages come from: scheme, host and port, or all places.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// Wherever they come from.
    Any,
    /// From there.
    One(HeaderValue),
}

impl std::str::FromStr for Origin {
    type Err = String;

    /// As browsers write it: `https://example.org`, `http://localhost:3000`; or `*`.
    fn from_str(written: &str) -> Result<Self, String> {
        if written == "*" {
            return Ok(Origin::Any);
        }
        let refused = || "expected * or an origin such as https://example.org".to_owned();
        let uri: Uri = written.parse().map_err(|_| refused())?;
        let (scheme, authority) = uri.scheme_str().zip(uri.authority()).ok_or_else(refused)?;
        // Browsers send neither a path nor capitals, nor the port that the scheme has anyway.
        let origin = format!("{scheme}://{authority}").to_ascii_lowercase();
        if authority.as_str().contains(['@', '*']) || origin != written.to_ascii_lowercase() {
            return Err(refused());
        }
        let usual = if uri.scheme() == Some(&Scheme::HTTPS) { ":443" } else { ":80" };
        let origin = origin.strip_suffix(usual).unwrap_or(&origin);
        HeaderValue::from_str(origin).map(Origin::One).map_err(|_| refused())
    }
}

/// Tells browsers that pages from these places may ask; none if no page of others may.
pub(super) fn layer(origins: &[Origin]) -> Option<CorsLayer> {
    let one = |origin: &Origin| match origin {
        Origin::One(origin) => Some(origin.clone()),
        Origin::Any => None,
    };
    let listed: Option<Vec<HeaderValue>> = origins.iter().map(one).collect();
    let allowed = match listed {
        Some(listed) if listed.is_empty() => return None,
        Some(listed) => AllowOrigin::list(listed),
        None => AllowOrigin::any(),
    };
    let layer = CorsLayer::new()
        .allow_origin(allowed)
        .allow_methods([Method::GET, Method::POST])
        // Clients have headers of their own, and `*` would leave out the one that a key comes in.
        .allow_headers(AllowHeaders::mirror_request())
        .expose_headers([header::RETRY_AFTER, REQUEST_ID])
        .max_age(KNOWN_FOR);
    Some(layer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_origin_is_a_scheme_a_host_and_perhaps_a_port() {
        assert_eq!("*".parse(), Ok(Origin::Any));
        for (written, sent) in [
            ("https://example.org", "https://example.org"),
            ("HTTP://Localhost:3000", "http://localhost:3000"),
            ("https://example.org:443", "https://example.org"),
            ("http://localhost:80", "http://localhost"),
            ("http://localhost:443", "http://localhost:443"),
        ] {
            let sent = HeaderValue::from_static(sent);
            assert_eq!(written.parse(), Ok(Origin::One(sent)), "{written}");
        }
        for written in [
            "",
            "null",
            "example.org",
            "https://",
            "https://example.org/",
            "https://example.org/page",
            "https://ada@example.org",
            "https://*.example.org",
        ] {
            let refused = written.parse::<Origin>();
            assert!(refused.is_err_and(|said| said.contains("https://example.org")), "{written}");
        }
    }
}
