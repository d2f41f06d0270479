//! What was refused, in OpenAI's envelope.

use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use naive_decode::Error;
use serde::Serialize;
use utoipa::ToSchema;

/// What a program may look for where a prompt is longer than the context.
pub(crate) const TOO_LONG: &str = "context_length_exceeded";

/// A request that was refused, or that failed: status, and what the client is told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApiError {
    /// The status of the answer.
    pub status: StatusCode,
    /// What is in the answer.
    pub error: Told,
}

/// What a client is told.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = Error)]
pub struct Told {
    /// What was wrong, and what would have been right.
    pub message: String,
    /// Which kind of error.
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// Which parameter was wrong.
    pub param: Option<String>,
    /// What a program may look for.
    pub code: Option<&'static str>,
}

/// OpenAI's envelope.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct Envelope {
    /// What went wrong.
    pub error: Told,
}

impl ApiError {
    fn new(status: StatusCode, kind: &'static str, message: impl Into<String>) -> Self {
        let error = Told { message: message.into(), kind, param: None, code: None };
        ApiError { status, error }
    }

    /// A parameter that cannot be worked with: 400.
    pub fn parameter(param: impl Into<String>, message: impl Into<String>) -> Self {
        let mut refused = ApiError::new(StatusCode::BAD_REQUEST, "invalid_request_error", message);
        refused.error.param = Some(param.into());
        refused
    }

    /// `param` is `found`, expected `expected`: 400.
    pub fn value(param: &str, found: impl ToString, expected: &str) -> Self {
        let message = Error::invalid(param, found, expected).to_string();
        ApiError::parameter(param, message)
    }

    /// What a request's own text or parameters made impossible: 400, naming `param` unless the error names
    /// one by itself.
    pub fn caused_by(param: &str, error: &Error) -> Self {
        match error {
            Error::Capacity { .. } => {
                let mut refused = ApiError::parameter(param, error.to_string());
                refused.error.code = Some(TOO_LONG);
                refused
            }
            // Where files lie is no matter of the client's.
            Error::File { problem, .. } => ApiError::parameter(param, problem.as_str()),
            error => ApiError::parameter(param, error.to_string()),
        }
    }

    /// What is no request to anything that there is: a body, a path, a method.
    pub fn refused(status: StatusCode, message: impl Into<String>) -> Self {
        ApiError::new(status, "invalid_request_error", message)
    }

    /// No such model: 404.
    pub fn no_model(found: &str, there: &str) -> Self {
        let message = Error::invalid("model", found, there).to_string();
        let mut refused = ApiError::parameter("model", message);
        refused.status = StatusCode::NOT_FOUND;
        refused.error.code = Some("model_not_found");
        refused
    }

    /// No key, or a wrong one: 401.
    pub fn unauthorised() -> Self {
        let message = "API key is missing or wrong, expected `Authorization: Bearer KEY`";
        let mut refused = ApiError::new(StatusCode::UNAUTHORIZED, "authentication_error", message);
        refused.error.code = Some("invalid_api_key");
        refused
    }

    /// More requests than the queue holds: 429.
    pub fn full(message: impl Into<String>) -> Self {
        let mut refused = ApiError::new(StatusCode::TOO_MANY_REQUESTS, "rate_limit_error", message);
        refused.error.code = Some("queue_full");
        refused
    }

    /// The server is shutting down: 503.
    pub fn draining() -> Self {
        let message = "the server is shutting down and takes no new requests";
        ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "service_unavailable_error", message)
    }

    /// More connections than there are places for: 503.
    pub fn crowded() -> Self {
        let message = "all connections that the server has places for are in use";
        ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "service_unavailable_error", message)
    }

    /// What cannot be told in part was not done in the time that an answer may take: 503.
    pub fn late() -> Self {
        let message = "not done in the time that an answer may take here";
        ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "service_unavailable_error", message)
    }

    /// Something here failed: 500.
    pub fn failed(error: impl ToString) -> Self {
        ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "server_error", error.to_string())
    }

    /// The same where a parameter has another name: `names` has the one it has here, and the one there.
    pub fn by_names(mut self, names: &[(&str, &str)]) -> Self {
        let found = self.error.param.as_deref();
        if let Some(&(here, there)) = names.iter().find(|(here, _)| found == Some(here)) {
            // What is wrong is said of the parameter: it comes first.
            if let Some(rest) = self.error.message.strip_prefix(here) {
                self.error.message = format!("{there}{rest}");
            }
            self.error.param = Some(there.to_owned());
        }
        // One that is no other word may be named beside it.
        for (here, there) in names.iter().filter(|(here, _)| here.contains('_')) {
            self.error.message = self.error.message.replace(here, there);
        }
        self
    }

    /// What goes over the wire.
    pub fn envelope(&self) -> Envelope {
        Envelope { error: self.error.clone() }
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let status = self.status;
        let mut response = (status, Json(self.envelope())).into_response();
        // For whoever tells it in other words.
        response.extensions_mut().insert(self);
        let headers = response.headers_mut();
        match status {
            StatusCode::UNAUTHORIZED => {
                // A browser asks for the key when it sees this.
                let scheme = HeaderValue::from_static("Basic realm=\"API key as password\"");
                headers.insert(header::WWW_AUTHENTICATE, scheme);
            }
            StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => {
                headers.insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
            }
            _ => {}
        }
        response
    }
}
