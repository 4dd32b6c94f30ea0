//! The layout of a mailbox in shared memory.
//!
//! A header of four cache lines, then a ring of receives, then a ring of completions with as many entries. The fields
//! that the owner writes, that the writer writes, and that both write are in separate cache lines, so that neither
//! side takes a line from the other without need. Each ring entry shares its line with its sequence number, so that
//! one cache miss brings both. Sequence numbers begin at 1, because zeroed memory must mean "no entry yet".

#![expect(unsafe_code, reason = "vouches for types that are made of atomics")]

use super::atomic::{AtomicU32, AtomicU64};
use super::doorbell::Doorbell;
use super::shared_slice::Shared;
use super::writer_slot::WriterSlot;
use crate::EventKind;
use crate::backend::soft::engine::decision::Refusal;

/// Bytes of the header: four cache lines, of which three are in use.
pub(super) const HEADER: usize = 256;
/// Bytes of an entry of either ring. Two entries share a cache line.
pub(super) const ENTRY: usize = 32;
/// First word of every mailbox: "RDMAmbox" as a little-endian machine stores it.
pub(super) const MAGIC: u64 = u64::from_le_bytes(*b"RDMAmbox");
/// Version of this layout. Both processes must have the same one, because the mailbox is not converted.
pub(super) const VERSION: u32 = 3;
/// Most entries of a ring: 2^20, or 32 MiB a ring. A peer's number is refused beyond it, before it is used in any
/// arithmetic.
pub(super) const RING_ENTRIES_MAX: usize = 1 << 20;

/// State of a mailbox whose owner answers. The owner stores it last, after all that a writer reads once.
pub(super) const OPEN: u32 = 1;
/// State of a mailbox whose owner does not answer any more. It is 0, so that a zeroed mailbox is closed.
pub(super) const CLOSED: u32 = 0;
/// State of a mailbox whose owner does not answer for now: its port is down, or a fault keeps the device silent.
pub(super) const SILENT: u32 = 2;

/// Flag of a completion: the field `imm` is valid.
pub(super) const WITH_IMM: u32 = 1;
/// Flag of a completion: the request was a write with immediate, not a send.
pub(super) const OF_WRITE: u32 = 1 << 1;

/// The words that the owner writes. The writer reads all but `state` once, when it is invited, so that a later change
/// by the owner cannot invalidate a check.
#[derive(Debug)]
#[repr(C, align(64))]
pub(super) struct OwnerLine {
    pub(super) magic: AtomicU64,
    pub(super) version: AtomicU32,
    /// [`OPEN`], [`SILENT`] or [`CLOSED`].
    pub(super) state: AtomicU32,
    /// Access flags of the queue pair.
    pub(super) access: AtomicU32,
    pub(super) domain: AtomicU32,
    /// RNR timer code that a writer gets when there is no receive.
    pub(super) rnr_timer: AtomicU32,
    /// Entries of each ring; a power of two.
    pub(super) entries: AtomicU32,
}

/// The words that the writer stores at every request. The owner reads `slot` alone, and only when it revokes a right.
/// The owner reads `expected` once, when the responder moves to another wire.
#[derive(Debug)]
#[repr(C, align(64))]
pub(super) struct WriterLine {
    pub(super) slot: WriterSlot,
    /// Receives taken so far. Every taken receive leaves one completion, so this also counts completions.
    pub(super) consumed: AtomicU64,
    /// Sequence number of the next request.
    pub(super) expected: AtomicU32,
    /// 1 once the peer was asked to repeat the request `expected`, so that the writer asks only once for each gap.
    pub(super) awaiting: AtomicU32,
}

/// The words that both sides write seldom and read at every completion.
#[derive(Debug)]
#[repr(C, align(64))]
pub(super) struct BellLine {
    pub(super) doorbell: Doorbell,
    /// The last refusal: its code in the lowest byte, and above it the number of refusals so far. The count makes
    /// each refusal a new value, also when two in a row have the same code.
    pub(super) verdict: AtomicU32,
}

/// The header of a mailbox, in the order of its cache lines.
#[derive(Debug)]
#[repr(C)]
pub(super) struct Header {
    pub(super) owner: OwnerLine,
    pub(super) writer: WriterLine,
    pub(super) bell: BellLine,
}

/// A posted receive: written by the owner, read by the writer. `sequence` is stored last.
#[derive(Debug)]
#[repr(C, align(32))]
pub(super) struct ReceiveEntry {
    pub(super) sequence: AtomicU64,
    pub(super) addr: AtomicU64,
    pub(super) len: AtomicU32,
    pub(super) lkey: AtomicU32,
}

/// The result of a receive: written by the writer, read by the owner. `sequence` is stored last.
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

// SAFETY: every field is an integer atomic, so any bytes the peer stores are a valid value.
unsafe impl Shared for Header {}
// SAFETY: every field is an integer atomic, so any bytes the peer stores are a valid value.
unsafe impl Shared for ReceiveEntry {}
// SAFETY: every field is an integer atomic, so any bytes the peer stores are a valid value.
unsafe impl Shared for CompletionEntry {}

/// The bits of the verdict word that hold the code of a refusal: the number of the event that the refusal raises, or
/// [`NO_EVENT`].
pub(super) const VERDICT_CODES: u32 = 0xff;
/// Code of a refusal without an event, because the failed completion of the receive already says everything.
const NO_EVENT: u32 = 1;

/// The code by which a writer tells the owner that it refused a request.
pub(super) fn verdict_code(refusal: Refusal) -> u32 {
    refusal.event().map_or(NO_EVENT, |event| event.0)
}

/// Returns the event that a verdict word raises. A code that no writer of ours leaves fails the queue pair, because a
/// writer that breaks the protocol cannot be trusted with the next request.
pub(super) fn verdict_event(word: u32) -> Option<EventKind> {
    match EventKind(word & VERDICT_CODES) {
        EventKind(NO_EVENT) => None,
        event @ (EventKind::QP_REQ_ERR | EventKind::QP_ACCESS_ERR) => Some(event),
        _ => Some(EventKind::QP_FATAL),
    }
}

/// Byte offsets of the two rings of a mailbox, and the end of the mailbox.
#[derive(Debug, Clone, Copy)]
pub(super) struct RingOffsets {
    pub(super) receives: usize,
    pub(super) completions: usize,
    pub(super) end: usize,
}

/// Computes the offsets for rings of `entries` entries each; `None` when they exceed an address space.
pub(super) fn ring_offsets(entries: usize) -> Option<RingOffsets> {
    let ring = entries.checked_mul(ENTRY)?;
    let completions = HEADER.checked_add(ring)?;
    Some(RingOffsets { receives: HEADER, completions, end: completions.checked_add(ring)? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_verdict_has_an_event_and_nonsense_is_fatal() {
        let event = |code: u32| verdict_event(7 << 8 | code);
        let refusals =
            [Refusal::Operation, Refusal::Registration, Refusal::ReceiveLength, Refusal::ReceiveMemory];
        for refusal in refusals {
            assert_eq!(event(verdict_code(refusal)), refusal.event(), "{refusal:?}");
        }
        for nonsense in [0, 4, 0xff] {
            assert_eq!(event(nonsense), Some(EventKind::QP_FATAL));
        }
    }
}
