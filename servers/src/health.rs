//! Health: the answer of a server to `GET /health`.

use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};

use crate::api::MODEL;
use crate::batch::Computed;
use crate::cache::Blocks;
use crate::directory::Role;
use crate::model::Config;

/// A server, and whether it can answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Health {
    /// The name.
    pub name: String,
    /// The part.
    pub role: Role,
    /// The name of its model.
    pub model: String,
    /// The shape of its model, and the seed of the weights.
    pub config: Config,
    /// The reason why it cannot answer, if it cannot.
    pub cannot: Option<String>,
    /// The cache; none of a server without one.
    pub cache: Option<Cache>,
}

/// The cache of a server, and the work on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cache {
    /// Blocks.
    pub blocks: usize,
    /// Blocks that no text has and that no transfer holds. Some are kept for texts that begin alike.
    pub idle: usize,
    /// Texts that have blocks or wait for some.
    pub texts: usize,
    /// Tokens that were computed since the server has started, prompts' and answers'.
    pub computed: u64,
}

/// The health of a server, asked again and again.
pub struct Probe {
    /// The name.
    pub name: String,
    /// The part.
    pub role: Role,
    /// The shape of the model.
    pub config: Config,
    /// The cache.
    pub cache: Option<(Blocks, Computed)>,
    /// Says why the server cannot answer now, if so.
    pub cannot: Box<dyn Fn() -> Option<String> + Send + Sync>,
}

impl Probe {
    /// The health, now: 503 when the server cannot answer, so that a balancer leaves it out.
    #[must_use]
    pub fn answer(&self) -> Response {
        let cache = self.cache.as_ref().map(|(blocks, computed)| Cache {
            blocks: blocks.all(),
            idle: blocks.idle(),
            texts: blocks.texts(),
            computed: computed.get(),
        });
        let Self { name, role, config, .. } = self;
        let (model, cannot) = (MODEL.to_owned(), (self.cannot)());
        let status = if cannot.is_some() { StatusCode::SERVICE_UNAVAILABLE } else { StatusCode::OK };
        let health = Health { name: name.clone(), role: *role, model, config: *config, cannot, cache };
        (status, Json(health)).into_response()
    }
}
