//! Waking of tasks.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::Waker;

/// Wakes tasks. A waker that panics stops neither the others nor this thread, which may be the engine's or a node's.
pub(crate) fn wake_all(woken: impl IntoIterator<Item = Waker>) {
    for waker in woken {
        if catch_unwind(AssertUnwindSafe(|| waker.wake())).is_err() {
            crate::log::error!("the waker of a task has panicked");
        }
    }
}
