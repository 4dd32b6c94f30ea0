//! The responder of a peer's queue pair, run by the writer in the peer's mapped mailbox, keys and memory.
//!
//! [`execute`] asks for the decision about a request and carries it out; [`copy`] moves the bytes and completes the
//! receive. [`small`] does both for small requests with nothing unusual. [`access`] works on the peer's memory without
//! a request.

mod access;
mod copy;
mod execute;
mod small;

use std::sync::Arc;

pub(crate) use access::NoAccess;
pub(crate) use copy::{CopyBudget, CopyProgress};

use super::atomic::Ordering;
use super::key_table::PeerKeyTable;
use super::layout::{
    CompletionEntry, Header, MAGIC, OPEN, RING_ENTRIES_MAX, ReceiveEntry, VERDICT_CODES, VERSION,
    ring_offsets,
};
use super::peer_memories::PeerMemories;
use super::segment::Segment;
use super::shared_slice::{SharedRef, SharedSlice};
use crate::backend::soft::engine::keys::Domain;
use crate::backend::soft::engine::message::{Reply, ReplyKind, Request, RequestOp};
use crate::backend::soft::engine::responder::Rules;
use crate::backend::soft::fault::planted::{self, Planted};
use crate::memory::CacheHint;
use crate::{Access, EventKind};

/// Most bytes that a writer announces in its slot at once.
pub(crate) const WRITER_CHUNK: u64 = copy::CHUNK as u64;

/// Why the segments of a peer do not make a responder.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SegmentsRefused {
    #[error("the mailbox segment is no mailbox of version {VERSION}: run one version of the library")]
    NotMailbox,
    #[error("rings of {entries} entries do not fit into the mailbox")]
    Rings { entries: u32 },
    #[error("the key table segment is no table of keys")]
    NotKeys,
}

/// The outcome of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The peer's responder answers with that reply.
    Reply(Reply),
    /// The peer's responder does not answer.
    Silence,
    /// The request needs that memory, which is not mapped here in the version that its key names, and was not carried
    /// out. Try again once it is mapped; memory 0 never will be.
    Unmapped(u64),
    /// As many bytes were copied as the [`CopyBudget`] allows; the rest is to follow.
    Partial(CopyProgress),
}

/// The requester's memory of a request: its payload, or where the answer of a read lands.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LocalBuffer {
    pub(crate) addr: u64,
    pub(crate) hint: CacheHint,
    pub(crate) budget: CopyBudget,
}

impl LocalBuffer {
    /// The memory of a request that stands alone and is carried out whole.
    pub(crate) fn at(addr: u64) -> Self {
        Self { addr, hint: CacheHint::Cached, budget: CopyBudget::WHOLE }
    }
}

/// The outcome of a request, and what the writer has to do about it besides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Executed {
    pub(crate) outcome: Outcome,
    /// The owner sleeps until a completion, and there is one: ring its doorbell.
    pub(crate) ring: bool,
    /// The owner must look at its [`refusal`](super::Mailbox::refusal): send it a nudge.
    pub(crate) nudge: bool,
}

impl Executed {
    /// An outcome that needs neither the doorbell nor a nudge.
    #[inline]
    fn quiet(outcome: Outcome) -> Self {
        Self { outcome, ring: false, nudge: false }
    }

    /// Whether the peer's responder says that exactly this request was carried out.
    #[inline]
    pub(crate) fn is_done(&self, request: &Request) -> bool {
        let Outcome::Reply(reply) = self.outcome else { return false };
        let kind = if request.op == RequestOp::Read { ReplyKind::ReadData } else { ReplyKind::Ack };
        reply.kind == kind && reply.psn == request.psn
    }
}

/// The responder of one peer, run in its mapped mailbox. There is one for each mailbox, used by one thread at a time:
/// the words of the writer have no other protection.
#[derive(Debug)]
pub(crate) struct RemoteResponder {
    pub(super) header: SharedRef<Header>,
    ring: SharedSlice<ReceiveEntry>,
    completions: SharedSlice<CompletionEntry>,
    keys: PeerKeyTable,
    /// The memories of the peer that are mapped.
    pub(crate) memories: PeerMemories,
    /// Attributes of the peer's queue pair. Read once, so that a check and its use cannot see two values.
    rules: Rules,
    domain: Domain,
}

impl RemoteResponder {
    /// Interprets the segments of a peer: its mailbox, mapped for reading and writing, and its key table.
    ///
    /// # Errors
    ///
    /// [`SegmentsRefused`]: they are something else.
    pub(crate) fn new(mailbox: &Arc<Segment>, keys: &Arc<Segment>) -> Result<Self, SegmentsRefused> {
        let header = SharedRef::<Header>::new(mailbox, 0).filter(|_| mailbox.is_writable());
        let header = header.ok_or(SegmentsRefused::NotMailbox)?;
        let owner = &header.owner;
        if owner.magic.load(Ordering::Relaxed) != MAGIC || owner.version.load(Ordering::Relaxed) != VERSION {
            return Err(SegmentsRefused::NotMailbox);
        }
        // Loaded once: the peer may change the word between a check and its use.
        let entries = owner.entries.load(Ordering::Relaxed);
        let refused = || SegmentsRefused::Rings { entries };
        let count = entries as usize;
        if !count.is_power_of_two() || count > RING_ENTRIES_MAX {
            return Err(refused());
        }
        let offsets = ring_offsets(count).ok_or_else(refused)?;
        let rules = Rules {
            access: Access::from_bits_retain(owner.access.load(Ordering::Relaxed)),
            rnr_timer: owner.rnr_timer.load(Ordering::Relaxed) as u8,
        };
        let domain = Domain(owner.domain.load(Ordering::Relaxed));
        Ok(Self {
            ring: SharedSlice::new(mailbox, offsets.receives, count).ok_or_else(refused)?,
            completions: SharedSlice::new(mailbox, offsets.completions, count).ok_or_else(refused)?,
            keys: PeerKeyTable::new(keys).ok_or(SegmentsRefused::NotKeys)?,
            memories: PeerMemories::default(),
            rules,
            domain,
            header,
        })
    }

    /// Whether the peer's queue pair answers requests.
    #[inline]
    fn is_open(&self) -> bool {
        self.header.owner.state.load(Ordering::Relaxed) == OPEN
    }

    /// Whether the peer's queue pair is about to move to ERR because a request was refused. Nothing more may be
    /// carried out then, although the owner has not seen the refusal yet: later completions would arrive after the
    /// error.
    #[inline]
    fn is_refused(&self) -> bool {
        match self.header.bell.verdict.load(Ordering::Relaxed) & VERDICT_CODES {
            0 => false,
            code => !(planted::is(Planted::NoError) && code == EventKind::QP_ACCESS_ERR.0),
        }
    }
}
