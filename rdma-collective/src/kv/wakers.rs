//! Wakers of the tasks that wait for transfers. The thread that drives the engine wakes them.

use std::task::Waker;

use crate::engine::EngineState;

/// Wakers of the tasks that wait, by the number of the transfer (or of the transfer and layer).
#[derive(Debug)]
pub(super) struct Wakers<Id = u64>(Vec<(Id, Waker)>);

impl<Id> Default for Wakers<Id> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<Id: Copy + PartialEq> Wakers<Id> {
    /// Registers the waker of a transfer, which has one at a time. Drop the returned waker only after all locks are
    /// released, because its destructor may run any code of the runtime.
    #[must_use]
    pub(super) fn set(&mut self, id: Id, waker: &Waker) -> Option<Waker> {
        match self.0.iter_mut().find(|(of, _)| *of == id) {
            Some((_, known)) if known.will_wake(waker) => None,
            Some((_, known)) => Some(std::mem::replace(known, waker.clone())),
            None => {
                self.0.push((id, waker.clone()));
                None
            }
        }
    }

    /// Wakes and removes the tasks whose transfers are over.
    pub(super) fn wake(&mut self, core: &mut EngineState, goes_on: impl Fn(Id) -> bool) {
        let mut at = 0;
        while let Some((id, _)) = self.0.get(at) {
            if goes_on(*id) {
                at += 1;
            } else {
                core.wake(self.0.swap_remove(at).1);
            }
        }
    }
}
