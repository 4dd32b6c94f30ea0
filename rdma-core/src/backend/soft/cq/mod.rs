//! Completion queues: a ring that may overrun, and a hint that lets its worker poll without the lock.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use super::channel::Channel;
use super::event::ContextRef;
use super::fault::planted::{self, Planted};
use super::wire::{CompletionWatch, QpRef};
use crate::backend::interface::RawCompletion;

slotmap::new_key_type! {
    /// Names a completion queue.
    pub(super) struct CqRef;
}

/// A bit of the hint: completions were lost.
const OVERRUN: u32 = 1 << 31;

/// The part of a completion queue that its worker reads without the lock.
#[derive(Debug, Default)]
pub(super) struct Hint {
    /// Completions in the queue, and [`OVERRUN`].
    completions: AtomicU32,
    /// Counts changes of the list of mailboxes.
    watches: AtomicU32,
}

impl Hint {
    /// Whether polling returns a completion or an error.
    pub(super) fn is_raised(&self) -> bool {
        self.completions.load(Ordering::Acquire) != 0
    }

    /// A number that changes with the [`watches`](CompletionQueue::watches) of the queue.
    pub(super) fn watches(&self) -> u32 {
        self.watches.load(Ordering::Acquire)
    }
}

/// Entries that a queue has memory for from the beginning; more are allocated when they are needed. A ring as long as a
/// deep queue would go through all of its memory, and out of the cache, though few entries are in use.
const ENTRIES_AT_FIRST: usize = 8192;

/// A completion queue.
#[derive(Debug)]
pub(super) struct CompletionQueue {
    pub(super) context: ContextRef,
    entries: VecDeque<RawCompletion>,
    depth: usize,
    overrun: bool,
    /// The next completion raises the channel.
    pub(super) armed: bool,
    channel: Channel,
    hint: Arc<Hint>,
    /// The mailboxes that mapped peers leave completions of this queue in.
    watches: Vec<(QpRef, CompletionWatch)>,
}

impl CompletionQueue {
    pub(super) fn new(context: ContextRef, depth: usize, channel: Channel, hint: Arc<Hint>) -> Self {
        let entries = VecDeque::with_capacity(depth.min(ENTRIES_AT_FIRST));
        Self { context, entries, depth, overrun: false, armed: false, channel, hint, watches: Vec::new() }
    }

    /// Adds a completion. Returns `false` once, for the first completion that is lost: its queue pairs must move to
    /// ERR.
    pub(super) fn push(&mut self, completion: RawCompletion) -> bool {
        if self.overrun {
            return true;
        }
        self.overrun = self.entries.len() >= self.depth;
        if !self.overrun {
            self.entries.push_back(completion);
            self.spoil();
        }
        self.update_hint();
        if std::mem::take(&mut self.armed) {
            self.channel.raise();
        }
        !self.overrun
    }

    /// Carries out a planted fault on the newest completion.
    #[inline]
    fn spoil(&mut self) {
        let Some(newest) = self.entries.back_mut() else { return };
        if planted::is(Planted::WrongImmediate) {
            newest.imm = newest.imm.map(|imm| imm ^ 1);
        }
        let (newest, last) = (*newest, self.entries.len() - 1);
        if planted::at(Planted::DoubleCompletion, 3) && self.entries.len() < self.depth {
            self.entries.push_back(newest);
        }
        if planted::is(Planted::OutOfOrder) && last > 1 && self.entries[last - 1].qp_num == newest.qp_num {
            self.entries.swap(last - 1, last);
        }
    }

    /// Takes the oldest completions; `None` when none is left and some were lost.
    pub(super) fn take(&mut self, out: &mut [RawCompletion]) -> Option<usize> {
        if self.overrun && self.entries.is_empty() {
            return None;
        }
        let count = out.len().min(self.entries.len());
        for (entry, completion) in out.iter_mut().zip(self.entries.drain(..count)) {
            *entry = completion;
        }
        self.update_hint();
        Some(count)
    }

    /// Returns a descriptor by which another process raises the channel.
    pub(super) fn doorbell(&self) -> io::Result<OwnedFd> {
        self.channel.as_fd().try_clone_to_owned()
    }

    /// The mailboxes with further completions of this queue, by queue pair.
    pub(super) fn watches(&self) -> &[(QpRef, CompletionWatch)] {
        &self.watches
    }

    /// Adds the mailbox of a queue pair, whose peer leaves completions there from now on.
    pub(super) fn watch(&mut self, qp: QpRef, watch: CompletionWatch) {
        self.unwatch(qp);
        self.watches.push((qp, watch));
        self.hint.watches.fetch_add(1, Ordering::Release);
    }

    /// Removes the mailbox of a queue pair.
    pub(super) fn unwatch(&mut self, qp: QpRef) {
        self.watches.retain(|(it, _)| *it != qp);
        self.hint.watches.fetch_add(1, Ordering::Release);
    }

    /// Drops the completions of a destroyed queue pair: the fence reports its requests otherwise.
    pub(super) fn forget(&mut self, qp_num: u32) {
        self.entries.retain(|completion| completion.qp_num != qp_num);
        self.update_hint();
    }

    /// Publishes the number of completions to the worker, with release ordering, after the entries were changed.
    fn update_hint(&self) {
        let overrun = if self.overrun { OVERRUN } else { 0 };
        // The cast is exact and leaves the top bit free: a queue has at most 2^20 entries.
        self.hint.completions.store(self.entries.len() as u32 | overrun, Ordering::Release);
    }
}

#[cfg(test)]
mod tests;
