//! The responder: the receiving half of a queue pair. Decides what becomes of the requests of the peer, in order.
//!
//! A verdict says what to do; the wires move the payload. A payload takes two calls:
//! [`handle_request`](Responder::handle_request) grants a target, and [`placed`](Responder::placed) is called when the
//! bytes are there, because a deregistration may come in between.
//!
//! The mapped wire decides the same way over a mailbox in shared memory
//! ([`remote_responder`](crate::backend::soft::wire)). A change of the rules here must be made there too; tests compare
//! the two.

use std::collections::VecDeque;

use super::keys::{Domain, KeyRefusal, KeyTable};
use super::message::{Nak, Reply, ReplyKind, Request, RequestOp};
use super::sequence;
use crate::backend::interface::{RawCompletion, RawRecv};
use crate::backend::soft::fault::Planted;
use crate::{Access, CompletionStatus, EventKind};

/// The state of a responder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    /// Before RTR: requests are not answered.
    Unready,
    /// The next request is expected.
    Expecting,
    /// The peer was asked to send the expected request again, or to wait. Requests behind it are not answered
    /// meanwhile, so that one gap causes one complaint.
    Awaiting,
    /// Requests are not answered, and receives are flushed.
    Error,
}

/// The attributes that the step to RTR sets.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rules {
    /// The rights that the queue pair grants its peer.
    pub(crate) access: Access,
    /// The RNR timer code that a peer is sent when no receive is posted.
    pub(crate) rnr_timer: u8,
}

/// The decision about a request. Except for [`Place`](Self::Place), the payload is dropped.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Verdict {
    /// Do nothing.
    Silence,
    /// Send this reply.
    Answer(Reply),
    /// Put the payload there, then call [`Responder::placed`].
    Place { addr: u64, len: u32, serial: u64 },
    /// Send the bytes there as read data, for as long as `key` names the registration `serial`.
    Serve { reply: Reply, addr: u64, key: u32, serial: u64 },
    /// The request is carried out.
    Done(Outcome),
    /// The request cannot be carried out: this end moves to ERR, and raises `event`.
    Refuse { outcome: Outcome, event: Option<EventKind> },
}

/// The reply to a request, and the completion of the receive that it took.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Outcome {
    pub(crate) reply: Reply,
    pub(crate) receive: Option<RawCompletion>,
}

/// A request whose payload is under way.
#[derive(Debug, Clone, Copy)]
struct PendingPlacement {
    serial: u64,
    request: Request,
    /// Key and serial of the registration written; `None` for a receive.
    registration: Option<(u32, u64)>,
}

/// The parts of a responder that move into a mailbox while a mapped peer runs it.
#[derive(Debug)]
pub(crate) struct LentResponder {
    pub(crate) receives: VecDeque<RawRecv>,
    pub(crate) depth: usize,
    pub(crate) expected: u32,
    pub(crate) rules: Rules,
    pub(crate) posted: u64,
    pub(crate) planted: Option<Planted>,
}

/// The receives of a queue pair, and how far the requests of its peer are carried out.
#[derive(Debug)]
pub(crate) struct Responder {
    state: State,
    receives: VecDeque<RawRecv>,
    depth: usize,
    /// The sequence number of the next request.
    expected: u32,
    pending: Option<PendingPlacement>,
    serials: u64,
    rules: Rules,
    /// Receives ever posted; counted only for a planted fault.
    posted: u64,
    planted: Option<Planted>,
}

impl Responder {
    pub(crate) fn new(depth: usize, planted: Option<Planted>) -> Self {
        Self {
            state: State::Unready,
            receives: VecDeque::with_capacity(depth),
            depth,
            expected: 0,
            pending: None,
            serials: 0,
            rules: Rules { access: Access::empty(), rnr_timer: 0 },
            posted: 0,
            planted,
        }
    }

    /// INIT to RTR: the peer's first request carries `psn`.
    pub(crate) fn start(&mut self, psn: u32, rules: Rules) {
        if self.state == State::Unready {
            self.state = State::Expecting;
            self.expected = psn;
            self.rules = rules;
        }
    }

    /// Posts a receive, or gives it back when the queue is full.
    pub(crate) fn post(&mut self, recv: RawRecv) -> Result<(), RawRecv> {
        if self.receives.len() >= self.depth {
            return Err(recv);
        }
        if self.planted == Some(Planted::LostCredit) {
            self.posted += 1;
            if self.posted == 2 {
                return Ok(());
            }
        }
        self.receives.push_back(recv);
        Ok(())
    }

    /// Hands the receives and the expected sequence number over: the requests of the peer are carried out elsewhere
    /// now.
    pub(crate) fn lend(&mut self) -> LentResponder {
        // A placement under way is abandoned: the peer sends its request again on the new wire, so it would land twice.
        self.pending = None;
        let receives = std::mem::take(&mut self.receives);
        let Self { depth, expected, rules, posted, planted, .. } = *self;
        LentResponder { receives, depth, expected, rules, posted, planted }
    }

    /// Takes the unused receives back, and the sequence number of the next request.
    pub(crate) fn take_back(&mut self, receives: VecDeque<RawRecv>, expected: u32) {
        self.receives = receives;
        self.expected = sequence::add(expected, 0);
    }

    /// Moves to ERR: abandons a placement under way, and flushes the receives.
    pub(crate) fn fail(&mut self) {
        self.state = State::Error;
        self.pending = None;
    }

    /// Returns the oldest receive as flushed; only in ERR.
    pub(crate) fn next_flushed(&mut self) -> Option<RawCompletion> {
        if self.state != State::Error {
            return None;
        }
        let recv = self.receives.pop_front()?;
        let status = CompletionStatus::WR_FLUSH_ERR.0;
        Some(RawCompletion { wr_id: recv.wr_id, status, ..RawCompletion::default() })
    }

    #[cfg(test)]
    pub(super) fn state(&self) -> State {
        self.state
    }
}

impl Responder {
    /// Decides about a request of the peer.
    pub(crate) fn handle_request(&mut self, request: &Request, keys: &KeyTable, domain: Domain) -> Verdict {
        if matches!(self.state, State::Unready | State::Error) {
            return Verdict::Silence;
        }
        match sequence::distance(self.expected, request.psn) {
            0 => {
                self.state = State::Expecting;
                self.pending = None;
                match request.op {
                    RequestOp::Send => self.send(request, keys, domain),
                    RequestOp::Write => self.write(request, keys, domain),
                    RequestOp::Read => self.read(request, keys, domain),
                }
            }
            ahead if ahead > 0 => self.gap(),
            _ if request.op == RequestOp::Read => self.read(request, keys, domain),
            _ => Verdict::Answer(ack(sequence::before(self.expected))),
        }
    }

    /// Decides about a request as if no receive were posted, for an injected fault.
    pub(crate) fn handle_not_ready(&mut self, request: &Request, keys: &KeyTable, domain: Domain) -> Verdict {
        let answers = matches!(self.state, State::Expecting | State::Awaiting);
        if answers && request.psn == self.expected {
            return self.not_ready(request);
        }
        self.handle_request(request, keys, domain)
    }

    /// A request before this one is missing: asks for it, once.
    fn gap(&mut self) -> Verdict {
        if self.state == State::Awaiting {
            return Verdict::Silence;
        }
        self.state = State::Awaiting;
        Verdict::Answer(nak(self.expected, Nak::Sequence))
    }

    /// Decides about a send. The receive is checked before it is taken, so a refused send never loses one.
    fn send(&mut self, request: &Request, keys: &KeyTable, domain: Domain) -> Verdict {
        let Some(recv) = self.receives.front() else { return self.not_ready(request) };
        if request.len > recv.len {
            return self.refuse_receive(request, CompletionStatus::LOC_LEN_ERR, Nak::InvalidRequest);
        }
        if request.len == 0 {
            return Verdict::Done(self.carried_out(request));
        }
        let addr = recv.addr;
        if keys.check(recv.lkey, domain, addr, request.len, Access::LOCAL_WRITE).is_err() {
            return self.refuse_receive(request, CompletionStatus::LOC_PROT_ERR, Nak::RemoteOperational);
        }
        self.place(request, addr, None)
    }

    /// Decides about a write. The receive is checked before the range and taken last, so a refused write takes none.
    fn write(&mut self, request: &Request, keys: &KeyTable, domain: Domain) -> Verdict {
        if !self.rules.access.contains(Access::REMOTE_WRITE) {
            return refuse(request, Nak::InvalidRequest, EventKind::QP_REQ_ERR);
        }
        if request.imm.is_some() && self.receives.is_empty() {
            return self.not_ready(request);
        }
        if request.len == 0 {
            return Verdict::Done(self.carried_out(request));
        }
        match self.check_remote(request, keys, domain, Access::REMOTE_WRITE) {
            Ok(serial) => self.place(request, request.remote_addr, Some((request.rkey, serial))),
            Err(refusal) if self.forgives(request, refusal) => Verdict::Done(self.carried_out(request)),
            Err(_) => refuse(request, Nak::RemoteAccess, EventKind::QP_ACCESS_ERR),
        }
    }

    /// Reads change nothing here, so a repeated one is simply answered again.
    fn read(&mut self, request: &Request, keys: &KeyTable, domain: Domain) -> Verdict {
        if !self.rules.access.contains(Access::REMOTE_READ) {
            return refuse(request, Nak::InvalidRequest, EventKind::QP_REQ_ERR);
        }
        let mut serial = 0;
        if request.len > 0 {
            match self.check_remote(request, keys, domain, Access::REMOTE_READ) {
                Ok(found) => serial = found,
                Err(_) => return refuse(request, Nak::RemoteAccess, EventKind::QP_ACCESS_ERR),
            }
        }
        if request.psn == self.expected {
            self.expected = sequence::add(self.expected, 1);
        }
        let reply = Reply { psn: request.psn, kind: ReplyKind::ReadData, len: request.len };
        Verdict::Serve { reply, addr: request.remote_addr, key: request.rkey, serial }
    }

    /// Checks the remote range of a request. Returns the serial of the registration.
    fn check_remote(
        &self,
        request: &Request,
        keys: &KeyTable,
        domain: Domain,
        needs: Access,
    ) -> Result<u64, KeyRefusal> {
        let check = |domain| {
            keys.check(request.rkey, domain, request.remote_addr, request.len, needs).map(|it| it.serial)
        };
        match check(domain) {
            Err(KeyRefusal::ForeignDomain) if self.planted == Some(Planted::ForeignKey) => {
                keys.domain_of(request.rkey).map_or(Err(KeyRefusal::Unknown), check)
            }
            checked => checked,
        }
    }

    /// Whether a planted fault reports a refused request as carried out. No memory is touched then.
    fn forgives(&self, request: &Request, refusal: KeyRefusal) -> bool {
        match self.planted {
            Some(Planted::RangeWrap) => {
                refusal == KeyRefusal::OutOfRange
                    && request.remote_addr.checked_add(u64::from(request.len)).is_none()
            }
            Some(Planted::WriteAfterDeregistration) => refusal == KeyRefusal::Unknown,
            _ => false,
        }
    }

    /// Grants a target for the payload. At most one placement is under way, since requests come in order.
    fn place(&mut self, request: &Request, addr: u64, registration: Option<(u32, u64)>) -> Verdict {
        self.serials += 1;
        self.pending = Some(PendingPlacement { serial: self.serials, request: *request, registration });
        Verdict::Place { addr, len: request.len, serial: self.serials }
    }

    /// Tells the peer to wait, because no receive is posted.
    fn not_ready(&mut self, request: &Request) -> Verdict {
        if self.planted == Some(Planted::MissingRnr) {
            return Verdict::Done(self.carried_out(request));
        }
        self.state = State::Awaiting;
        let kind = ReplyKind::Rnr { timer: self.rules.rnr_timer };
        Verdict::Answer(Reply { psn: request.psn, kind, len: 0 })
    }

    /// Refuses a request because its receive cannot take it: both ends fail, and the receive completes with `status`.
    fn refuse_receive(&mut self, request: &Request, status: CompletionStatus, why: Nak) -> Verdict {
        let receive = self.receives.pop_front().map(|recv| RawCompletion {
            wr_id: recv.wr_id,
            status: status.0,
            ..RawCompletion::default()
        });
        Verdict::Refuse { outcome: Outcome { reply: nak(request.psn, why), receive }, event: None }
    }

    /// Whether the placement `serial` is still under way and its memory still registered. A wire must ask after each
    /// time it took the lock, before it writes.
    pub(crate) fn holds(&self, serial: u64, keys: &KeyTable) -> bool {
        self.pending.is_some_and(|pending| {
            pending.serial == serial
                && pending.registration.is_none_or(|(key, serial)| keys.is_current(key, serial))
        })
    }

    /// Decides about the request of the placement `serial`, whose payload is complete.
    pub(crate) fn placed(&mut self, serial: u64, keys: &KeyTable) -> Verdict {
        let Some(pending) = self.pending.filter(|pending| pending.serial == serial) else {
            return Verdict::Silence;
        };
        let whole = self.holds(serial, keys);
        self.pending = None;
        if !whole {
            // The memory was deregistered while the bytes came in.
            return refuse(&pending.request, Nak::RemoteAccess, EventKind::QP_ACCESS_ERR);
        }
        Verdict::Done(self.carried_out(&pending.request))
    }

    /// Counts a request as carried out, and completes the receive that it takes. The caller has checked that one is
    /// posted.
    fn carried_out(&mut self, request: &Request) -> Outcome {
        self.expected = sequence::add(self.expected, 1);
        let takes_receive = request.op == RequestOp::Send || request.imm.is_some();
        let receive = if takes_receive { self.receives.pop_front() } else { None };
        let receive = receive.map(|recv| RawCompletion {
            wr_id: recv.wr_id,
            byte_len: request.len,
            write_imm: request.op == RequestOp::Write,
            imm: request.imm.map(|imm| imm ^ u32::from(self.planted == Some(Planted::WrongImmediate))),
            ..RawCompletion::default()
        });
        Outcome { reply: ack(request.psn), receive }
    }
}

fn ack(psn: u32) -> Reply {
    Reply { psn, kind: ReplyKind::Ack, len: 0 }
}

fn refuse(request: &Request, why: Nak, event: EventKind) -> Verdict {
    Verdict::Refuse { outcome: Outcome { reply: nak(request.psn, why), receive: None }, event: Some(event) }
}

fn nak(psn: u32, why: Nak) -> Reply {
    Reply { psn, kind: ReplyKind::Nak(why), len: 0 }
}
