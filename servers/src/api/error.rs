//! Refusals, in the shape that OpenAI's clients read.

use std::borrow::Cow;
use std::fmt;

use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

use super::MODEL;
use crate::cache::NoBlocks;

/// Code of a text that is longer than the model, or the cache of a server, has room for.
pub const LONGER: &str = "context_length_exceeded";
/// Seconds after which a client whose request was not taken asks again.
const RETRY_AFTER: HeaderValue = HeaderValue::from_static("1");

/// A request that is not answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refused {
    /// The status.
    pub status: StatusCode,
    /// The reason, for a program.
    pub code: Cow<'static, str>,
    /// The reason, for a person.
    pub message: String,
    /// The field that is wrong, if it is one.
    pub param: Option<Cow<'static, str>>,
}

impl Refused {
    /// A refusal that names no field.
    pub fn new(status: StatusCode, code: impl Into<Cow<'static, str>>, message: impl Into<String>) -> Self {
        Self { status, code: code.into(), message: message.into(), param: None }
    }

    /// The refusal of a value that a field cannot have.
    pub fn field(param: impl Into<Cow<'static, str>>, message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "invalid_value", message).of(param)
    }

    /// The refusal of a request that is wrong as a whole.
    pub fn request(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "invalid_request", message)
    }

    /// The refusal of a model that is not there.
    #[must_use]
    pub fn no_model(name: &str) -> Self {
        let message = format!("there is no model {name}; this server has {MODEL}");
        Self::new(StatusCode::NOT_FOUND, "model_not_found", message).of("model")
    }

    /// The refusal of a server that cannot answer now. Another one may, or this one later.
    pub fn unavailable(message: impl Into<String>) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "unavailable", message)
    }

    /// The refusal of a server that has failed.
    pub fn internal(message: impl Into<String>) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "server_error", message)
    }

    /// The refusal, because of a field.
    #[must_use]
    pub fn of(self, param: impl Into<Cow<'static, str>>) -> Self {
        Self { param: Some(param.into()), ..self }
    }

    /// The refusal, with another code.
    #[must_use]
    pub fn code(self, code: &'static str) -> Self {
        Self { code: code.into(), ..self }
    }

    /// The refusal that another server has put into its answer, which had this status.
    #[must_use]
    pub fn read(status: StatusCode, body: &Value) -> Self {
        let text = |name: &str| body.get("error")?.get(name)?.as_str().map(str::to_owned);
        let code = text("code").unwrap_or_else(|| "server_error".to_owned());
        let refused =
            Self::new(status, code, text("message").unwrap_or_else(|| "it says no more".to_owned()));
        Self { param: text("param").map(Cow::Owned), ..refused }
    }

    /// Whether the server has too many requests, so that the same one may be answered later.
    #[must_use]
    pub fn is_for_now(&self) -> bool {
        self.status == StatusCode::TOO_MANY_REQUESTS
    }

    /// The body of the answer.
    #[must_use]
    pub fn body(&self) -> Value {
        let kind = match self.status {
            StatusCode::TOO_MANY_REQUESTS => "rate_limit_error",
            status if status.is_client_error() => "invalid_request_error",
            _ => "server_error",
        };
        json!({ "error": { "message": self.message, "type": kind, "param": self.param, "code": self.code } })
    }
}

impl From<NoBlocks> for Refused {
    fn from(error: NoBlocks) -> Self {
        let message = error.to_string();
        match error {
            NoBlocks::Larger { .. } => Self::field("max_tokens", message).code(LONGER),
            NoBlocks::Full { .. } | NoBlocks::Late => {
                Self::new(StatusCode::TOO_MANY_REQUESTS, "too_many_requests", message)
            }
        }
    }
}

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        let later = matches!(self.status, StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE);
        let mut response = (self.status, Json(self.body())).into_response();
        if later {
            response.headers_mut().insert(header::RETRY_AFTER, RETRY_AFTER);
        }
        response
    }
}

impl std::error::Error for Refused {}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}
