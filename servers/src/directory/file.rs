//! A directory that an operator writes: a file with the addresses of all servers, read anew when it changes.
//!
//! Servers say for themselves what their entries are, at `GET /entry`, so that the file is right as long as the
//! addresses are.

use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result};
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, join_all};

use super::{Directory, Sealed};

/// The time in which a server says what its entry is.
const WITHIN: Duration = Duration::from_secs(1);
/// The longest file.
const BYTES_MAX: u64 = 1 << 20;

/// A file of addresses, one a line. Text behind `#` is for people.
pub struct File {
    path: PathBuf,
    client: reqwest::Client,
    read: Mutex<(Option<SystemTime>, Vec<String>)>,
}

impl File {
    /// The directory in a file.
    ///
    /// # Errors
    ///
    /// The file cannot be read.
    pub fn new(path: PathBuf) -> Result<Self> {
        let client = reqwest::Client::builder().timeout(WITHIN).build()?;
        let file = Self { path, client, read: Mutex::default() };
        file.addresses()?;
        Ok(file)
    }

    /// The addresses of the file, which is read if it has changed.
    fn addresses(&self) -> Result<Vec<String>> {
        let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        let context = || format!("cannot read the directory {}", self.path.display());
        let metadata = std::fs::metadata(&self.path).with_context(context)?;
        anyhow::ensure!(
            metadata.len() <= BYTES_MAX,
            "the directory {} has {} bytes",
            self.path.display(),
            metadata.len()
        );
        let changed = metadata.modified().ok();
        if changed.is_none() || read.0 != changed {
            let text = std::fs::read_to_string(&self.path).with_context(context)?;
            let lines = text.lines().map(|line| line.split('#').next().unwrap_or_default().trim());
            *read = (changed, lines.filter(|line| !line.is_empty()).map(str::to_owned).collect());
        }
        Ok(read.1.clone())
    }

    async fn entry(&self, address: &str) -> Option<Sealed> {
        let answer = self.client.get(format!("http://{address}/entry")).send().await.ok()?;
        super::read(answer).await.ok()
    }
}

impl Directory for File {
    fn announce<'a>(&'a self, _entry: &'a Sealed) -> BoxFuture<'a, Result<()>> {
        // The operator has named this server.
        async { Ok(()) }.boxed()
    }

    fn entries(&self) -> BoxFuture<'_, Result<Vec<Sealed>>> {
        async {
            let addresses = self.addresses()?;
            let entries = join_all(addresses.iter().map(|address| self.entry(address))).await;
            Ok(entries.into_iter().flatten().collect())
        }
        .boxed()
    }
}
