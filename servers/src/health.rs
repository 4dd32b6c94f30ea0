//! Health: the answer of a server to `GET /health`.

use std::sync::Arc;

use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};

use crate::api::MODEL;
use crate::directory::Role;
use crate::model::Config;
use crate::observe::{Cache, Stats};

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

/// The health of a server, asked again and again.
pub struct Probe {
    /// The name.
    pub name: String,
    /// The part.
    pub role: Role,
    /// The shape of the model.
    pub config: Config,
    /// The figures, among them those of the cache.
    pub stats: Arc<Stats>,
    /// Says why the server cannot answer now, if so.
    pub cannot: Box<dyn Fn() -> Option<String> + Send + Sync>,
}

impl Probe {
    /// The health, now: 503 when the server cannot answer, so that a balancer leaves it out.
    #[must_use]
    pub fn answer(&self) -> Response {
        let Self { name, role, config, stats, .. } = self;
        let (model, cannot, cache) = (MODEL.to_owned(), (self.cannot)(), stats.cache());
        let status = if cannot.is_some() { StatusCode::SERVICE_UNAVAILABLE } else { StatusCode::OK };
        let health = Health { name: name.clone(), role: *role, model, config: *config, cannot, cache };
        (status, Json(health)).into_response()
    }
}
