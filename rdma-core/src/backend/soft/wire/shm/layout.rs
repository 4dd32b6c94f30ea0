//! A mailbox as it lies in shared memory.
//!
//! A header of four cache lines, then a ring of receives, then a ring of completions of as many places. What the
//! owner writes, what the writer writes, and what both write, are in lines of their own. An entry of
//! a ring is in one line with the sequence that says that it is there: 1 for the first that ever was.

#![expect(unsafe_code, reason = "vouches for types that are made of atomics")]

use super::atomic::{AtomicU32, AtomicU64};
use super::doorbell::Doorbell;
use super::shared_slice::Shared;
use super::writer_slot::WriterSlot;
use crate::EventKind;
use crate::backend::soft::fault::Planted;

/// Bytes of the header.
pub(super) const HEADER: usize = 256;
/// Bytes of an entry of either ring.
pub(super) const ENTRY: usize = 32;
/// "RDMAmbox", as a little-endian machine stores it.
pub(super) const MAGIC: u64 = u64::from_le_bytes(*b"RDMAmbox");
/// Of this layout.
pub(super) const VERSION: u32 = 2;
/// Places of a ring, at most.
pub(super) const RING_ENTRIES_MAX: usize = 1 << 20;

/// The owner has begun to answer. A zeroed mailbox is closed.
pub(super) const OPEN: u32 = 1;
/// The owner answers no more.
pub(super) const CLOSED: u32 = 0;
/// The owner does not answer for now.
pub(super) const SILENT: u32 = 2;

/// In the flags of a completion: `imm` means something.
pub(super) const WITH_IMM: u32 = 1;
/// In the flags of a completion: of a write, not a send.
pub(super) const OF_WRITE: u32 = 1 << 1;

/// Written by the owner; the writer reads all but `state` once.
#[derive(Debug)]
#[repr(C, align(64))]
pub(super) struct OwnerLine {
    pub(super) magic: AtomicU64,
    pub(super) version: AtomicU32,
    /// [`OPEN`], [`SILENT`] or [`CLOSED`].
    pub(super) state: AtomicU32,
    /// Rights of the queue pair.
    pub(super) access: AtomicU32,
    pub(super) domain: AtomicU32,
    /// Code that a writer is told when there is no receive.
    pub(super) rnr_timer: AtomicU32,
    pub(super) planted: AtomicU32,
    /// Of each ring; a power of two.
    pub(super) entries: AtomicU32,
}

/// Written by the writer, at every request. Of this the owner looks at the slot alone, and only to take a right away.
#[derive(Debug)]
#[repr(C, align(64))]
pub(super) struct WriterLine {
    pub(super) slot: WriterSlot,
    /// Receives taken, which is also how many completions were left.
    pub(super) consumed: AtomicU64,
    /// Sequence number of the next request.
    pub(super) expected: AtomicU32,
    /// Whether that was asked for again.
    pub(super) awaiting: AtomicU32,
}

/// Written by both, seldom, and looked at by both for every completion.
#[derive(Debug)]
#[repr(C, align(64))]
pub(super) struct BellLine {
    pub(super) doorbell: Doorbell,
    /// The last refusal: its code in the lowest byte, and above it how many there were.
    pub(super) verdict: AtomicU32,
}

/// See the module.
#[derive(Debug)]
#[repr(C)]
pub(super) struct Header {
    pub(super) owner: OwnerLine,
    pub(super) writer: WriterLine,
    pub(super) bell: BellLine,
}

/// A receive: written by the owner, read by the writer.
#[derive(Debug)]
#[repr(C, align(32))]
pub(super) struct ReceiveEntry {
    pub(super) sequence: AtomicU64,
    pub(super) addr: AtomicU64,
    pub(super) len: AtomicU32,
    pub(super) lkey: AtomicU32,
}

/// What became of a receive: written by the writer, read by the owner.
#[derive(Debug)]
#[repr(C, align(32))]
pub(super) struct CompletionEntry {
    pub(super) sequence: AtomicU64,
    pub(super) status: AtomicU32,
    pub(super) byte_len: AtomicU32,
    pub(super) imm: AtomicU32,
    pub(super) flags: AtomicU32,
}

#[cfg(not(all(test, loom)))]
const _: () = {
    assert!(size_of::<Header>() <= HEADER);
    assert!(size_of::<ReceiveEntry>() == ENTRY && size_of::<CompletionEntry>() == ENTRY);
};

// SAFETY: made of atomics.
unsafe impl Shared for Header {}
// SAFETY: made of atomics.
unsafe impl Shared for ReceiveEntry {}
// SAFETY: made of atomics.
unsafe impl Shared for CompletionEntry {}

/// How a refusal is told to the owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The completion of the receive tells it all.
    Receive = 1,
    Request = 2,
    Access = 3,
}

impl Verdict {
    /// In a word of a mailbox.
    pub(super) const CODES: u32 = 0xff;

    /// The event that it raises. A code that no writer of ours leaves fails the queue pair.
    pub(super) fn event_of(word: u32) -> Option<EventKind> {
        match word & Self::CODES {
            code if code == Self::Receive as u32 => None,
            code if code == Self::Request as u32 => Some(EventKind::QP_REQ_ERR),
            code if code == Self::Access as u32 => Some(EventKind::QP_ACCESS_ERR),
            _ => Some(EventKind::QP_FATAL),
        }
    }
}

/// A planted fault, or none, as a word.
pub(super) fn planted_code(planted: Option<Planted>) -> u32 {
    let place = planted.and_then(|planted| Planted::ALL.iter().position(|other| *other == planted));
    place.map_or(0, |place| place as u32 + 1)
}

/// And back; a code that is none of ours is none.
pub(super) fn planted_of(code: u32) -> Option<Planted> {
    Planted::ALL.get((code as usize).checked_sub(1)?).copied()
}

/// Where the rings of that many places begin, and where the mailbox ends.
pub(super) fn ring_offsets(entries: usize) -> Option<(usize, usize, usize)> {
    let ring = entries.checked_mul(ENTRY)?;
    let completions = HEADER.checked_add(ring)?;
    Some((HEADER, completions, completions.checked_add(ring)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn planted_faults_survive_their_codes() {
        for planted in Planted::ALL.map(Some).into_iter().chain([None]) {
            assert_eq!(planted_of(planted_code(planted)), planted);
        }
        assert_eq!(planted_of(u32::MAX), None);
    }

    #[test]
    fn every_verdict_has_an_event_and_nonsense_is_fatal() {
        let event = |code: u32| Verdict::event_of(7 << 8 | code);
        assert_eq!(event(Verdict::Receive as u32), None);
        assert_eq!(event(Verdict::Request as u32), Some(EventKind::QP_REQ_ERR));
        assert_eq!(event(Verdict::Access as u32), Some(EventKind::QP_ACCESS_ERR));
        for nonsense in [0, 4, 0xff] {
            assert_eq!(event(nonsense), Some(EventKind::QP_FATAL));
        }
    }
}
