//! A directory that one of the servers has, the router for example, and the others reach by HTTP.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::get;
use axum::{Json, Router};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use rdma_collective::bootstrap::JobToken;

use super::{Directory, LASTS, Sealed};
use crate::client::{SHORT, client, read_json};

/// The time in which a directory, or a server that is asked for its entry, has answered.
pub const WITHIN: Duration = Duration::from_secs(1);
/// The longest answer of a directory.
pub(super) const BYTES_MAX: usize = 16 << 20;
/// Servers of a directory, at most.
pub const SERVERS_MAX: usize = 4096;

/// A directory at an address.
pub struct Http {
    address: String,
    client: reqwest::Client,
}

/// The entries of a directory that this server has. A clone is another handle to them.
#[derive(Clone)]
pub struct Table {
    token: JobToken,
    entries: Arc<Mutex<BTreeMap<String, Announced>>>,
}

/// An entry, and its announcement.
struct Announced {
    since: Instant,
    /// End of the entry.
    until: u64,
    sealed: Sealed,
}

impl Announced {
    fn is_live(&self) -> bool {
        self.since.elapsed() < LASTS
    }
}

impl Http {
    /// The directory at `HOST:PORT`.
    ///
    /// # Errors
    ///
    /// There is no client.
    pub fn new(address: String) -> Result<Self> {
        Ok(Self { address, client: client(Some(WITHIN))? })
    }

    fn url(&self) -> String {
        format!("http://{}/directory", self.address)
    }
}

impl Directory for Http {
    fn announce<'a>(&'a self, entry: &'a Sealed) -> BoxFuture<'a, Result<()>> {
        async {
            let answer = self.client.put(self.url()).json(entry).send().await?;
            ensure!(answer.status().is_success(), "the directory says {}", answer.status());
            Ok(())
        }
        .boxed()
    }

    fn entries(&self) -> BoxFuture<'_, Result<Vec<Sealed>>> {
        async { read_json(self.client.get(self.url()).send().await?, BYTES_MAX).await }.boxed()
    }
}

/// The entry of the server at an address, which says for itself what it is.
pub async fn entry_at(client: &reqwest::Client, address: &str) -> Option<Sealed> {
    read_json(client.get(format!("http://{address}/entry")).send().await.ok()?, SHORT).await.ok()
}

impl Table {
    /// An empty directory for the servers that have this token.
    #[must_use]
    pub fn new(token: JobToken) -> Self {
        Self { token, entries: Arc::default() }
    }

    /// The route by which others reach this directory.
    pub fn routes(&self) -> Router {
        let put = async |State(table): State<Self>, Json(entry): Json<Sealed>| table.put(entry);
        let all = async |State(table): State<Self>| Json(table.all());
        Router::new().route("/directory", get(all).put(put)).with_state(self.clone())
    }

    /// Takes an entry, unless a later one of its server is there. Without its seal a stranger could put itself in the
    /// place of a server, or fill the memory.
    fn put(&self, sealed: Sealed) -> StatusCode {
        let Ok(entry) = sealed.open(&self.token) else { return StatusCode::FORBIDDEN };
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        entries.retain(|_, announced| announced.is_live());
        if entries.len() >= SERVERS_MAX && !entries.contains_key(&entry.name) {
            return StatusCode::INSUFFICIENT_STORAGE;
        }
        if entries.get(&entry.name).is_none_or(|other| other.until <= entry.until) {
            let announced = Announced { since: Instant::now(), until: entry.until, sealed };
            entries.insert(entry.name, announced);
        }
        StatusCode::NO_CONTENT
    }

    fn all(&self) -> Vec<Sealed> {
        let entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        let live = entries.values().filter(|announced| announced.is_live());
        live.map(|announced| announced.sealed.clone()).collect()
    }
}

impl Directory for Table {
    fn announce<'a>(&'a self, entry: &'a Sealed) -> BoxFuture<'a, Result<()>> {
        let status = self.put(entry.clone());
        async move {
            ensure!(status.is_success(), "the directory says {status}");
            Ok(())
        }
        .boxed()
    }

    fn entries(&self) -> BoxFuture<'_, Result<Vec<Sealed>>> {
        let all = self.all();
        async move { Ok(all) }.boxed()
    }
}
