//! Figures that a server tells of itself at `GET /stats`.

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::Result;
use axum::routing::get;
use axum::{Json, Router};
use rdma_collective::kv::KvNode;
use serde::{Deserialize, Serialize};

use crate::cache::Blocks;
use crate::directory::read;

/// The figures of a prefill, a decode or a single process.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Stats {
    /// The blocks of its cache.
    pub blocks: Counts,
    /// Bytes that have come over each link, by the names of its ends. Decodes alone have them.
    pub links: Vec<(String, u64)>,
    /// The servers that its node has met.
    pub met: Vec<String>,
    /// The last prompt that another server computed for this one.
    pub last: Option<Came>,
}

/// The numbers of a cache's blocks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Blocks that no text has and no transfer holds: free, or kept for the next text. Once no request is under way,
    /// these are all; otherwise some have leaked.
    pub idle: usize,
    /// All blocks.
    pub all: usize,
}

/// The way of a prompt that a prefill has computed for a decode, in seconds.
///
/// `tail` compares the clocks of two servers, so that it means something on one host alone.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Came {
    /// From the prompt's coming to the first token's being here, with all blocks.
    pub all: f64,
    /// Until the grant had begun, before which prefill is not asked.
    pub grant: f64,
    /// From the last layer's being computed, and the first token chosen, to the token's being here.
    pub tail: f64,
}

impl Stats {
    /// The figures of a cache, and of a node if there is one.
    #[must_use]
    pub fn of(blocks: &Blocks, node: Option<&KvNode>) -> Self {
        let met = node.map(KvNode::peers).unwrap_or_default();
        let met = met.iter().map(ToString::to_string).collect();
        let blocks = Counts { idle: blocks.idle(), all: blocks.all() };
        Self { blocks, met, ..Self::default() }
    }

    /// Asks the server at an address.
    ///
    /// # Errors
    ///
    /// The server does not answer, or has no figures.
    pub async fn ask(client: &reqwest::Client, address: SocketAddr) -> Result<Self> {
        read(client.get(format!("http://{address}/stats")).send().await?).await
    }
}

/// Something that has figures.
pub trait HasStats: Send + Sync + 'static {
    /// The figures now.
    fn stats(&self) -> Stats;
}

/// The route at which a server says them.
pub fn routes<S: HasStats>(server: Arc<S>) -> Router {
    Router::new().route("/stats", get(async move || Json(server.stats())))
}
