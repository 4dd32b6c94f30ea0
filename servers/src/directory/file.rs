//! A directory that an operator writes: a file with the addresses of all servers, which is read at each look.
//!
//! Servers say for themselves what their entries are, at `GET /entry`, so that the file is right as long as the
//! addresses are. A line that is no address of a server of the job names nobody.

use std::io::Read;
use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, join_all};

use super::http::{SERVERS_MAX, WITHIN, entry_at};
use super::{Directory, Sealed};
use crate::client::client;

/// The longest file.
const BYTES_MAX: u64 = 1 << 20;

/// A file of addresses, one a line. Text behind `#` is for people.
pub struct File {
    path: PathBuf,
    client: reqwest::Client,
}

impl File {
    /// The directory in a file.
    ///
    /// # Errors
    ///
    /// The file cannot be read.
    pub fn new(path: PathBuf) -> Result<Self> {
        let file = Self { path, client: client(Some(WITHIN))? };
        file.addresses()?;
        Ok(file)
    }

    fn addresses(&self) -> Result<Vec<String>> {
        let text =
            self.text().with_context(|| format!("cannot read the directory {}", self.path.display()))?;
        let lines = text.lines().map(|line| line.split('#').next().unwrap_or_default().trim());
        let addresses: Vec<_> = lines.filter(|line| !line.is_empty()).map(str::to_owned).collect();
        let (count, path) = (addresses.len(), self.path.display());
        ensure!(count <= SERVERS_MAX, "the directory {path} has {count} addresses, more than {SERVERS_MAX}");
        Ok(addresses)
    }

    fn text(&self) -> Result<String> {
        // To open a pipe would wait for somebody who writes.
        ensure!(std::fs::metadata(&self.path)?.is_file(), "it is no file");
        let mut text = String::new();
        std::fs::File::open(&self.path)?.take(BYTES_MAX + 1).read_to_string(&mut text)?;
        ensure!(text.len() as u64 <= BYTES_MAX, "it has more than {BYTES_MAX} bytes");
        Ok(text)
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
            let entries = join_all(addresses.iter().map(|address| entry_at(&self.client, address))).await;
            Ok(entries.into_iter().flatten().collect())
        }
        .boxed()
    }
}
