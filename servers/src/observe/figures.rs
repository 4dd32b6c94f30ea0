//! Figures that a server tells of itself at `GET /stats`.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use anyhow::Result;
use serde::{Deserialize, Serialize};

use crate::cache::Counts;
use crate::client::read_json;

/// The longest answer: a link has some hundred bytes.
const BYTES_MAX: usize = 1 << 20;

/// The part of `/stats` by which tests and the demo follow a server from outside.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Figures {
    /// Texts that have ended, by outcome.
    pub requests: BTreeMap<String, u64>,
    /// Times that a text lost the server that had it.
    pub lost: u64,
    /// The blocks of its cache.
    pub blocks: Counts,
    /// Bytes of blocks that came or went.
    pub kv_bytes: u64,
    /// Bytes that have come over each link, by the names of its ends.
    pub links: Vec<(String, u64)>,
    /// The servers that its node has met.
    pub met: Vec<String>,
    /// The last prompt that another server computed for this one.
    pub last: Option<Came>,
}

/// The cache of a server, and the work on it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cache {
    /// The blocks.
    pub blocks: Counts,
    /// Tokens that were computed since the server has started, prompts' and answers'.
    pub computed: u64,
}

/// The way of a prompt that a prefill has computed for a decode, in seconds.
///
/// `tail` compares the clocks of two servers, so that it means something on one host alone.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Came {
    /// Time from the prompt's coming to the first token's being here, with all blocks.
    pub all: f64,
    /// Time until the grant had begun, before which prefill is not asked.
    pub grant: f64,
    /// Time from the last layer's being computed, and the first token chosen, to the token's being here.
    pub tail: f64,
}

impl Figures {
    /// Asks the server at an address.
    ///
    /// # Errors
    ///
    /// The server does not answer, or has no figures.
    pub async fn ask(client: &reqwest::Client, address: SocketAddr) -> Result<Self> {
        read_json(client.get(format!("http://{address}/stats")).send().await?, BYTES_MAX).await
    }
}
