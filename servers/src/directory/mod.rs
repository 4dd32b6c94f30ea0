//! The directory: which servers there are, and how to reach them.
//!
//! An entry lasts for a time and is announced again before, so that the entry of a dead process is gone soon. It is
//! sealed with the job's token, so that a directory which lies costs a search, and nothing else.

mod entry;
#[cfg(feature = "etcd")]
mod etcd;
mod file;
mod http;
mod store;

use std::time::Duration;

use anyhow::Result;
use futures_util::future::BoxFuture;

pub use entry::{Entry, Role, Sealed, hex};
#[cfg(feature = "etcd")]
pub use etcd::Etcd;
pub use file::File;
pub use http::{Http, Table, WITHIN, entry_at};
pub use store::Store;

/// The time that an entry lasts.
pub const LASTS: Duration = Duration::from_secs(3);
/// The pause between two announcements of an entry, and between two looks for those of others.
pub const PAUSE: Duration = Duration::from_millis(500);

/// Something that tells servers of each other.
pub trait Directory: Send + Sync + 'static {
    /// Announces an entry, in the place of an earlier one of its name.
    ///
    /// # Errors
    ///
    /// The directory is away, or full. Announce again later.
    fn announce<'a>(&'a self, entry: &'a Sealed) -> BoxFuture<'a, Result<()>>;

    /// The entries that were announced, as far as the directory knows. Some may be stale, or forged.
    ///
    /// # Errors
    ///
    /// The directory is away, or says something that is no list of entries. What was known before is still the best
    /// that is known.
    fn entries(&self) -> BoxFuture<'_, Result<Vec<Sealed>>>;
}
