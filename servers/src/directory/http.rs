//! A directory that one of the servers has, the router for example, and the others reach by HTTP.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use axum::extract::State;
use axum::routing::get;
use axum::{Json, Router};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use serde::de::DeserializeOwned;

use super::{Directory, LASTS, Sealed};

/// The time in which a directory answers.
const WITHIN: Duration = Duration::from_secs(1);
/// The longest answer of a directory.
const BYTES_MAX: usize = 64 << 20;
/// Entries of a directory, at most, so that strangers cannot fill the memory.
const ENTRIES_MAX: usize = 4096;

/// A directory at an address.
pub struct Http {
    address: String,
    client: reqwest::Client,
}

/// The entries of a directory that this server has. A clone is another handle to them.
#[derive(Clone, Default)]
pub struct Table(Arc<Mutex<BTreeMap<String, (Instant, Sealed)>>>);

impl Http {
    /// The directory at `HOST:PORT`.
    ///
    /// # Errors
    ///
    /// There is no client.
    pub fn new(address: String) -> Result<Self> {
        Ok(Self { address, client: reqwest::Client::builder().timeout(WITHIN).build()? })
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
        async { read(self.client.get(self.url()).send().await?).await }.boxed()
    }
}

/// Reads a good answer of JSON, and no more of it than a directory has to say.
pub async fn read<T: DeserializeOwned>(answer: reqwest::Response) -> Result<T> {
    ensure!(answer.status().is_success(), "the answer is {}", answer.status());
    read_any(answer).await
}

/// Reads an answer of JSON, good or bad.
pub async fn read_any<T: DeserializeOwned>(mut answer: reqwest::Response) -> Result<T> {
    let mut bytes = Vec::new();
    while let Some(more) = answer.chunk().await? {
        ensure!(bytes.len() + more.len() <= BYTES_MAX, "an answer of more than {BYTES_MAX} bytes");
        bytes.extend_from_slice(&more);
    }
    serde_json::from_slice(&bytes).context("an answer that is no JSON of a directory")
}

impl Table {
    /// The route by which others reach this directory.
    pub fn routes(&self) -> Router {
        let put = async |State(table): State<Self>, Json(entry): Json<Sealed>| table.put(entry);
        let all = async |State(table): State<Self>| Json(table.all());
        Router::new().route("/directory", get(all).put(put)).with_state(self.clone())
    }

    fn put(&self, entry: Sealed) -> axum::http::StatusCode {
        let mut table = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        table.retain(|_, (since, _)| since.elapsed() < LASTS);
        if table.len() >= ENTRIES_MAX && !table.contains_key(&entry.name) {
            return axum::http::StatusCode::INSUFFICIENT_STORAGE;
        }
        table.insert(entry.name.clone(), (Instant::now(), entry));
        axum::http::StatusCode::NO_CONTENT
    }

    fn all(&self) -> Vec<Sealed> {
        let table = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let live = table.values().filter(|(since, _)| since.elapsed() < LASTS);
        live.map(|(_, entry)| entry.clone()).collect()
    }
}

impl Directory for Table {
    fn announce<'a>(&'a self, entry: &'a Sealed) -> BoxFuture<'a, Result<()>> {
        let status = self.put(entry.clone());
        async move {
            ensure!(status.is_success(), "the directory is full");
            Ok(())
        }
        .boxed()
    }

    fn entries(&self) -> BoxFuture<'_, Result<Vec<Sealed>>> {
        let all = self.all();
        async move { Ok(all) }.boxed()
    }
}
