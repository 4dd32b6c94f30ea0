//! Requests that are carried out before they enter the send queue, because nothing is before them there.
//!
//! Nearly all requests take this path: the peer's answer is known before the post returns, so nothing has to be kept.
//! If the peer does not say "done", the request is queued after all, and its outcome is handled as if it had been
//! sent from the queue.

#![expect(unsafe_code, reason = "hands the memory of requests to the responder")]

use slotmap::SlotMap;

use super::super::super::clock;
use super::super::super::cq::CompletionQueue;
use super::super::super::cq::CqRef;
use super::super::super::engine::effect::Effect;
use super::super::super::fabric::{DeviceState, State};
use super::super::super::fault::Injected;
use super::super::super::qp::{Carrier, QueuePair};
use super::super::shm::{CopyBudget, CopyProgress, Executed, LocalBuffer, Outcome};
use super::super::{HOLD_BYTES_MAX, QpRef};
use super::requester::ring;
use crate::backend::interface::{RawCompletion, RawOpcode, RawSend};
use crate::memory::{CacheHint, prefetch};

/// Bytes of a page: one address translation.
const PAGE: u64 = 4096;
/// Bytes of a cache line: one prefetch.
const LINE: usize = 64;

/// Limits of [`post_small_inline`](State::post_small_inline): at most 4 KiB a request and 8 requests a chain.
/// Together that is 32 KiB, so the lock is held for less time than one message of 256 KiB takes, and nothing is large
/// enough to be stored around the caches.
const SMALL: u32 = 4096;
/// Most requests of a chain for the small path; see [`SMALL`].
const SHORT: usize = 8;

/// Progress of a chain of requests that bypasses the send queue.
#[derive(Debug)]
pub(in super::super::super) struct BypassProgress {
    /// Requests that are completed.
    pub(in super::super::super) count: usize,
    /// Bytes of the next request that are copied already.
    copied: CopyProgress,
}

impl BypassProgress {
    /// Progress with `count` requests completed.
    pub(in super::super::super) fn after(count: usize) -> Self {
        Self { count, copied: CopyProgress::default() }
    }
}

/// The parts of the state that a bypass needs, looked up once for a chain.
struct Bypass<'a> {
    qp: &'a mut QueuePair,
    device: &'a DeviceState,
    cqs: &'a mut SlotMap<CqRef, CompletionQueue>,
    overrun: &'a mut Vec<CqRef>,
}

impl Bypass<'_> {
    /// Completes `send`, which the peer has carried out.
    #[inline(always)]
    fn complete(&mut self, send: &RawSend) {
        if let Some(done) = self.qp.requester.complete_bypassed(send)
            && let Some(queue) = self.cqs.get_mut(self.qp.cq)
            && !queue.push(RawCompletion { qp_num: self.qp.num.0, ..done })
        {
            self.overrun.push(self.qp.cq);
        }
    }
}

impl State {
    /// Carries out a short chain of small requests with nothing unusual, and returns how many.
    /// [`post_bypass_queue`](Self::post_bypass_queue) goes on with the rest.
    ///
    /// # Safety
    ///
    /// `chain` is as for [`RawWorker::post_send`](crate::backend::interface::RawWorker::post_send).
    #[inline(always)]
    pub(in super::super::super) unsafe fn post_small_inline(
        &mut self,
        id: QpRef,
        chain: &[RawSend],
    ) -> usize {
        let Some(mut bypass) =
            self.bypass(id).filter(|bypass| chain.len() <= SHORT && !bypass.qp.mapped.peer_in_process)
        else {
            return 0;
        };
        for (at, send) in chain.iter().enumerate() {
            let Bypass { qp, device, .. } = &mut bypass;
            let small = send.len <= SMALL && send.hint == CacheHint::Cached;
            let (Some(outgoing), true) = (&qp.mapped.outgoing, small && qp.takes_inline(send)) else {
                return at;
            };
            let request = qp.requester.bypass_request(send, &device.keys, qp.domain);
            // SAFETY: the range was checked against a registration, or is inline, and the caller keeps it readable,
            // so the payload may be read.
            let done = request
                .and_then(|request| unsafe { outgoing.responder.try_execute_small(&request, send.addr) });
            let Some(rings) = done else { return at };
            if rings {
                ring(&outgoing.doorbell);
            }
            bypass.complete(send);
        }
        chain.len()
    }

    /// Carries out the next requests of `chain`, as far as the bypass allows. Returns whether there is more to do
    /// after others had the lock; the caller must post nothing in between, because `progress` continues this chain.
    ///
    /// # Safety
    ///
    /// `chain` is as for [`RawWorker::post_send`](crate::backend::interface::RawWorker::post_send).
    #[inline(never)]
    pub(in super::super::super) unsafe fn post_bypass_queue(
        &mut self,
        id: QpRef,
        chain: &[RawSend],
        progress: &mut BypassProgress,
    ) -> bool {
        if self.qps.get(id).is_none_or(|qp| qp.mapped.peer_in_process && self.peer_has_faults(id)) {
            return false;
        }
        let Some(mut bypass) = self.bypass(id) else { return false };
        let hint = match chain {
            // The length of a single request decides by itself.
            [_] => CacheHint::Cached,
            _ => CacheHint::of_total(chain.iter().map(|send| send.len as usize).sum()),
        };
        // 256 KiB in all: then the lock is given to others, so that no poster waits for a whole chain.
        let mut left = HOLD_BYTES_MAX as u32;
        for (at, send) in chain.iter().enumerate().skip(progress.count) {
            let Bypass { qp, device, .. } = &mut bypass;
            let request =
                qp.requester.bypass_request(send, &device.keys, qp.domain).filter(|_| qp.takes_inline(send));
            let (Some(request), Some(outgoing)) = (request, &mut qp.mapped.outgoing) else { return false };
            let before = std::mem::take(&mut progress.copied);
            let budget = CopyBudget { resume: before, max_bytes: left };
            let local = LocalBuffer { addr: send.addr, hint: send.hint.or(hint), budget };
            if local.hint == CacheHint::Streamed {
                chain.get(at + 1).into_iter().for_each(fetch_first);
            }
            // SAFETY: the range was checked against a registration, or is inline, and the caller keeps it for the
            // call, so the responder may access it.
            let executed = unsafe { outgoing.responder.execute(&request, local, Injected::Deliver) };
            if let Outcome::Partial(begun) = executed.outcome {
                progress.copied = begun;
                // A peer that makes the copy begin anew again and again would hold this thread for ever. Without
                // progress the request goes to the queue, which copies it whole.
                return begun.is_after(before);
            }
            if !executed.is_done(&request) {
                // SAFETY: `send` is one of `chain`, so the caller's promise covers it.
                progress.count += usize::from(unsafe { self.enqueue_executed(id, send, executed) });
                return false;
            }
            if executed.ring {
                ring(&outgoing.doorbell);
            }
            bypass.complete(send);
            progress.count += 1;
            left = left.saturating_sub(send.len);
            if left == 0 {
                return progress.count < chain.len();
            }
        }
        false
    }

    /// Returns what is needed to bypass the send queue of `id`. `None` when a fault, an unmapped memory or the state
    /// of the queue pair forbids it.
    #[inline(always)]
    fn bypass(&mut self, id: QpRef) -> Option<Bypass<'_>> {
        let qp = self.qps.get_mut(id)?;
        let device = self.devices.get(qp.device)?;
        let is_mapped = qp.carrier == Carrier::Mapped && qp.mapped.outgoing.is_some();
        let is_free = qp.state.takes_sends() && qp.mapped.awaited_memory.is_none();
        let is_open = is_mapped && is_free && device.is_up() && device.faults.is_none();
        is_open.then_some(Bypass { qp, device, cqs: &mut self.cqs, overrun: &mut self.overrun })
    }

    /// Whether faults are injected at the peer of `id`, which is in this process.
    #[cold]
    fn peer_has_faults(&self, id: QpRef) -> bool {
        let peer = self.peer_in_process(id).and_then(|to| self.qps.get(to));
        let device = peer.and_then(|qp| self.devices.get(qp.device));
        device.is_some_and(|device| device.faults.is_some())
    }

    /// Queues a request of which the peer was asked already, and handles the outcome. `false` when the request cannot
    /// be queued.
    ///
    /// # Safety
    ///
    /// `send` is as for [`post_bypass_queue`](Self::post_bypass_queue).
    #[cold]
    unsafe fn enqueue_executed(&mut self, id: QpRef, send: &RawSend, executed: Executed) -> bool {
        let now = clock::soon();
        let Some(qp) = self.qps.get_mut(id) else { return false };
        let Some(device) = self.devices.get(qp.device) else { return false };
        // SAFETY: the caller promises that the memory of `send` stays until its completion, so it may be queued.
        if unsafe { qp.post_send(send) }.is_err() {
            return false;
        }
        let handed_out = qp.requester.poll_effect(now, &device.keys, qp.domain);
        debug_assert!(matches!(handed_out, Some(Effect::Transmit { .. })), "{handed_out:?}");
        self.conclude_executed(now, id, send.addr, executed);
        self.pump(now, id);
        true
    }
}

/// Prefetches the first page of the next payload while another is copied. Between the two copies is a full fence, and
/// the processor reads nothing ahead of it.
fn fetch_first(send: &RawSend) {
    if send.opcode != RawOpcode::Read && !send.inline {
        (0..u64::from(send.len).min(PAGE)).step_by(LINE).for_each(|at| prefetch(send.addr.wrapping_add(at)));
    }
}
