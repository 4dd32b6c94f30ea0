//! Carries out a request in the peer's memory, as [`decision`](crate::backend::soft::engine::decision) says.

#![expect(unsafe_code, reason = "passes on the caller's word for its memory")]

use super::super::atomic::Ordering;
use super::super::key_table::FoundKey;
use super::super::layout::{VERDICT_CODES, verdict_code};
use super::copy::CopyResult;
use super::{Executed, LocalBuffer, Outcome, RemoteResponder};
use crate::Access;
use crate::backend::soft::engine::decision::{
    Decision, Receive, Refusal, ResponderState, ack, decide_injected, nak, takes_receive,
};
use crate::backend::soft::engine::keys::KeyRefusal;
use crate::backend::soft::engine::message::{Reply, ReplyKind, Request, RequestOp};
use crate::backend::soft::fault::Injected;

/// Attempts at a request whose pages are replaced while it is carried out. Each replacement takes a writer that is
/// stopped, so more than a few in a row do not happen; then the request waits in the queue.
const ATTEMPTS_MAX: u32 = 8;

impl ResponderState for RemoteResponder {
    type Registration<'a> = FoundKey<'a>;

    #[inline(always)]
    fn answers(&self) -> bool {
        self.is_open() && !self.is_refused()
    }

    #[inline(always)]
    fn expected(&self) -> u32 {
        self.header.writer.expected.load(Ordering::Relaxed)
    }

    fn is_awaiting(&self) -> bool {
        self.header.writer.awaiting.load(Ordering::Relaxed) != 0
    }

    #[inline(always)]
    fn grants(&self) -> Access {
        self.rules.access
    }

    fn rnr_timer(&self) -> u8 {
        self.rules.rnr_timer
    }

    #[inline(always)]
    fn next_receive(&self) -> Option<Receive> {
        let consumed = self.header.writer.consumed.load(Ordering::Relaxed);
        let entry = self.ring.ring_entry(consumed);
        // Acquire pairs with the owner's Release store: the fields of the receive are there. Equality, not "at
        // least": a stale entry of the round before has a smaller number, and only a lying peer leaves a larger one.
        (entry.sequence.load(Ordering::Acquire) == consumed.wrapping_add(1)).then(|| Receive {
            addr: entry.addr.load(Ordering::Relaxed),
            len: entry.len.load(Ordering::Relaxed),
            lkey: entry.lkey.load(Ordering::Relaxed),
        })
    }

    #[inline(always)]
    fn registration(&self, key: u32, addr: u64, len: u32, needs: Access) -> Result<FoundKey<'_>, KeyRefusal> {
        let found = self.keys.find(key).ok_or(KeyRefusal::Unknown)?;
        found.export.registered.check(self.domain, addr, len, needs)?;
        Ok(found)
    }
}

impl RemoteResponder {
    /// Carries out a request, with its payload or the target of its answer at `local`. Of injected faults, the caller
    /// handles those that lose or delay a message.
    ///
    /// # Safety
    ///
    /// `request.len` bytes at `local.addr` are mapped for the whole call, writable for a read, and no reference to
    /// them exists.
    #[inline]
    pub(crate) unsafe fn execute(
        &mut self,
        request: &Request,
        local: LocalBuffer,
        injected: Injected,
    ) -> Executed {
        // SAFETY: the range and the request are passed on unchanged, so the caller's promise about `local` covers this
        // call.
        let mut executed = unsafe { self.attempt(request, local, injected) };
        for _ in 1..ATTEMPTS_MAX {
            // The outcome is `Unmapped` although nothing is missing: pages were replaced during the attempt, and the
            // new ones are mapped already.
            if !matches!(executed.outcome, Outcome::Unmapped(_)) || self.missing_memory(request).is_some() {
                break;
            }
            // SAFETY: the caller's promise about `local` holds until `execute` returns, so it covers every attempt.
            executed = unsafe { self.attempt(request, local, injected) };
        }
        executed
    }

    /// Carries out a request once.
    ///
    /// # Safety
    ///
    /// `local` is as for [`execute`](Self::execute).
    unsafe fn attempt(&self, request: &Request, local: LocalBuffer, injected: Injected) -> Executed {
        match decide_injected(self, request, injected) {
            Decision::Silence => Executed::quiet(Outcome::Silence),
            Decision::Answer(reply) => Executed::quiet(Outcome::Reply(reply)),
            Decision::Await(reply) => {
                self.header.writer.awaiting.store(1, Ordering::Relaxed);
                Executed::quiet(Outcome::Reply(reply))
            }
            Decision::NoBytes => self.finish(request),
            Decision::Write { to, addr } => {
                // SAFETY: the caller promises that `request.len` bytes at `local.addr` stay readable, so
                // `write_payload` may read them.
                let copied = unsafe { self.write_payload(&to, request, local, addr, injected) };
                self.conclude(request, &to, copied)
            }
            Decision::Read { of: Some(of) } => {
                // SAFETY: the caller promises that `request.len` bytes at `local.addr` stay writable and
                // unreferenced, so `read_payload` may write them.
                let copied = unsafe { self.read_payload(&of, request, local) };
                self.conclude(request, &of, copied)
            }
            Decision::Read { of: None } => self.serve(request),
            Decision::Refuse(refusal) => self.refuse(request, refusal),
        }
    }

    /// Concludes a request whose bytes were copied, as far as they were.
    #[inline]
    fn conclude(&self, request: &Request, found: &FoundKey<'_>, copied: CopyResult) -> Executed {
        match copied {
            CopyResult::All { .. } if request.op == RequestOp::Read => self.serve(request),
            CopyResult::All { ring } => acknowledge(request, ring),
            CopyResult::Partial(begun) => Executed::quiet(Outcome::Partial(begun)),
            CopyResult::Closed => Executed::quiet(Outcome::Silence),
            CopyResult::Revoked if !self.pages_were_replaced(found) => {
                self.refuse(request, Refusal::of_memory(request.op))
            }
            CopyResult::Revoked | CopyResult::Unmapped => {
                Executed::quiet(Outcome::Unmapped(found.export.memory))
            }
        }
    }

    /// Returns the memory that a request needs and that is not mapped; 0 is one that never will be.
    pub(crate) fn missing_memory(&self, request: &Request) -> Option<u64> {
        if request.len == 0 {
            return None;
        }
        let key = match request.op {
            RequestOp::Send => self.next_receive()?.lkey,
            RequestOp::Write | RequestOp::Read => request.rkey,
        };
        let export = self.keys.find(key)?.export;
        (!self.memories.has(export.memory, export.version)).then_some(export.memory)
    }

    /// Answers a read, whose bytes are there. A repeated one was counted before.
    fn serve(&self, request: &Request) -> Executed {
        if request.psn == self.expected() {
            self.expect_next();
        }
        let data = Reply { psn: request.psn, kind: ReplyKind::ReadData, len: request.len };
        Executed::quiet(Outcome::Reply(data))
    }

    /// Whether a registration that is not current has only had its pages replaced: its key still names the same
    /// memory.
    pub(super) fn pages_were_replaced(&self, found: &FoundKey<'_>) -> bool {
        let now = self.keys.find(found.export.key);
        now.is_some_and(|now| now.export.memory == found.export.memory)
    }

    /// Completes a request that touches no memory.
    #[inline(never)]
    fn finish(&self, request: &Request) -> Executed {
        let takes_receive = takes_receive(request) && self.next_receive().is_some();
        let finished = self.finish_without_memory(takes_receive, || self.complete(request));
        finished.map_or(Executed::quiet(Outcome::Silence), |ring| acknowledge(request, ring))
    }

    /// Refuses a request, and fails the receive that it takes: the peer's queue pair moves to ERR.
    #[cold]
    fn refuse(&self, request: &Request, refusal: Refusal) -> Executed {
        let mut ring = false;
        if let Some(status) = refusal.receive() {
            let failed = self.finish_without_memory(true, || self.push_completion(status, 0, 0, 0));
            let Some(rings) = failed else { return Executed::quiet(Outcome::Silence) };
            ring = rings;
        }
        let word = &self.header.bell.verdict;
        let count = word.load(Ordering::Relaxed) & !VERDICT_CODES;
        // The count in the upper bytes makes this a new word even when the code is that of the refusal before.
        let next = count.wrapping_add(VERDICT_CODES + 1);
        word.store(next | verdict_code(refusal), Ordering::Release);
        let outcome = Outcome::Reply(nak(request.psn, refusal.nak()));
        Executed { outcome, ring, nudge: true }
    }
}

/// The acknowledgement of a request that was carried out.
#[inline]
fn acknowledge(request: &Request, ring: bool) -> Executed {
    Executed { ring, ..Executed::quiet(Outcome::Reply(ack(request.psn))) }
}
