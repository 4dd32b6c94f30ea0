//! The figures of a server, for `/stats` and for Prometheus.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use metrics::{Counter, Gauge, Histogram, counter, gauge, histogram};
use serde_json::{Value, json};

use rdma_collective::kv::KvNode;

use super::figures::{Cache, Came};
use super::names;
use crate::api::Refused;
use crate::batch::Computed;
use crate::cache::Blocks;
use crate::directory::Role;

/// The end of a text at a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// All of its answer was told.
    Answered,
    /// The request itself was wrong.
    Refused,
    /// The server could not begin to answer.
    Unavailable,
    /// The answer broke off.
    Failed,
    /// The client did not wait for the end.
    Aborted,
}

/// The figures of one server. They only grow, but for gauges.
pub struct Stats {
    role: Role,
    name: String,
    requests: [Count; Outcome::ALL.len()],
    /// Tokens that were told.
    pub tokens: Count,
    /// Times that a text lost the server that had it.
    pub lost: Count,
    /// Times that another server went on with such a text.
    pub resumed: Count,
    /// Texts that wait for the model.
    pub waiting: Level,
    /// Texts that the model computes.
    pub running: Level,
    pub(super) first: Histogram,
    pub(super) between: Histogram,
    bytes: Count,
    links: Mutex<BTreeMap<String, u64>>,
    cache: OnceLock<(Blocks, Computed)>,
    node: OnceLock<KvNode>,
    last: Mutex<Option<Came>>,
    free: Gauge,
    kept: Gauge,
}

/// A figure that only grows.
pub struct Count {
    own: AtomicU64,
    exported: Counter,
}

/// A figure that goes up and down.
pub struct Level {
    own: AtomicI64,
    exported: Gauge,
}

impl Stats {
    /// The figures of a server.
    #[must_use]
    pub fn new(role: Role, name: &str) -> Arc<Self> {
        // Handles that are made before the recorder is there count for nobody.
        super::page::recorder();
        let own = vec![("role", role.to_string()), ("server", name.to_owned())];
        let count = |of| Count::new(counter!(of, &own));
        let level = |of| Level { own: AtomicI64::new(0), exported: gauge!(of, &own) };
        let by_outcome = |outcome: Outcome| {
            let mut labels = own.clone();
            labels.push(("outcome", outcome.name().to_owned()));
            Count::new(counter!(names::REQUESTS, &labels))
        };
        Arc::new(Self {
            role,
            name: name.to_owned(),
            requests: Outcome::ALL.map(by_outcome),
            tokens: count(names::TOKENS),
            lost: count(names::LOST),
            resumed: count(names::RESUMED),
            waiting: level(names::WAITING),
            running: level(names::RUNNING),
            first: histogram!(names::FIRST_TOKEN, &own),
            between: histogram!(names::BETWEEN_TOKENS, &own),
            bytes: count(names::KV_BYTES),
            links: Mutex::default(),
            cache: OnceLock::new(),
            node: OnceLock::new(),
            last: Mutex::default(),
            free: gauge!(names::BLOCKS_FREE, &own),
            kept: gauge!(names::BLOCKS_KEPT, &own),
        })
    }

    /// Has the blocks and the work of a cache counted from now on, and the peers of a node if there is one.
    pub fn watch(&self, blocks: &Blocks, computed: &Computed, node: Option<&KvNode>) {
        // A server has one cache, and one node at most.
        _ = self.cache.set((blocks.clone(), computed.clone()));
        node.map(|node| self.node.set(node.clone()));
    }

    /// Keeps the way of the last prompt that came.
    pub fn came(&self, came: Came) {
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Some(came);
    }

    /// The links of a decode, on which nothing has come at first, and their bytes; those on which a prefill has pushed.
    fn links(&self, met: &[String]) -> Vec<(String, u64)> {
        let met = met.iter().filter(|_| self.role == Role::Decode);
        let mut links: BTreeMap<String, u64> =
            met.map(|met| (format!("{met} to {}", self.name), 0)).collect();
        links.extend(self.links.lock().unwrap_or_else(PoisonError::into_inner).clone());
        links.into_iter().collect()
    }

    /// Counts a text that has ended.
    pub fn ended(&self, outcome: Outcome) {
        if let Some(count) = self.requests.get(outcome as usize) {
            count.add(1);
        }
    }

    /// Counts bytes that a link has moved.
    pub fn moved(&self, link: &str, bytes: u64) {
        self.bytes.add(bytes);
        let mut links = self.links.lock().unwrap_or_else(PoisonError::into_inner);
        *links.entry(link.to_owned()).or_default() += bytes;
    }

    /// The cache, now; none of a server without one. Tells the exported figures of it, too, which nobody else does.
    pub fn cache(&self) -> Option<Cache> {
        let (blocks, computed) = self.cache.get()?;
        let blocks = blocks.counts();
        self.free.set(blocks.free as f64);
        self.kept.set(blocks.kept as f64);
        Some(Cache { blocks, computed: computed.get() })
    }

    /// All figures, for `/stats`.
    #[must_use]
    pub fn report(&self) -> Value {
        let requests = Outcome::ALL.iter().zip(&self.requests);
        let requests: BTreeMap<_, _> =
            requests.map(|(outcome, count)| (outcome.name(), count.get())).collect();
        let met: Vec<String> =
            self.node.get().iter().flat_map(|node| node.peers()).map(|met| met.to_string()).collect();
        json!({
            "role": self.role,
            "server": self.name,
            "requests": requests,
            "tokens": self.tokens.get(),
            "lost": self.lost.get(),
            "resumed": self.resumed.get(),
            "waiting": self.waiting.own.load(Relaxed),
            "running": self.running.own.load(Relaxed),
            "blocks": self.cache().unwrap_or_default().blocks,
            "kv_bytes": self.bytes.get(),
            "links": self.links(&met),
            "met": met,
            "last": *self.last.lock().unwrap_or_else(PoisonError::into_inner),
        })
    }
}

impl Count {
    fn new(exported: Counter) -> Self {
        // A rate needs a first value.
        exported.increment(0);
        Self { own: AtomicU64::new(0), exported }
    }

    /// Adds to the figure.
    pub fn add(&self, more: u64) {
        self.own.fetch_add(more, Relaxed);
        self.exported.increment(more);
    }

    fn get(&self) -> u64 {
        self.own.load(Relaxed)
    }
}

impl Level {
    /// Moves the figure up, or down by a number below 0.
    pub fn add(&self, more: i64) {
        self.own.fetch_add(more, Relaxed);
        self.exported.increment(more as f64);
    }
}

impl Outcome {
    /// All outcomes, each at its number.
    pub const ALL: [Self; 5] =
        [Self::Answered, Self::Refused, Self::Unavailable, Self::Failed, Self::Aborted];

    /// The outcome, as metrics and spans name it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Answered => "answered",
            Self::Refused => "refused",
            Self::Unavailable => "unavailable",
            Self::Failed => "failed",
            Self::Aborted => "aborted",
        }
    }
}

impl From<&Refused> for Outcome {
    fn from(refused: &Refused) -> Self {
        match refused.status.as_u16() {
            503 => Self::Unavailable,
            500.. => Self::Failed,
            _ => Self::Refused,
        }
    }
}
