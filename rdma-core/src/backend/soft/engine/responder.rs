//! The responder: the receiving half of a queue pair. Decides what becomes of the requests of the peer, in order.
//!
//! A verdict says what to do; the wires move the payload. A payload takes two calls:
//! [`handle_request`](Responder::handle_request) grants a target, and [`placed`](Responder::placed) is called when the
//! bytes are there, because a deregistration may come in between.
//!
//! The rules stand in [`decision`](super::decision), which the mapped wire asks, too, over a mailbox in shared memory.

use std::collections::VecDeque;

use super::decision::{Decision, Receive, Refusal, ResponderState, ack, decide_injected, nak, takes_receive};
use super::effect::failed;
use super::keys::{Domain, KeyRefusal, KeyTable};
use super::message::{Reply, ReplyKind, Request, RequestOp};
use super::sequence;
use crate::backend::interface::{RawCompletion, RawRecv};
use crate::backend::soft::fault::Injected;
use crate::{Access, CompletionStatus};

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
    /// Put the payload there, then call [`Responder::placed`].
    Place { addr: u64, len: u32, serial: u64 },
    /// Send the bytes there as read data, for as long as `key` names the registration `serial`.
    Serve { reply: Reply, addr: u64, key: u32, serial: u64 },
    /// Send this reply, and complete the receive that the request took. A request that is `refused` moves this end to
    /// ERR.
    Answer { reply: Reply, receive: Option<RawCompletion>, refused: Option<Refusal> },
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
}

/// The receives of a queue pair, and how far the requests of its peer are carried out.
#[derive(Debug)]
pub(crate) struct Responder {
    pub(super) state: State,
    receives: VecDeque<RawRecv>,
    depth: usize,
    /// The sequence number of the next request.
    expected: u32,
    pending: Option<PendingPlacement>,
    serials: u64,
    rules: Rules,
}

impl Responder {
    pub(crate) fn new(depth: usize) -> Self {
        Self {
            state: State::Unready,
            receives: VecDeque::with_capacity(depth),
            depth,
            expected: 0,
            pending: None,
            serials: 0,
            rules: Rules { access: Access::empty(), rnr_timer: 0 },
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
        self.receives.push_back(recv);
        Ok(())
    }

    /// Hands the receives and the expected sequence number over: the requests of the peer are carried out elsewhere
    /// now.
    pub(crate) fn lend(&mut self) -> LentResponder {
        // A placement under way is abandoned: the peer sends its request again on the new wire, so it would land twice.
        self.pending = None;
        let receives = std::mem::take(&mut self.receives);
        let Self { depth, expected, rules, .. } = *self;
        LentResponder { receives, depth, expected, rules }
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
        Some(failed(recv.wr_id, CompletionStatus::WR_FLUSH_ERR))
    }
}

/// A responder, with the keys of its device and its protection domain.
struct Deciding<'a> {
    responder: &'a Responder,
    keys: &'a KeyTable,
    domain: Domain,
}

impl ResponderState for Deciding<'_> {
    /// The serial of the registration.
    type Registration<'a>
        = u64
    where
        Self: 'a;

    fn answers(&self) -> bool {
        matches!(self.responder.state, State::Expecting | State::Awaiting)
    }

    fn expected(&self) -> u32 {
        self.responder.expected
    }

    fn is_awaiting(&self) -> bool {
        self.responder.state == State::Awaiting
    }

    fn grants(&self) -> Access {
        self.responder.rules.access
    }

    fn rnr_timer(&self) -> u8 {
        self.responder.rules.rnr_timer
    }

    fn next_receive(&self) -> Option<Receive> {
        self.responder.receives.front().map(|&RawRecv { addr, len, lkey, .. }| Receive { addr, len, lkey })
    }

    fn registration(&self, key: u32, addr: u64, len: u32, needs: Access) -> Result<u64, KeyRefusal> {
        self.keys.check(key, self.domain, addr, len, needs).map(|found| found.serial)
    }
}

impl Responder {
    /// Decides about a request of the peer, and carries the decision out as far as no bytes have to move.
    pub(crate) fn handle_request(
        &mut self,
        request: &Request,
        injected: Injected,
        keys: &KeyTable,
        domain: Domain,
    ) -> Verdict {
        let decision = decide_injected(&Deciding { responder: self, keys, domain }, request, injected);
        let answers = matches!(self.state, State::Expecting | State::Awaiting);
        if answers && request.psn == self.expected {
            self.state = State::Expecting;
            self.pending = None;
        }
        match decision {
            Decision::Silence => Verdict::Silence,
            Decision::Answer(reply) => Verdict::Answer { reply, receive: None, refused: None },
            Decision::Await(reply) => {
                self.state = State::Awaiting;
                Verdict::Answer { reply, receive: None, refused: None }
            }
            Decision::NoBytes => self.finish(request),
            Decision::Write { to, addr } => self.place(request, addr, to),
            Decision::Read { of } => {
                if request.psn == self.expected {
                    self.expected = sequence::add(self.expected, 1);
                }
                let reply = Reply { psn: request.psn, kind: ReplyKind::ReadData, len: request.len };
                let (addr, key, serial) = (request.remote_addr, request.rkey, of.unwrap_or(0));
                Verdict::Serve { reply, addr, key, serial }
            }
            Decision::Refuse(refusal) => self.refuse(request, refusal),
        }
    }

    /// Grants a target for the payload. At most one placement is under way, since requests come in order.
    fn place(&mut self, request: &Request, addr: u64, registration: u64) -> Verdict {
        self.serials += 1;
        // A receive's registration needs no second look, because its poster keeps it until the completion.
        let registration = (request.op == RequestOp::Write).then_some((request.rkey, registration));
        self.pending = Some(PendingPlacement { serial: self.serials, request: *request, registration });
        Verdict::Place { addr, len: request.len, serial: self.serials }
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
            return self.refuse(&pending.request, Refusal::of_memory(pending.request.op));
        }
        self.finish(&pending.request)
    }

    /// Refuses a request, and fails the receive that it takes.
    fn refuse(&mut self, request: &Request, refusal: Refusal) -> Verdict {
        let receive =
            refusal.receive().and_then(|status| Some(failed(self.receives.pop_front()?.wr_id, status)));
        let reply = nak(request.psn, refusal.nak());
        Verdict::Answer { reply, receive, refused: Some(refusal) }
    }

    /// Counts a request as carried out, and completes the receive that it takes. The decision has found one.
    fn finish(&mut self, request: &Request) -> Verdict {
        self.expected = sequence::add(self.expected, 1);
        let receive = if takes_receive(request) { self.receives.pop_front() } else { None };
        let receive = receive.map(|recv| RawCompletion {
            wr_id: recv.wr_id,
            byte_len: request.len,
            write_imm: request.op == RequestOp::Write,
            imm: request.imm,
            ..RawCompletion::default()
        });
        Verdict::Answer { reply: ack(request.psn), receive, refused: None }
    }
}
