//! The blocks of a pool: free, taken by a text, or kept because the next text may begin alike.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rdma_collective::kv::Pool;
use serde::{Deserialize, Serialize};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::model::{BLOCK_TOKENS, Config, Token};

/// Pause before blocks are looked for again. Transfers that were given up hold some for as long as their peers take.
const PAUSE: Duration = Duration::from_millis(1);
/// Time that a text waits for its blocks. The longest answers take seconds, so that a queue that moves is faster.
pub const WAITS: Duration = Duration::from_secs(15);

/// The blocks of a pool. A clone is another handle to them.
#[derive(Clone)]
pub struct Blocks {
    pool: Pool,
    state: Arc<Mutex<State>>,
    /// A permit for each text that may have blocks or wait for some.
    places: Arc<Semaphore>,
    texts_max: usize,
    /// Held by the text that looks for blocks. The others wait in the order in which they came.
    first: Arc<tokio::sync::Mutex<()>>,
}

/// The numbers of a cache's blocks, and of the texts on them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Blocks that no text has and that keep nothing.
    pub free: usize,
    /// Blocks that are kept for texts that begin alike.
    pub kept: usize,
    /// Blocks that are free or kept, and that no transfer holds. Once no request is under way, these are all; otherwise
    /// some have leaked.
    pub idle: usize,
    /// All blocks.
    pub all: usize,
    /// Texts that have blocks or wait for some.
    pub texts: usize,
}

/// The reason why a text gets no blocks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NoBlocks {
    /// The text and its answer need more blocks than the pool has.
    Larger {
        /// Blocks of the text and its answer.
        wanted: usize,
        /// Blocks of the pool.
        all: usize,
    },
    /// Too many texts have blocks or wait for some.
    Full {
        /// The texts.
        texts: usize,
    },
    /// No blocks came back in time.
    Late,
}

/// The blocks of a text, which are free again, or kept for others, once this is dropped.
pub struct Taken {
    list: Vec<u32>,
    /// The blocks that are in the tree, from the first on.
    nodes: Vec<NodeId>,
    /// Tokens that were there when the blocks were taken.
    ready: usize,
    of: Blocks,
    /// The place among the texts, which is free once the blocks are.
    place: Option<OwnedSemaphorePermit>,
}

/// A block of known tokens behind known tokens. Numbers are never used again, so that equal numbers mean equal texts.
type NodeId = u64;

struct Node {
    block: u32,
    /// The node before, and the tokens.
    key: Key,
    children: usize,
    /// Texts that have the block.
    users: usize,
    /// The moment of its last use, by a count of uses.
    used: u64,
}

type Key = (Option<NodeId>, [Token; BLOCK_TOKENS]);

#[derive(Default)]
struct State {
    free: VecDeque<u32>,
    nodes: HashMap<NodeId, Node>,
    by_key: HashMap<Key, NodeId>,
    /// The nodes that nobody uses and that have no children, by their last use.
    idle: BTreeSet<(u64, NodeId)>,
    last: u64,
}

impl Blocks {
    /// All blocks of a pool, free, for so many texts at most that have some or wait for some.
    #[must_use]
    pub fn of(pool: &Pool, texts_max: usize) -> Self {
        let free = (0..pool.layout().blocks()).collect();
        let texts_max = texts_max.min(Semaphore::MAX_PERMITS);
        let (state, places) = (State { free, ..State::default() }, Semaphore::new(texts_max));
        let (state, places, first) = (Arc::new(Mutex::new(state)), Arc::new(places), Arc::default());
        Self { pool: pool.clone(), state, places, texts_max, first }
    }

    /// Takes blocks for a text, with room for `room` tokens in all; waits until there are as many.
    ///
    /// Texts get their blocks in the order in which they came, so that short ones do not pass a long one for ever.
    ///
    /// # Errors
    ///
    /// The pool is smaller, or too many texts wait.
    pub async fn take(&self, text: &[Token], room: usize) -> Result<Taken, NoBlocks> {
        let (wanted, all) = (Config::blocks_of(room.max(text.len())), self.all());
        if wanted > all {
            return Err(NoBlocks::Larger { wanted, all });
        }
        let full = NoBlocks::Full { texts: self.texts_max };
        let place = Arc::clone(&self.places).try_acquire_owned().map_err(|_| full)?;
        let taken = async {
            let _first = self.first.lock().await;
            loop {
                if let Some(taken) = self.try_take(text, wanted) {
                    return taken;
                }
                tokio::time::sleep(PAUSE).await;
            }
        };
        let mut taken = tokio::time::timeout(WAITS, taken).await.map_err(|_| NoBlocks::Late)?;
        taken.place = Some(place);
        Ok(taken)
    }

    fn try_take(&self, text: &[Token], count: usize) -> Option<Taken> {
        let mut state = self.lock();
        let mut taken =
            Taken { list: Vec::new(), nodes: Vec::new(), ready: 0, of: self.clone(), place: None };
        // At least one token is computed, because the next one follows from its logits.
        let whole = text.len().saturating_sub(1) / BLOCK_TOKENS * BLOCK_TOKENS;
        for tokens in text.get(..whole).unwrap_or_default().as_chunks().0 {
            let Some(id) = state.by_key.get(&(taken.nodes.last().copied(), *tokens)).copied() else { break };
            state.use_node(id);
            taken.list.extend(state.nodes.get(&id).map(|node| node.block));
            taken.nodes.push(id);
        }
        taken.ready = taken.list.len() * BLOCK_TOKENS;
        // Before any block is given away, because a text that gets too few would cost others what is kept for them.
        if state.spare(&self.pool) < count.saturating_sub(taken.list.len()) {
            drop(state);
            return None;
        }
        while taken.list.len() < count {
            match state.take_one(&self.pool) {
                Some(block) => taken.list.push(block),
                None => {
                    drop(state);
                    return None;
                }
            }
        }
        Some(taken)
    }

    /// The blocks of the pool.
    #[must_use]
    pub fn all(&self) -> usize {
        self.pool.layout().blocks() as usize
    }

    /// The numbers of the blocks, now.
    #[must_use]
    pub fn counts(&self) -> Counts {
        let texts = self.texts_max.saturating_sub(self.places.available_permits());
        let state = self.lock();
        let kept = state.nodes.values().filter(|node| node.users == 0).count();
        Counts { free: state.free.len(), kept, idle: state.spare(&self.pool), all: self.all(), texts }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Display for NoBlocks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Larger { wanted, all } => {
                write!(
                    f,
                    "the prompt and its answer need {wanted} blocks, and the cache has {all}; shorten one of them"
                )
            }
            Self::Full { texts } => {
                write!(f, "{texts} texts are under way, and no more are taken; ask again later")
            }
            Self::Late => write!(f, "no blocks were free within {} s; ask again later", WAITS.as_secs()),
        }
    }
}

impl std::error::Error for NoBlocks {}

impl Taken {
    /// The blocks, in the order of the text.
    #[must_use]
    pub fn list(&self) -> &[u32] {
        &self.list
    }

    /// Tokens that need not be computed, because their blocks were kept.
    #[must_use]
    pub fn ready(&self) -> usize {
        self.ready
    }

    /// The blocks of those tokens.
    #[must_use]
    pub fn kept(&self) -> &[u32] {
        self.list.get(..self.ready / BLOCK_TOKENS).unwrap_or_default()
    }

    /// Lets other texts have the whole blocks of these tokens, all of which are computed.
    pub fn publish(&mut self, text: &[Token]) {
        let mut state = self.of.lock();
        for (place, tokens) in text.as_chunks().0.iter().enumerate().skip(self.nodes.len()) {
            let (Some(block), parent) = (self.list.get(place), self.nodes.last().copied()) else { return };
            let key = (parent, *tokens);
            // Another text was faster, and its block serves whoever comes.
            if state.by_key.contains_key(&key) {
                return;
            }
            self.nodes.push(state.add(key, *block));
        }
    }
}

impl State {
    /// Blocks that are free or kept, and that no transfer holds.
    fn spare(&self, pool: &Pool) -> usize {
        let kept = self.nodes.values().filter(|node| node.users == 0).map(|node| &node.block);
        self.free.iter().chain(kept).filter(|block| pool.held(**block).is_none()).count()
    }

    /// A block that is free, or was kept and is used least.
    fn take_one(&mut self, pool: &Pool) -> Option<u32> {
        let at = self.free.iter().position(|block| pool.held(*block).is_none());
        if let Some(block) = at.and_then(|at| self.free.remove(at)) {
            return Some(block);
        }
        let is_free = |id: &NodeId| self.nodes.get(id).is_some_and(|node| pool.held(node.block).is_none());
        let id = self.idle.iter().map(|(_, id)| *id).find(is_free)?;
        self.remove(id)
    }

    fn add(&mut self, key: Key, block: u32) -> NodeId {
        self.last += 1;
        let id = self.last;
        self.nodes.insert(id, Node { block, key, children: 0, users: 1, used: id });
        self.by_key.insert(key, id);
        if let Some(parent) = key.0.and_then(|parent| self.nodes.get_mut(&parent)) {
            parent.children += 1;
        }
        id
    }

    fn remove(&mut self, id: NodeId) -> Option<u32> {
        let node = self.nodes.remove(&id)?;
        self.idle.remove(&(node.used, id));
        self.by_key.remove(&node.key);
        if let Some(parent) = node.key.0 {
            if let Some(node) = self.nodes.get_mut(&parent) {
                node.children -= 1;
            }
            self.rank(parent);
        }
        Some(node.block)
    }

    fn use_node(&mut self, id: NodeId) {
        if let Some(node) = self.nodes.get_mut(&id) {
            node.users += 1;
            self.idle.remove(&(node.used, id));
        }
    }

    fn leave_node(&mut self, id: NodeId) {
        self.last += 1;
        if let Some(node) = self.nodes.get_mut(&id) {
            (node.users, node.used) = (node.users - 1, self.last);
        }
        self.rank(id);
    }

    /// Has a node given away if it is needed, once nobody uses it or what is behind it.
    fn rank(&mut self, id: NodeId) {
        if let Some(node) = self.nodes.get(&id).filter(|node| node.users == 0 && node.children == 0) {
            self.idle.insert((node.used, id));
        }
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        let mut state = self.of.lock();
        // The last first, so that what is behind is given away before what it rests on.
        self.nodes.iter().rev().for_each(|id| state.leave_node(*id));
        state.free.extend(self.list.iter().skip(self.nodes.len()));
    }
}

#[cfg(test)]
mod tests;
