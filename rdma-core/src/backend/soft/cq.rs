//! Completion queues: a ring that may overrun.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use super::channel::Channel;
use super::fabric::ContextRef;
use super::fault::Planted;
use super::wire::{CompletionWatch, QpRef};
use crate::backend::interface::RawCompletion;

/// Set in the hint once completions were lost.
const OVERRUN: u32 = 1 << 31;

/// What its worker may look at without the lock: how many completions there are.
#[derive(Debug, Default)]
pub(super) struct Hint {
    completions: AtomicU32,
    /// Counts changes of what is watched besides.
    watches: AtomicU32,
}

impl Hint {
    /// Whether polling would tell something.
    pub(super) fn is_raised(&self) -> bool {
        self.completions.load(Ordering::Acquire) != 0
    }

    /// Changes with the [`watches`](CompletionQueue::watches) of the queue.
    pub(super) fn watches(&self) -> u32 {
        self.watches.load(Ordering::Acquire)
    }
}

/// A completion queue.
#[derive(Debug)]
pub(super) struct CompletionQueue {
    pub(super) context: ContextRef,
    entries: VecDeque<RawCompletion>,
    depth: usize,
    overrun: bool,
    armed: bool,
    channel: Channel,
    hint: Arc<Hint>,
    /// Where peers leave completions of this queue.
    watches: Vec<(QpRef, CompletionWatch)>,
    planted: Option<Planted>,
    /// Completions ever added; counted for planted faults alone.
    pushed: u64,
}

impl CompletionQueue {
    pub(super) fn new(
        context: ContextRef,
        depth: usize,
        channel: Channel,
        hint: Arc<Hint>,
        planted: Option<Planted>,
    ) -> Self {
        let entries = VecDeque::with_capacity(depth);
        let watches = Vec::new();
        Self {
            context,
            entries,
            depth,
            overrun: false,
            armed: false,
            channel,
            hint,
            watches,
            planted,
            pushed: 0,
        }
    }

    /// Adds a completion. `false` when this is the first that does not fit.
    pub(super) fn push(&mut self, completion: RawCompletion) -> bool {
        if self.overrun {
            return true;
        }
        self.overrun = self.entries.len() >= self.depth;
        if !self.overrun {
            self.entries.push_back(completion);
            if self.planted.is_some() {
                self.spoil(completion);
            }
        }
        self.tell();
        if std::mem::take(&mut self.armed) {
            self.channel.raise();
        }
        !self.overrun
    }

    /// Carries out a planted fault.
    #[cold]
    fn spoil(&mut self, completion: RawCompletion) {
        self.pushed += 1;
        let newest = self.entries.len() - 1;
        match self.planted {
            Some(Planted::DoubleCompletion) if self.pushed == 3 && self.entries.len() < self.depth => {
                self.entries.push_back(completion);
            }
            Some(Planted::OutOfOrder)
                if self.pushed >= 3 && newest > 0 && self.entries[newest - 1].qp_num == completion.qp_num =>
            {
                self.entries.swap(newest - 1, newest);
                self.planted = None;
            }
            _ => {}
        }
    }

    /// Takes the oldest; `None` when there is none and some were lost.
    pub(super) fn take(&mut self, out: &mut [RawCompletion]) -> Option<usize> {
        if self.overrun && self.entries.is_empty() {
            return None;
        }
        let count = out.len().min(self.entries.len());
        for (place, completion) in out.iter_mut().zip(self.entries.drain(..count)) {
            *place = completion;
        }
        self.tell();
        Some(count)
    }

    /// The next completion raises the channel.
    pub(super) fn arm(&mut self) {
        self.armed = true;
    }

    /// Whether the next completion raises the channel.
    pub(super) fn is_armed(&self) -> bool {
        self.armed
    }

    /// The channel was raised by another process.
    pub(super) fn disarm(&mut self) {
        self.armed = false;
    }

    /// What another process raises the channel by.
    pub(super) fn doorbell(&self) -> io::Result<OwnedFd> {
        self.channel.as_fd().try_clone_to_owned()
    }

    /// Where else completions of this queue are.
    pub(super) fn watches(&self) -> &[(QpRef, CompletionWatch)] {
        &self.watches
    }

    /// A peer leaves completions of that queue pair there.
    pub(super) fn watch(&mut self, qp: QpRef, watch: CompletionWatch) {
        self.unwatch(qp);
        self.watches.push((qp, watch));
        self.hint.watches.fetch_add(1, Ordering::Release);
    }

    /// It does so no more.
    pub(super) fn unwatch(&mut self, qp: QpRef) {
        self.watches.retain(|(it, _)| *it != qp);
        self.hint.watches.fetch_add(1, Ordering::Release);
    }

    /// Forgets the completions of a destroyed queue pair.
    pub(super) fn forget(&mut self, qp_num: u32) {
        self.entries.retain(|completion| completion.qp_num != qp_num);
        self.tell();
    }

    fn tell(&self) {
        let overrun = if self.overrun { OVERRUN } else { 0 };
        // At most 2^20 entries.
        self.hint.completions.store(self.entries.len() as u32 | overrun, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn completion(wr_id: u64, qp_num: u32) -> RawCompletion {
        RawCompletion { wr_id, qp_num, ..RawCompletion::default() }
    }

    fn queue(depth: usize) -> (CompletionQueue, Arc<Hint>, Channel) {
        let (hint, channel) = (Arc::new(Hint::default()), Channel::new().unwrap());
        (
            CompletionQueue::new(ContextRef::default(), depth, channel.clone(), hint.clone(), None),
            hint,
            channel,
        )
    }

    #[test]
    fn what_fits_is_told_before_the_overrun() {
        let (mut cq, hint, _channel) = queue(2);
        assert!(!hint.is_raised());
        assert!(cq.push(completion(1, 7)) && cq.push(completion(2, 7)));
        assert!(!cq.push(completion(3, 7)));
        assert!(cq.push(completion(4, 7)), "an overrun is told once");
        let mut out = [RawCompletion::default(); 4];
        assert_eq!(cq.take(&mut out), Some(2));
        assert_eq!((out[0].wr_id, out[1].wr_id), (1, 2));
        assert!(hint.is_raised());
        assert_eq!(cq.take(&mut out), None);
        assert_eq!(cq.take(&mut out), None);
    }

    #[test]
    fn a_destroyed_queue_pair_leaves_nothing() {
        let (mut cq, hint, _channel) = queue(8);
        for wr_id in 0..6 {
            cq.push(completion(wr_id, 7 + wr_id as u32 % 2));
        }
        cq.forget(7);
        let mut out = [RawCompletion::default(); 8];
        assert_eq!(cq.take(&mut out), Some(3));
        assert!(out[..3].iter().all(|completion| completion.qp_num == 8));
        assert!(!hint.is_raised());
    }

    #[test]
    fn an_armed_queue_raises_once() {
        use rustix::event::{PollFd, PollFlags, Timespec, poll};
        let (mut cq, _hint, channel) = queue(8);
        let readable = || {
            let timeout = Timespec { tv_sec: 0, tv_nsec: 0 };
            poll(&mut [PollFd::new(&channel, PollFlags::IN)], Some(&timeout)).unwrap() == 1
        };
        cq.push(completion(1, 7));
        assert!(!readable());
        cq.arm();
        assert!(!readable());
        cq.push(completion(2, 7));
        assert!(readable());
        channel.consume().unwrap();
        cq.push(completion(3, 7));
        assert!(!readable());
    }
}
