//! What was found while the core was locked: whether others have to look, and the tasks to wake.

use std::task::Waker;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct News {
    any: bool,
    /// What they run may need the core: they are woken once it is unlocked.
    wakers: Vec<Waker>,
}

impl News {
    /// Something has happened that others may wait for.
    pub(super) fn note(&mut self) {
        self.any = true;
    }

    /// Wakes a task, too.
    pub(super) fn wake(&mut self, waker: Waker) {
        self.any = true;
        self.wakers.push(waker);
    }

    /// Whether there is something to tell.
    pub(super) fn is_some(&self) -> bool {
        self.any
    }

    /// Whether there was something to tell, which whoever asks does.
    pub(super) fn take(&mut self) -> bool {
        std::mem::take(&mut self.any)
    }

    /// The tasks to wake; nothing when there are none.
    pub(super) fn take_wakers(&mut self) -> Vec<Waker> {
        if self.wakers.is_empty() { Vec::new() } else { std::mem::take(&mut self.wakers) }
    }

    /// The room of tasks that were woken is used again.
    pub(super) fn keep_room(&mut self, room: Vec<Waker>) {
        if self.wakers.capacity() < room.capacity() && self.wakers.is_empty() {
            self.wakers = room;
        }
    }
}
