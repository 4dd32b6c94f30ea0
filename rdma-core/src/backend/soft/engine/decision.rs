//! The decision about a request of the peer, by the rules of reliable connections: order, receive, length, key, right.
//!
//! Each rule stands here alone. [`decide`] reads a [`ResponderState`] and changes nothing; the caller carries the
//! decision out and moves the bytes. The state lies in this process
//! ([`Responder`](super::responder::Responder)), or in shared memory that a peer maps
//! ([`RemoteResponder`](crate::backend::soft::wire::RemoteResponder)).
//!
//! The order of the checks is a rule, too, because it decides which error a request with two faults gets. InfiniBand
//! Architecture Specification, volume 1, 9.7.4 (responder) and 9.9 (error handling).

use super::keys::KeyRefusal;
use super::message::{Nak, Reply, ReplyKind, Request, RequestOp};
use super::sequence;
use crate::backend::soft::fault::Injected;
use crate::backend::soft::fault::planted::{self, Planted};
use crate::{Access, CompletionStatus, EventKind};

/// A posted receive.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Receive {
    pub(crate) addr: u64,
    pub(crate) len: u32,
    pub(crate) lkey: u32,
}

/// The state of a responder, as far as decisions read it.
pub(crate) trait ResponderState {
    /// A registration that a key names.
    type Registration<'a>
    where
        Self: 'a;

    /// Whether requests are answered at all.
    fn answers(&self) -> bool;

    /// The sequence number of the next request.
    fn expected(&self) -> u32;

    /// Whether the peer was asked to send the expected request again, or to wait. Requests behind it are not answered
    /// meanwhile, so that one gap causes one complaint.
    fn is_awaiting(&self) -> bool;

    /// The rights that the queue pair grants its peer.
    fn grants(&self) -> Access;

    /// The RNR timer code that a peer is sent when no receive is posted.
    fn rnr_timer(&self) -> u8;

    /// The oldest receive that is not taken.
    fn next_receive(&self) -> Option<Receive>;

    /// The registration of `key`, if it has the `len` bytes at `addr` and the rights `needs`.
    fn registration(
        &self,
        key: u32,
        addr: u64,
        len: u32,
        needs: Access,
    ) -> Result<Self::Registration<'_>, KeyRefusal>;
}

/// The decision about a request.
#[derive(Debug)]
pub(crate) enum Decision<R> {
    /// Do nothing.
    Silence,
    /// Send this reply; nothing changes.
    Answer(Reply),
    /// Send this reply, and note that the peer was asked to send the expected request again.
    Await(Reply),
    /// Count the request as carried out. No memory is touched.
    NoBytes,
    /// Put the payload at `addr` of that registration, then count the request as carried out.
    Write { to: R, addr: u64 },
    /// Answer with the bytes of that registration that the request names. `None` for a read of no bytes.
    Read { of: Option<R> },
    /// Refuse the request: the queue pair moves to ERR.
    Refuse(Refusal),
}

/// The fault for which a request is refused, which moves both queue pairs to ERR.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// The queue pair does not grant the operation.
    Operation,
    /// The key, the range or a right of the registration is wrong.
    Registration,
    /// The receive is shorter than the message.
    ReceiveLength,
    /// The memory of the receive is not registered for writing.
    ReceiveMemory,
}

impl Refusal {
    /// The refusal of a request whose memory cannot be used.
    pub(crate) fn of_memory(op: RequestOp) -> Self {
        if op == RequestOp::Send { Self::ReceiveMemory } else { Self::Registration }
    }

    /// The reason that the peer is told.
    pub(crate) fn nak(self) -> Nak {
        match self {
            Self::Operation | Self::ReceiveLength => Nak::InvalidRequest,
            Self::Registration => Nak::RemoteAccess,
            Self::ReceiveMemory => Nak::RemoteOperational,
        }
    }

    /// The event that this end raises. None where the failed completion of the receive says everything.
    pub(crate) fn event(self) -> Option<EventKind> {
        match self {
            Self::Operation => Some(EventKind::QP_REQ_ERR),
            Self::Registration => Some(EventKind::QP_ACCESS_ERR),
            Self::ReceiveLength | Self::ReceiveMemory => None,
        }
    }

    /// The status with which the receive of the request fails; `None` when it takes none.
    pub(crate) fn receive(self) -> Option<CompletionStatus> {
        match self {
            Self::Operation | Self::Registration => None,
            Self::ReceiveLength => Some(CompletionStatus::LOC_LEN_ERR),
            Self::ReceiveMemory => Some(CompletionStatus::LOC_PROT_ERR),
        }
    }
}

/// Decides about a request of the peer.
#[inline(always)]
pub(crate) fn decide<'a, S: ResponderState>(
    state: &'a S,
    request: &Request,
) -> Decision<S::Registration<'a>> {
    if !state.answers() {
        return Decision::Silence;
    }
    match sequence::distance(state.expected(), request.psn) {
        0 => match request.op {
            RequestOp::Send => send(state, request),
            RequestOp::Write => write(state, request),
            RequestOp::Read => read(state, request),
        },
        ahead if ahead > 0 => gap(state),
        // Reads change nothing here, so a repeated one is simply answered again.
        _ if request.op == RequestOp::Read => read(state, request),
        // Carried out already. The acknowledgement names the last request in order, so it covers all repeated ones.
        _ => Decision::Answer(ack(sequence::before(state.expected()))),
    }
}

/// Decides about a request as [`decide`] does, or as if no receive were posted where a fault says so.
#[inline(always)]
pub(crate) fn decide_injected<'a, S: ResponderState>(
    state: &'a S,
    request: &Request,
    injected: Injected,
) -> Decision<S::Registration<'a>> {
    if injected == Injected::NotReady && state.answers() && request.psn == state.expected() {
        return not_ready(state, request);
    }
    decide(state, request)
}

/// Whether a request takes a receive, if there is one.
#[inline]
pub(crate) fn takes_receive(request: &Request) -> bool {
    request.op == RequestOp::Send || request.imm.is_some()
}

/// The acknowledgement of all requests up to `psn`.
#[inline]
pub(crate) fn ack(psn: u32) -> Reply {
    Reply { psn, kind: ReplyKind::Ack, len: 0 }
}

/// The refusal of the request `psn`, as its sender is told.
pub(crate) fn nak(psn: u32, why: Nak) -> Reply {
    Reply { psn, kind: ReplyKind::Nak(why), len: 0 }
}

/// A request before this one is missing: asks for it, once.
#[cold]
fn gap<'a, S: ResponderState>(state: &'a S) -> Decision<S::Registration<'a>> {
    if state.is_awaiting() {
        return Decision::Silence;
    }
    Decision::Await(nak(state.expected(), Nak::Sequence))
}

/// Tells the peer to wait, because no receive is posted.
#[cold]
fn not_ready<'a, S: ResponderState>(state: &'a S, request: &Request) -> Decision<S::Registration<'a>> {
    if planted::is(Planted::MissingRnr) {
        return Decision::NoBytes;
    }
    let kind = ReplyKind::Rnr { timer: state.rnr_timer() };
    Decision::Await(Reply { psn: request.psn, kind, len: 0 })
}

/// The receive is checked before it is taken, so a refused send never loses one.
#[inline(always)]
fn send<'a, S: ResponderState>(state: &'a S, request: &Request) -> Decision<S::Registration<'a>> {
    let Some(receive) = state.next_receive() else { return not_ready(state, request) };
    if request.len > receive.len {
        return Decision::Refuse(Refusal::ReceiveLength);
    }
    if request.len == 0 {
        return Decision::NoBytes;
    }
    match state.registration(receive.lkey, receive.addr, request.len, Access::LOCAL_WRITE) {
        Ok(to) => Decision::Write { to, addr: receive.addr },
        Err(_) => Decision::Refuse(Refusal::ReceiveMemory),
    }
}

/// The receive is checked before the range and taken last, so a refused write takes none.
#[inline(always)]
fn write<'a, S: ResponderState>(state: &'a S, request: &Request) -> Decision<S::Registration<'a>> {
    if !state.grants().contains(Access::REMOTE_WRITE) {
        return Decision::Refuse(Refusal::Operation);
    }
    if request.imm.is_some() && state.next_receive().is_none() {
        return not_ready(state, request);
    }
    if request.len == 0 {
        return Decision::NoBytes;
    }
    match state.registration(request.rkey, request.remote_addr, request.len, Access::REMOTE_WRITE) {
        Ok(to) => Decision::Write { to, addr: request.remote_addr },
        Err(refusal) if forgives(request, refusal) => Decision::NoBytes,
        Err(_) => Decision::Refuse(Refusal::Registration),
    }
}

/// Whether a planted fault reports a refused write as carried out. No memory is touched then.
#[inline(always)]
fn forgives(request: &Request, refusal: KeyRefusal) -> bool {
    match refusal {
        KeyRefusal::Unknown => planted::is(Planted::WriteAfterDeregistration),
        KeyRefusal::ForeignDomain => planted::is(Planted::ForeignKey),
        KeyRefusal::OutOfRange => {
            request.remote_addr.checked_add(request.len.into()).is_none() && planted::is(Planted::RangeWrap)
        }
        KeyRefusal::AccessDenied => false,
    }
}

fn read<'a, S: ResponderState>(state: &'a S, request: &Request) -> Decision<S::Registration<'a>> {
    if !state.grants().contains(Access::REMOTE_READ) {
        return Decision::Refuse(Refusal::Operation);
    }
    if request.len == 0 {
        return Decision::Read { of: None };
    }
    match state.registration(request.rkey, request.remote_addr, request.len, Access::REMOTE_READ) {
        Ok(of) => Decision::Read { of: Some(of) },
        Err(_) => Decision::Refuse(Refusal::Registration),
    }
}
