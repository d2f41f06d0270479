//! The web page: part of the program, so that it needs nothing from elsewhere.

use axum::http::header;
use axum::response::IntoResponse;

/// What the page may do: load from here, and nothing else.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
    img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

fn file(kind: &'static str, text: &'static str) -> impl IntoResponse {
    let headers = [
        (header::CONTENT_TYPE, kind),
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::CACHE_CONTROL, "no-cache"),
    ];
    (headers, text)
}

pub(super) async fn index() -> impl IntoResponse {
    file("text/html; charset=utf-8", include_str!("../page/index.html"))
}

pub(super) async fn style() -> impl IntoResponse {
    file("text/css; charset=utf-8", include_str!("../page/page.css"))
}

pub(super) async fn script() -> impl IntoResponse {
    file("text/javascript; charset=utf-8", include_str!("../page/page.js"))
}
