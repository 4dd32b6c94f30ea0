//! A test in the place of a writer.

use super::*;

impl Writer {
    /// Whether a writer would be admitted.
    pub(crate) fn may_enter(&self) -> bool {
        self.header.owner.state.load(Ordering::Relaxed) == OPEN
    }

    /// Announces that chunk as the writer would, or nothing.
    pub(crate) fn pretend(&self, at: Option<Chunk>) {
        match at {
            None => self.header.writer.slot.leave(),
            Some(Chunk { serial, begin, end }) => {
                assert!(self.header.writer.slot.enter(serial, begin..end, || true));
            }
        }
    }
}
