//! Refusals, in the shape that OpenAI's clients read.

use std::fmt;

use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

/// A request that is not answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refused {
    /// The status.
    pub status: StatusCode,
    /// The reason, for a person.
    pub message: String,
    /// The field that is wrong, if it is one.
    pub param: Option<&'static str>,
}

impl Refused {
    /// A field, or the request as a whole, is wrong.
    pub fn request(param: impl Into<Option<&'static str>>, message: impl Into<String>) -> Self {
        Self { status: StatusCode::BAD_REQUEST, message: message.into(), param: param.into() }
    }

    /// The thing that is asked for is not there.
    pub fn not_found(message: impl Into<String>) -> Self {
        Self { status: StatusCode::NOT_FOUND, message: message.into(), param: None }
    }

    /// The path takes other methods.
    pub fn method() -> Self {
        let message = "this path takes another method".to_owned();
        Self { status: StatusCode::METHOD_NOT_ALLOWED, message, param: None }
    }

    /// The server cannot answer now. Another one may, or this one later.
    pub fn unavailable(message: impl Into<String>) -> Self {
        Self { status: StatusCode::SERVICE_UNAVAILABLE, message: message.into(), param: None }
    }

    /// The server has failed.
    pub fn internal(message: impl Into<String>) -> Self {
        Self { status: StatusCode::INTERNAL_SERVER_ERROR, message: message.into(), param: None }
    }

    /// The body of the answer.
    #[must_use]
    pub fn body(&self) -> Value {
        let kind = match self.status {
            StatusCode::BAD_REQUEST | StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED => {
                "invalid_request_error"
            }
            StatusCode::TOO_MANY_REQUESTS => "rate_limit_error",
            _ => "server_error",
        };
        json!({ "error": { "message": self.message, "type": kind, "param": self.param, "code": self.status.as_u16() } })
    }
}

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        (self.status, Json(self.body())).into_response()
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}
