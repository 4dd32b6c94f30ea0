//! The notes of a transfer: bytes that each end may leave the other one, which gets them with the outcome.
//!
//! A note goes in pieces over the lane, behind the message that promises it, and a transfer is not done before its
//! notes are whole. So whoever reads a note has the blocks that it speaks of.

use std::sync::Arc;

use super::link::Link;
use super::message::NotePiece;
use crate::engine::EngineState;
use crate::link::control::Kind;

/// Longest note: 64 KiB bounds what a peer can make this side keep, with 256 grants, pushes and offers of a link each.
pub(super) const NOTE_BYTES_MAX: usize = 64 << 10;

/// A note that this end leaves the peer; a clone is another handle to it.
#[derive(Debug, Clone, Default)]
pub(super) enum Note {
    #[default]
    Empty,
    Bytes(Arc<[u8]>),
    /// Promised: the bytes are set while the transfer is under way.
    Later,
}

impl Note {
    pub(super) fn new(bytes: &[u8]) -> Self {
        if bytes.is_empty() { Self::Empty } else { Self::Bytes(bytes.into()) }
    }

    pub(super) fn is_empty(&self) -> bool {
        matches!(self, Self::Empty)
    }

    pub(super) fn is_later(&self) -> bool {
        matches!(self, Self::Later)
    }

    fn bytes(&self) -> &[u8] {
        if let Self::Bytes(bytes) = self { bytes } else { &[] }
    }
}

/// A note on its way to the peer.
#[derive(Debug)]
pub(super) struct Outgoing {
    note: Note,
    /// Bytes that the peer was sent; `None` before the first message.
    told: Option<usize>,
}

impl Outgoing {
    pub(super) fn new(note: Note) -> Self {
        Self { note, told: None }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.note.is_empty()
    }

    /// Whether the note was promised and is not set.
    pub(super) fn is_due(&self) -> bool {
        self.note.is_later()
    }

    /// Sets the note that was promised; returns whether one was due.
    pub(super) fn set(&mut self, note: Note) -> bool {
        let due = self.is_due();
        if due {
            self.note = note;
        }
        due
    }

    /// Sends the note of a grant or a lease, which is set, as far as the lane has room; returns whether all of it was
    /// sent. An empty note goes as one empty piece.
    pub(super) fn send(&mut self, link: &Link, core: &mut EngineState, kind: Kind, id: u64) -> bool {
        let bytes = self.note.bytes();
        let room = link.note_room(core).max(1);
        while self.told.is_none_or(|told| told < bytes.len()) {
            let told = self.told.unwrap_or(0);
            let rest = bytes.get(told..).unwrap_or_default();
            let piece = NotePiece {
                id,
                total: bytes.len() as u32,
                first: told as u32,
                bytes: rest.get(..room).unwrap_or(rest),
            };
            if !link.send(core, kind, |body| piece.write(body)) {
                return false;
            }
            self.told = Some(told + piece.bytes.len());
        }
        true
    }
}

/// A note of the peer, as far as it has arrived.
#[derive(Debug, Default)]
pub(super) struct Incoming {
    bytes: Vec<u8>,
    /// Bytes of the whole note, once a piece has told.
    total: Option<u32>,
    /// Whether pieces are still to come.
    is_due: bool,
}

impl Incoming {
    /// A note that was promised, or none.
    pub(super) fn promised(is_due: bool) -> Self {
        Self { bytes: Vec::new(), total: None, is_due }
    }

    pub(super) fn is_whole(&self) -> bool {
        !self.is_due
    }

    /// Whether some of the note has arrived, and not all.
    pub(super) fn is_partial(&self) -> bool {
        self.is_due && !self.bytes.is_empty()
    }

    /// Appends a piece. The bytes grow as pieces arrive and are not reserved in advance, because `total` is the peer's
    /// word.
    pub(super) fn add(&mut self, piece: &NotePiece<'_>) -> Result<(), &'static str> {
        let end = self.bytes.len() + piece.bytes.len();
        let is_next =
            piece.first as usize == self.bytes.len() && (!piece.bytes.is_empty() || piece.total == 0);
        let total = *self.total.get_or_insert(piece.total) as usize;
        let fits = total == piece.total as usize && total <= NOTE_BYTES_MAX && end <= total;
        if !self.is_due || !is_next || !fits {
            return Err("a note that was not promised, too long, or out of order");
        }
        if self.bytes.capacity() < end {
            let room = (2 * self.bytes.len()).clamp(end, total);
            self.bytes.reserve_exact(room - self.bytes.len());
        }
        self.bytes.extend_from_slice(piece.bytes);
        self.is_due = end < total;
        Ok(())
    }

    /// Takes the bytes of a note that is whole.
    pub(super) fn take(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece(total: u32, first: u32, bytes: &[u8]) -> NotePiece<'_> {
        NotePiece { id: 1, total, first, bytes }
    }

    #[test]
    fn pieces_come_in_order_and_end_with_the_last_byte() {
        let mut note = Incoming::promised(true);
        assert!(note.add(&piece(5, 0, b"abc")).is_ok() && !note.is_whole());
        let wrong = [
            piece(5, 0, b"abc"),
            piece(5, 4, b"e"),
            piece(5, 3, b"def"),
            piece(5, 3, b""),
            piece(70_000, 3, b"d"),
            piece(6, 3, b"de"),
        ];
        assert!(wrong.iter().all(|wrong| note.add(wrong).is_err()));
        assert!(note.add(&piece(5, 3, b"de")).is_ok() && note.is_whole());
        assert!(note.add(&piece(5, 5, b"")).is_err());
        assert_eq!(note.take(), b"abcde");
    }

    #[test]
    fn a_promised_note_is_set_once_and_any_other_never() {
        for (note, due) in [(Note::Later, true), (Note::new(b"first"), false), (Note::Empty, false)] {
            let mut note = Outgoing::new(note);
            assert_eq!((note.is_due(), note.is_empty()), (due, note.note.is_empty()));
            assert_eq!((note.set(Note::new(b"token")), note.is_due()), (due, false));
            assert!(!note.set(Note::new(b"again")));
            assert_eq!(note.note.bytes() == b"token", due);
        }
    }

    #[test]
    fn an_empty_note_that_was_promised_comes_once_and_one_that_was_not_never() {
        let mut note = Incoming::promised(true);
        assert!(note.add(&piece(0, 0, b"")).is_ok() && note.is_whole());
        assert!(note.add(&piece(0, 0, b"")).is_err());
        assert!(Incoming::promised(false).add(&piece(1, 0, b"a")).is_err());
    }
}
