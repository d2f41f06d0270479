//! What was refused, in Anthropic's words.

use crate::api::ApiError;
use crate::api::error::{TOO_LONG, Told};
use axum::http::StatusCode;
use serde::Serialize;
use utoipa::ToSchema;

/// Anthropic's envelope; `param` and `code` are in it as in OpenAI's.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct AnthropicRefusal {
    /// `"error"`
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// What went wrong.
    pub error: Told,
}

/// A problem as Anthropic tells it.
pub fn like_anthropic(problem: &ApiError) -> AnthropicRefusal {
    let mut error = problem.error.clone();
    error.kind = match problem.status {
        StatusCode::UNAUTHORIZED => "authentication_error",
        StatusCode::FORBIDDEN => "permission_error",
        StatusCode::NOT_FOUND => "not_found_error",
        StatusCode::REQUEST_TIMEOUT => "timeout_error",
        StatusCode::PAYLOAD_TOO_LARGE => "request_too_large",
        StatusCode::TOO_MANY_REQUESTS => "rate_limit_error",
        StatusCode::SERVICE_UNAVAILABLE => "overloaded_error",
        status if status.is_server_error() => "api_error",
        _ => "invalid_request_error",
    };
    if error.code == Some(TOO_LONG) {
        // What programs look for before they shorten a conversation.
        error.message = format!("prompt is too long: {}", error.message);
    }
    AnthropicRefusal { kind: "error", error }
}
