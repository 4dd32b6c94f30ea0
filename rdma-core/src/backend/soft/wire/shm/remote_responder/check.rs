//! Decides the outcome of a request: its order, its receive, its length and its rights.
//!
//! The order of the checks is that of [`engine::responder`](crate::backend::soft::engine::responder), because it
//! decides which error a request with two faults gets. The tests compare the two.

#![expect(unsafe_code, reason = "passes on the caller's word for its memory")]

use super::super::atomic::Ordering;
use super::super::key_table::FoundKey;
use super::super::layout::Verdict;
use super::copy::{CopyResult, Endpoints};
use super::{Executed, LocalBuffer, Outcome, RemoteResponder};
use crate::Access;
use crate::CompletionStatus;
use crate::backend::soft::engine::keys::KeyRefusal;
use crate::backend::soft::engine::message::{Nak, Reply, ReplyKind, Request, RequestOp};
use crate::backend::soft::engine::sequence;
use crate::backend::soft::fault::{Injected, Planted};

/// Attempts at a request whose pages are replaced while it is carried out. Each replacement takes a writer that is
/// stopped, so more than a few in a row do not happen; then the request waits in the queue.
const ATTEMPTS_MAX: u32 = 8;

/// A receive of the peer, as the ring says. Nothing in it is believed before it is checked against the key table.
#[derive(Debug, Clone, Copy)]
pub(super) struct Receive {
    pub(super) addr: u64,
    pub(super) len: u32,
    pub(super) lkey: u32,
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
    unsafe fn attempt(&mut self, request: &Request, local: LocalBuffer, injected: Injected) -> Executed {
        if !self.is_open() || self.is_refused() {
            return Executed::quiet(Outcome::Silence);
        }
        let expected = self.header.writer.expected.load(Ordering::Relaxed);
        match sequence::distance(expected, request.psn) {
            0 if injected == Injected::NotReady => self.not_ready(request),
            0 => {
                self.header.writer.awaiting.store(0, Ordering::Relaxed);
                // SAFETY: `request` and `local` are passed on unchanged, so the caller's promise about `local` covers
                // each arm.
                unsafe {
                    match request.op {
                        RequestOp::Send => self.send(request, local, injected),
                        RequestOp::Write => self.write(request, local, injected),
                        RequestOp::Read => self.read(request, local),
                    }
                }
            }
            ahead if ahead > 0 => self.gap(expected),
            // SAFETY: `request` and `local` are passed on unchanged, so the caller's promise about `local` covers
            // this call.
            _ if request.op == RequestOp::Read => unsafe { self.read(request, local) },
            // A repeated request was carried out already. The acknowledgement names the last one in order, so it
            // covers all that are repeated.
            _ => reply(sequence::before(expected), ReplyKind::Ack),
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

    /// Reports a gap: a request before this one is missing. Asks for it once, because the requester repeats
    /// everything from there on, and further NAKs would make it repeat again.
    #[cold]
    fn gap(&self, expected: u32) -> Executed {
        let awaiting = &self.header.writer.awaiting;
        if awaiting.load(Ordering::Relaxed) != 0 {
            return Executed::quiet(Outcome::Silence);
        }
        awaiting.store(1, Ordering::Relaxed);
        reply(expected, ReplyKind::Nak(Nak::Sequence))
    }

    /// Carries out a send.
    ///
    /// # Safety
    ///
    /// `local` is as for [`execute`](Self::execute).
    #[inline]
    unsafe fn send(&self, request: &Request, local: LocalBuffer, injected: Injected) -> Executed {
        let Some(recv) = self.next_receive() else { return self.not_ready(request) };
        if request.len > recv.len {
            return self.refuse_receive(request, CompletionStatus::LOC_LEN_ERR, Nak::InvalidRequest);
        }
        if request.len == 0 {
            return self.carry_out(request);
        }
        let foreign = || self.refuse_receive(request, CompletionStatus::LOC_PROT_ERR, Nak::RemoteOperational);
        let Some(found) = self.keys.find(recv.lkey) else { return foreign() };
        let registered = &found.export.registered;
        if registered.check(self.peer.domain, recv.addr, request.len, Access::LOCAL_WRITE).is_err() {
            return foreign();
        }
        // SAFETY: the caller promises that `request.len` bytes at `local.addr` stay readable, so `write_payload` may
        // read them.
        match unsafe { self.write_payload(&found, request, Endpoints { local, remote: recv.addr }, injected) }
        {
            CopyResult::All { ring } => Executed { ring, ..ack(request) },
            CopyResult::Partial(begun) => Executed::quiet(Outcome::Partial(begun)),
            CopyResult::Revoked if self.pages_were_replaced(&found) => unmapped(&found),
            CopyResult::Revoked => foreign(),
            CopyResult::Closed => Executed::quiet(Outcome::Silence),
            CopyResult::Unmapped => unmapped(&found),
        }
    }

    /// Carries out a write, with or without immediate.
    ///
    /// # Safety
    ///
    /// `local` is as for [`execute`](Self::execute).
    #[inline]
    unsafe fn write(&self, request: &Request, local: LocalBuffer, injected: Injected) -> Executed {
        if !self.peer.access.contains(Access::REMOTE_WRITE) {
            return self.refuse(request, Nak::InvalidRequest, Verdict::Request);
        }
        if request.imm.is_some() && self.next_receive().is_none() {
            return self.not_ready(request);
        }
        if request.len == 0 {
            return self.carry_out(request);
        }
        let found = match self.check_remote(request, Access::REMOTE_WRITE) {
            Ok(found) => found,
            Err(refusal) if self.forgives(request, refusal) => return self.carry_out(request),
            Err(_) => return self.refuse(request, Nak::RemoteAccess, Verdict::Access),
        };
        // SAFETY: the caller promises that `request.len` bytes at `local.addr` stay readable, so `write_payload` may
        // read them.
        match unsafe {
            self.write_payload(&found, request, Endpoints { local, remote: request.remote_addr }, injected)
        } {
            CopyResult::All { ring } => Executed { ring, ..ack(request) },
            CopyResult::Partial(begun) => Executed::quiet(Outcome::Partial(begun)),
            CopyResult::Revoked if self.pages_were_replaced(&found) => unmapped(&found),
            CopyResult::Revoked => self.refuse(request, Nak::RemoteAccess, Verdict::Access),
            CopyResult::Closed => Executed::quiet(Outcome::Silence),
            CopyResult::Unmapped => unmapped(&found),
        }
    }

    /// Carries out a read. Reads change nothing at the peer, so a repeated one is answered again.
    ///
    /// # Safety
    ///
    /// `local` is as for [`execute`](Self::execute).
    unsafe fn read(&self, request: &Request, local: LocalBuffer) -> Executed {
        if !self.peer.access.contains(Access::REMOTE_READ) {
            return self.refuse(request, Nak::InvalidRequest, Verdict::Request);
        }
        if request.len > 0 {
            let Ok(found) = self.check_remote(request, Access::REMOTE_READ) else {
                return self.refuse(request, Nak::RemoteAccess, Verdict::Access);
            };
            // SAFETY: the caller promises that `request.len` bytes at `local.addr` stay writable and unreferenced, so
            // `read_payload` may write them.
            match unsafe { self.read_payload(&found, request, local) } {
                CopyResult::All { .. } => {}
                CopyResult::Partial(begun) => return Executed::quiet(Outcome::Partial(begun)),
                CopyResult::Revoked if self.pages_were_replaced(&found) => return unmapped(&found),
                CopyResult::Revoked => return self.refuse(request, Nak::RemoteAccess, Verdict::Access),
                CopyResult::Closed => return Executed::quiet(Outcome::Silence),
                CopyResult::Unmapped => return unmapped(&found),
            }
        }
        if request.psn == self.header.writer.expected.load(Ordering::Relaxed) {
            self.expect_next();
        }
        let data = Reply { psn: request.psn, kind: ReplyKind::ReadData, len: request.len };
        Executed::quiet(Outcome::Reply(data))
    }

    /// Finds the registration that the request names, with the rights that it needs.
    #[inline(always)]
    fn check_remote(&self, request: &Request, needs: Access) -> Result<FoundKey<'_>, KeyRefusal> {
        let found = self.keys.find(request.rkey).ok_or(KeyRefusal::Unknown)?;
        let registered = &found.export.registered;
        let check = |domain| registered.check(domain, request.remote_addr, request.len, needs);
        match check(self.peer.domain) {
            Err(KeyRefusal::ForeignDomain) if self.peer.planted == Some(Planted::ForeignKey) => {
                check(registered.domain)
            }
            checked => checked,
        }?;
        Ok(found)
    }

    /// Whether a registration that is not current has only had its pages replaced: its key still names the same
    /// memory.
    pub(super) fn pages_were_replaced(&self, found: &FoundKey<'_>) -> bool {
        let now = self.keys.find(found.export.key);
        now.is_some_and(|now| now.export.memory == found.export.memory)
    }

    /// Whether a planted fault treats a refused request as done. It touches no memory.
    #[cold]
    fn forgives(&self, request: &Request, refusal: KeyRefusal) -> bool {
        match self.peer.planted {
            Some(Planted::RangeWrap) => {
                refusal == KeyRefusal::OutOfRange
                    && request.remote_addr.checked_add(u64::from(request.len)).is_none()
            }
            Some(Planted::WriteAfterDeregistration) => refusal == KeyRefusal::Unknown,
            _ => false,
        }
    }

    /// Returns the oldest receive that is not taken.
    #[inline]
    pub(super) fn next_receive(&self) -> Option<Receive> {
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

    #[cold]
    fn not_ready(&self, request: &Request) -> Executed {
        if self.peer.planted == Some(Planted::MissingRnr) {
            return self.carry_out(request);
        }
        self.header.writer.awaiting.store(1, Ordering::Relaxed);
        reply(request.psn, ReplyKind::Rnr { timer: self.peer.rnr_timer })
    }

    /// Completes a request that touches no memory.
    #[inline(never)]
    fn carry_out(&self, request: &Request) -> Executed {
        let takes_receive = takes_receive(request) && self.next_receive().is_some();
        match self.finish_without_memory(takes_receive, || self.complete(request)) {
            CopyResult::All { ring } => Executed { ring, ..ack(request) },
            _ => Executed::quiet(Outcome::Silence),
        }
    }

    /// Fails the receive that the request takes, and with it both queue pairs.
    #[cold]
    fn refuse_receive(&self, request: &Request, status: CompletionStatus, why: Nak) -> Executed {
        match self.finish_without_memory(true, || self.fail_receive(status)) {
            CopyResult::All { ring } => Executed { ring, ..self.refuse(request, why, Verdict::Receive) },
            _ => Executed::quiet(Outcome::Silence),
        }
    }

    /// Refuses a request: the peer's queue pair moves to ERR.
    #[cold]
    fn refuse(&self, request: &Request, why: Nak, verdict: Verdict) -> Executed {
        let word = &self.header.bell.verdict;
        let count = word.load(Ordering::Relaxed) & !Verdict::CODES;
        // The count in the upper bytes makes this a new word even when the code is that of the refusal before.
        let next = count.wrapping_add(Verdict::CODES + 1);
        word.store(next | verdict as u32, Ordering::Release);
        Executed { nudge: true, ..reply(request.psn, ReplyKind::Nak(why)) }
    }
}

/// Whether a request takes a receive, if there is one.
#[inline]
pub(super) fn takes_receive(request: &Request) -> bool {
    request.op == RequestOp::Send || request.imm.is_some()
}

/// The acknowledgement of a request.
#[inline]
fn ack(request: &Request) -> Executed {
    reply(request.psn, ReplyKind::Ack)
}

/// A reply without data, and nothing else to do.
#[inline]
fn reply(psn: u32, kind: ReplyKind) -> Executed {
    Executed::quiet(Outcome::Reply(Reply { psn, kind, len: 0 }))
}

/// The outcome of a request whose memory is not mapped in the version that its key names.
fn unmapped(found: &FoundKey<'_>) -> Executed {
    Executed::quiet(Outcome::Unmapped(found.export.memory))
}
