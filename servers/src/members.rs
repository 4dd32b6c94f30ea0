//! The servers of a job, as one of them knows them: from the directory, and by their nodes.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rdma_collective::bootstrap::JobToken;
use rdma_collective::kv::KvNode;
use rdma_core::Deadline;

use crate::directory::{Directory, Entry, LASTS, PAUSE, Role};

/// The time in which two nodes meet. One that has gone takes all of it.
const MEET_WITHIN: Duration = Duration::from_secs(2);

/// The servers that are known. A clone is another handle to the same list.
#[derive(Clone)]
pub struct Members {
    inner: Arc<Inner>,
}

struct Inner {
    token: JobToken,
    directory: Box<dyn Directory>,
    known: Mutex<BTreeMap<String, Entry>>,
    turn: AtomicUsize,
}

impl Members {
    /// The servers of a directory. None is known before [`keep`](Self::keep) runs.
    #[must_use]
    pub fn new(token: JobToken, directory: Box<dyn Directory>) -> Self {
        let (known, turn) = (Mutex::default(), AtomicUsize::new(0));
        Self { inner: Arc::new(Inner { token, directory, known, turn }) }
    }

    /// Announces a server and looks for the others, for ever. A node meets those of the role `meets`.
    pub async fn keep(self, own: Entry, node: Option<KvNode>, meets: Role) {
        loop {
            let announced = async {
                let sealed = own.seal(&self.inner.token, LASTS)?;
                self.inner.directory.announce(&sealed).await
            };
            if let Err(error) = announced.await {
                tracing::warn!(name = own.name, %error, "the directory does not take this server");
            }
            self.look(&own.name).await;
            for entry in node.iter().flat_map(|_| self.all(meets)) {
                meet(node.as_ref(), &entry);
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Reads the directory. When that is away, the servers that were known are still the best that is known.
    async fn look(&self, own: &str) {
        let sealed = match self.inner.directory.entries().await {
            Ok(sealed) => sealed,
            Err(error) => {
                tracing::warn!(%error, "the directory is away");
                return;
            }
        };
        let mut known = BTreeMap::<String, Entry>::new();
        for sealed in sealed {
            match sealed.open(&self.inner.token) {
                Ok(entry) if entry.name == own => {}
                Ok(entry) => {
                    let later = known.get(&entry.name).is_none_or(|other| other.until < entry.until);
                    later.then(|| known.insert(entry.name.clone(), entry));
                }
                Err(error) => {
                    tracing::warn!(name = sealed.name, %error, "an entry of the directory counts for nothing")
                }
            }
        }
        *self.lock() = known;
    }

    /// The servers of a role, each call with another one first.
    #[must_use]
    pub fn all(&self, role: Role) -> Vec<Entry> {
        let mut all: Vec<Entry> = self.lock().values().filter(|entry| entry.role == role).cloned().collect();
        let turn = self.inner.turn.fetch_add(1, Ordering::Relaxed);
        let first = turn.checked_rem(all.len()).unwrap_or(0);
        all.rotate_left(first);
        all
    }

    /// Forgets a server that did not answer, until the directory names it again.
    pub fn forget(&self, name: &str) {
        self.lock().remove(name);
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Entry>> {
        self.inner.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Has a node meet the node of an entry, unless it has met that already.
fn meet(node: Option<&KvNode>, entry: &Entry) {
    let Some(node) = node else { return };
    let connecting = node.connect(&entry.blob(), Deadline::after(MEET_WITHIN));
    let name = entry.name.clone();
    tokio::spawn(async move {
        if let Err(error) = connecting.await {
            tracing::warn!(name, %error, "a server of the directory was not met");
        }
    });
}
