//! The responder of a peer's queue pair, run by the writer: the mailbox, keys and memory of the peer, mapped.
//!
//! [`check`] decides what becomes of a request, as the engine's responder does; [`place`] moves its bytes and
//! tells what came of it. [`at_once`] is both, for small requests of which nothing is unusual.

mod access;
mod check;
mod copy;
mod small;

use std::sync::Arc;

pub(crate) use access::AccessOutcome;
pub(crate) use copy::{CopyBudget, CopyProgress};

use super::atomic::Ordering;
use super::key_table::PeerKeyTable;
use super::layout::{
    CompletionEntry, Header, MAGIC, OPEN, RING_ENTRIES_MAX, ReceiveEntry, VERSION, Verdict, planted_of,
    ring_offsets,
};
use super::peer_memories::PeerMemories;
use super::segment::Segment;
use super::shared_slice::{SharedRef, SharedSlice};
use crate::Access;
use crate::backend::soft::engine::keys::Domain;
use crate::backend::soft::engine::message::{Reply, ReplyKind, Request, RequestOp};
use crate::backend::soft::fault::Planted;
use crate::memory::CacheHint;

/// Bytes that a writer is at, at most.
pub(crate) const WRITER_CHUNK: u64 = copy::CHUNK as u64;

/// Why what a peer sent is no mailbox and no table of keys.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SegmentsRefused {
    #[error("the segment is no mailbox of version {VERSION}, or of another version of the library")]
    NotMailbox,
    #[error("the rings of {entries} entries do not fit into the mailbox")]
    Rings { entries: u32 },
    #[error("the segment is no table of keys")]
    NotKeys,
}

/// What came of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The peer says that.
    Reply(Reply),
    /// The peer says nothing.
    Silence,
    /// The request needs a memory that is not mapped here, or of another version, and was not carried out: it may
    /// be tried again once it is. 0 is a memory that never will be.
    Unmapped(u64),
    /// So far it has come at its [`CopyBudget`]: the rest is to follow.
    Partial(CopyProgress),
}

/// Where the bytes of a request are here, or are to land.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LocalBuffer {
    pub(crate) addr: u64,
    pub(crate) hint: CacheHint,
    pub(crate) budget: CopyBudget,
}

impl LocalBuffer {
    /// Of a request that stands alone, and is carried out whole.
    pub(crate) fn at(addr: u64) -> Self {
        Self { addr, hint: CacheHint::Cached, budget: CopyBudget::WHOLE }
    }
}

/// What came of a request, and what the writer has to do about it besides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Executed {
    pub(crate) outcome: Outcome,
    /// The owner sleeps until a completion, and there is one: ring its bell.
    pub(crate) ring: bool,
    /// The owner has to look at its [`refusal`](super::Mailbox::refusal): nudge it.
    pub(crate) nudge: bool,
}

impl Executed {
    #[inline]
    fn quiet(outcome: Outcome) -> Self {
        Self { outcome, ring: false, nudge: false }
    }

    /// Whether the peer says that just this request was carried out.
    #[inline]
    pub(crate) fn is_done(&self, request: &Request) -> bool {
        let Outcome::Reply(reply) = self.outcome else { return false };
        let kind = if request.op == RequestOp::Read { ReplyKind::ReadData } else { ReplyKind::Ack };
        reply.kind == kind && reply.psn == request.psn
    }
}

/// What the peer's queue pair is, as it said in the beginning.
#[derive(Debug, Clone, Copy)]
struct Peer {
    access: Access,
    domain: Domain,
    rnr_timer: u8,
    planted: Option<Planted>,
}

/// See the module. There is one to a mailbox, used by one thread at a time.
#[derive(Debug)]
pub(crate) struct RemoteResponder {
    header: SharedRef<Header>,
    ring: SharedSlice<ReceiveEntry>,
    completions: SharedSlice<CompletionEntry>,
    keys: PeerKeyTable,
    memories: PeerMemories,
    peer: Peer,
}

impl RemoteResponder {
    /// What a peer sent: its mailbox, mapped for reading and writing, and its table of keys.
    ///
    /// # Errors
    ///
    /// [`SegmentsRefused`], when they are not that.
    pub(crate) fn new(mailbox: &Arc<Segment>, keys: &Arc<Segment>) -> Result<Self, SegmentsRefused> {
        let header = SharedRef::<Header>::new(mailbox, 0).filter(|_| mailbox.is_writable());
        let header = header.ok_or(SegmentsRefused::NotMailbox)?;
        let owner = &header.owner;
        if owner.magic.load(Ordering::Relaxed) != MAGIC || owner.version.load(Ordering::Relaxed) != VERSION {
            return Err(SegmentsRefused::NotMailbox);
        }
        let entries = owner.entries.load(Ordering::Relaxed);
        let refused = || SegmentsRefused::Rings { entries };
        let count = entries as usize;
        if !count.is_power_of_two() || count > RING_ENTRIES_MAX {
            return Err(refused());
        }
        let (ring, completions, _) = ring_offsets(count).ok_or_else(refused)?;
        let peer = Peer {
            access: Access::from_bits_retain(owner.access.load(Ordering::Relaxed)),
            domain: Domain(owner.domain.load(Ordering::Relaxed)),
            rnr_timer: owner.rnr_timer.load(Ordering::Relaxed) as u8,
            planted: planted_of(owner.planted.load(Ordering::Relaxed)),
        };
        Ok(Self {
            ring: SharedSlice::new(mailbox, ring, count).ok_or_else(refused)?,
            completions: SharedSlice::new(mailbox, completions, count).ok_or_else(refused)?,
            keys: PeerKeyTable::new(keys).ok_or(SegmentsRefused::NotKeys)?,
            memories: PeerMemories::default(),
            peer,
            header,
        })
    }

    /// A memory of the peer, mapped. One that had that id before is let go.
    pub(crate) fn add_memory(&mut self, id: u64, segment: Arc<Segment>) -> Option<Arc<Segment>> {
        self.memories.add(id, segment)
    }

    /// The memory of that id, if it is mapped.
    pub(crate) fn memory(&self, id: u64) -> Option<&Arc<Segment>> {
        self.memories.get(id)
    }

    /// The peer has that memory no more.
    pub(crate) fn remove_memory(&mut self, id: u64) -> Option<Arc<Segment>> {
        self.memories.remove(id)
    }

    /// PeerMemories of the peer that are mapped.
    #[cfg(test)]
    pub(crate) fn memories(&self) -> usize {
        self.memories.len()
    }

    /// Whether the peer's queue pair answers requests.
    #[inline]
    fn is_open(&self) -> bool {
        self.header.owner.state.load(Ordering::Relaxed) == OPEN
    }

    /// Whether the peer's queue pair is about to move to ERR since a request was refused.
    #[inline]
    fn is_refused(&self) -> bool {
        match self.header.bell.verdict.load(Ordering::Relaxed) & Verdict::CODES {
            0 => false,
            code => !(self.peer.planted == Some(Planted::NoError) && code == Verdict::Access as u32),
        }
    }
}
