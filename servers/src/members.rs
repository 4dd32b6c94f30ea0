//! The servers of a job, as one of them knows them: from the directory, from themselves, and by their nodes.
//!
//! A server that the directory does not name is asked itself, at `GET /entry`, so that a directory which is away, has
//! lost its data or is cut off from a server hides nobody who can be reached. A server that neither the directory names
//! nor answers itself is known until its entry ends, and while the directory is away for [`REMEMBERED`] more, because
//! a server that is slow just now would otherwise be lost as long as the directory is. Such a server is *in doubt*: it
//! is tried when all others have failed.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::future::join_all;
use rdma_collective::bootstrap::JobToken;
use rdma_collective::kv::KvNode;
use rdma_core::Deadline;

use crate::client::client;
use crate::directory::{Directory, Entry, LASTS, PAUSE, Role, Sealed, WITHIN, entry_at};

/// The time in which two nodes meet. One that has gone takes all of it.
const MEET_WITHIN: Duration = Duration::from_secs(2);
/// The time for which an entry that has ended is known, while the directory is away and its server silent.
pub const REMEMBERED: Duration = Duration::from_secs(60);

/// The servers that are known. A clone is another handle to the same list.
#[derive(Clone)]
pub struct Members {
    inner: Arc<Inner>,
}

struct Inner {
    token: JobToken,
    directory: Box<dyn Directory>,
    client: reqwest::Client,
    known: Mutex<BTreeMap<String, Known>>,
    turn: AtomicUsize,
}

#[derive(Clone)]
struct Known {
    entry: Entry,
    in_doubt: bool,
}

impl Members {
    /// The servers of a directory. None is known before [`keep`](Self::keep) runs.
    ///
    /// # Errors
    ///
    /// There is no client.
    pub fn new(token: JobToken, directory: Box<dyn Directory>) -> anyhow::Result<Self> {
        let (client, known, turn) = (client(Some(WITHIN))?, Mutex::default(), AtomicUsize::new(0));
        Ok(Self { inner: Arc::new(Inner { token, directory, client, known, turn }) })
    }

    /// Announces a server and looks for the others, for ever. Its node, if it has one, meets those
    /// of a role.
    pub async fn keep(self, own: Entry, node: Option<(KvNode, Role)>) {
        loop {
            let announced = async {
                let sealed = own.seal(&self.inner.token, LASTS)?;
                self.inner.directory.announce(&sealed).await
            };
            // Beside each other, because a directory that is silent takes the time of both.
            let (announced, ()) = tokio::join!(announced, self.look(&own.name));
            if let Err(error) = announced {
                tracing::warn!(
                    name = own.name,
                    error = format!("{error:#}"),
                    "the directory does not take this server"
                );
            }
            if let Some((node, meets)) = &node {
                self.all(*meets).iter().for_each(|entry| meet(node, entry));
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Reads the directory, and asks the servers themselves that it does not name.
    async fn look(&self, own: &str) {
        let named = self.inner.directory.entries().await;
        let remembered = if named.is_err() { REMEMBERED } else { Duration::ZERO };
        let named = named.unwrap_or_else(|error| {
            tracing::warn!(error = format!("{error:#}"), "the directory is away");
            Vec::new()
        });
        let mut found = BTreeMap::<String, Known>::new();
        self.add(&mut found, named);
        let known: Vec<_> = self.lock().values().cloned().collect();
        let unnamed: Vec<_> = known.iter().filter(|known| !found.contains_key(&known.entry.name)).collect();
        let answers = unnamed.iter().map(|known| entry_at(&self.inner.client, &known.entry.http));
        self.add(&mut found, join_all(answers).await.into_iter().flatten());
        let mut list = self.lock();
        for (name, Known { entry, in_doubt }) in std::mem::take(&mut *list) {
            match found.get_mut(&name) {
                // A server that has failed is in doubt until it announces itself anew.
                Some(found) if found.entry.until <= entry.until => *found = Known { entry, in_doubt },
                Some(_) => {}
                None if entry.late() <= remembered.as_secs() => {
                    _ = found.insert(name, Known { entry, in_doubt: true })
                }
                None => {}
            }
        }
        found.remove(own);
        *list = found;
    }

    /// Adds entries that can be opened, the latest of each server.
    fn add(&self, found: &mut BTreeMap<String, Known>, sealed: impl IntoIterator<Item = Sealed>) {
        for sealed in sealed {
            match sealed.open(&self.inner.token) {
                Ok(entry) => {
                    let later = found.get(&entry.name).is_none_or(|other| other.entry.until < entry.until);
                    later.then(|| found.insert(entry.name.clone(), Known { entry, in_doubt: false }));
                }
                Err(error) => tracing::warn!(name = sealed.name, %error, "an entry counts for nothing"),
            }
        }
    }

    /// The servers of a role, each call with another one first, and those in doubt last.
    #[must_use]
    pub fn all(&self, role: Role) -> Vec<Entry> {
        self.by(role, |_| 0)
    }

    /// The servers of a role, those with the least of something first, and those in doubt last.
    #[must_use]
    pub fn by(&self, role: Role, least: impl Fn(&Entry) -> usize) -> Vec<Entry> {
        let list = self.lock();
        let mut all: Vec<_> = list.values().filter(|known| known.entry.role == role).collect();
        let turn = self.inner.turn.fetch_add(1, Ordering::Relaxed);
        let first = turn.checked_rem(all.len()).unwrap_or(0);
        all.rotate_left(first);
        all.sort_by_key(|known| (known.in_doubt, least(&known.entry)));
        all.into_iter().map(|known| known.entry.clone()).collect()
    }

    /// Puts a server that did not answer in doubt, until it announces itself anew.
    pub fn doubt(&self, name: &str) {
        if let Some(known) = self.lock().get_mut(name) {
            known.in_doubt = true;
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Known>> {
        self.inner.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Has a node meet the node of an entry, unless it has met that already.
fn meet(node: &KvNode, entry: &Entry) {
    let connecting = node.connect(&entry.blob(), Deadline::after(MEET_WITHIN));
    let name = entry.name.clone();
    tokio::spawn(async move {
        if let Err(error) = connecting.await {
            tracing::warn!(name, %error, "a server of the directory was not met");
        }
    });
}

#[cfg(test)]
mod tests {
    use std::time::{SystemTime, UNIX_EPOCH};

    use anyhow::{Result, bail};
    use futures_util::FutureExt;
    use futures_util::future::BoxFuture;

    use super::*;

    /// A directory that is away, or names nobody.
    struct NamesNobody {
        away: bool,
    }

    impl Directory for NamesNobody {
        fn announce<'a>(&'a self, _entry: &'a Sealed) -> BoxFuture<'a, Result<()>> {
            async { Ok(()) }.boxed()
        }

        fn entries(&self) -> BoxFuture<'_, Result<Vec<Sealed>>> {
            async { if self.away { bail!("away") } else { Ok(Vec::new()) } }.boxed()
        }
    }

    /// The names that are still known of servers that are silent, and whose entries ended so many seconds ago.
    async fn known(away: bool, ended: &[i64]) -> Vec<String> {
        let members = Members::new(JobToken::random().unwrap(), Box::new(NamesNobody { away })).unwrap();
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
        for ended in ended {
            let (name, until) = (format!("ended {ended}"), now.saturating_add_signed(-ended));
            // Nobody listens at port 0.
            let (http, blob) = ("127.0.0.1:0".to_owned(), String::new());
            let entry = Entry { name: name.clone(), role: Role::Decode, http, blob, until };
            members.lock().insert(name, Known { entry, in_doubt: false });
        }
        members.look("own").await;
        assert!(members.lock().values().all(|known| known.in_doubt));
        members.lock().keys().cloned().collect()
    }

    #[tokio::test]
    async fn silent_servers_are_known_until_their_entries_end_and_longer_while_the_directory_is_away() {
        assert_eq!(known(false, &[-30, 1, 30, 90]).await, ["ended -30"]);
        assert_eq!(known(true, &[-30, 1, 30, 90]).await, ["ended -30", "ended 1", "ended 30"]);
    }
}
