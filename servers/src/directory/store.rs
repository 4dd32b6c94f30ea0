//! A directory in the library's rendezvous store, for jobs that have one: each server is a rank of it.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use rdma_collective::bootstrap::{BootstrapError, StoreClient};
use rdma_core::Deadline;
use tokio::sync::Mutex;
use tokio::task::spawn_blocking;

use super::{Directory, Sealed};

/// The time in which the store takes an entry.
const WITHIN: Duration = Duration::from_secs(1);
/// The time for an entry of another server, which may not have announced itself yet.
const MISSING_WITHIN: Duration = Duration::from_millis(20);

/// The directory in a store.
pub struct Store {
    /// In the order of the calls, so that a server announces itself before it looks for those that are missing.
    client: Arc<Mutex<StoreClient>>,
}

impl Store {
    /// The directory in the store of this client, whose rank is that of the server.
    #[must_use]
    pub fn new(client: StoreClient) -> Self {
        Self { client: Arc::new(Mutex::new(client)) }
    }
}

fn key(rank: u32) -> String {
    format!("servers/{rank}")
}

impl Directory for Store {
    fn announce<'a>(&'a self, entry: &'a Sealed) -> BoxFuture<'a, Result<()>> {
        let client = Arc::clone(&self.client);
        async move {
            let entry = serde_json::to_vec(entry)?;
            let mut client = client.lock_owned().await;
            let set = move || {
                let key = key(client.rank());
                client.set(&key, &entry, Deadline::after(WITHIN))
            };
            Ok(spawn_blocking(set).await??)
        }
        .boxed()
    }

    fn entries(&self) -> BoxFuture<'_, Result<Vec<Sealed>>> {
        let client = Arc::clone(&self.client);
        async move {
            let mut client = client.lock_owned().await;
            let get = move || {
                let mut entries = Vec::new();
                for rank in 0..client.world() {
                    match client.get(&key(rank), Deadline::after(MISSING_WITHIN)) {
                        Ok(entry) => entries.extend(serde_json::from_slice(&entry).ok()),
                        Err(BootstrapError::KeyMissing { .. }) => {}
                        Err(error) => return Err(error.into()),
                    }
                }
                Ok(entries)
            };
            spawn_blocking(get).await?
        }
        .boxed()
    }
}
