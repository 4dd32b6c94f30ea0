//! Deciding what becomes of a request: its order, the receive it takes, its length, its rights.

use super::super::keys::{Domain, KeyRefusal, KeyTable};
use super::super::message::{Nak, Reply, ReplyKind, Request, RequestOp};
use super::super::sequence;
use super::{Outcome, Placing, Responder, State, Verdict};
use crate::backend::interface::RawCompletion;
use crate::backend::soft::fault::Planted;
use crate::{Access, CompletionStatus, EventKind};

impl Responder {
    /// A request of the peer's requester.
    pub(crate) fn handle_request(&mut self, request: &Request, keys: &KeyTable, domain: Domain) -> Verdict {
        if matches!(self.state, State::Unready | State::Error) {
            return Verdict::Silence;
        }
        match sequence::distance(self.expected, request.psn) {
            0 => {
                self.state = State::Expecting;
                self.placing = None;
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

    /// A request, as if no receive were posted.
    pub(crate) fn handle_not_ready(&mut self, request: &Request, keys: &KeyTable, domain: Domain) -> Verdict {
        let answers = matches!(self.state, State::Expecting | State::Awaiting);
        if answers && request.psn == self.expected {
            return self.not_ready(request);
        }
        self.handle_request(request, keys, domain)
    }

    /// A request before this one is missing; asks for it, once.
    fn gap(&mut self) -> Verdict {
        if self.state == State::Awaiting {
            return Verdict::Silence;
        }
        self.state = State::Awaiting;
        Verdict::Answer(nak(self.expected, Nak::Sequence))
    }

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

    /// Reads change nothing here, so one that was asked for again is simply answered again.
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

    /// The serial of the registration that the request may use.
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

    /// Whether a planted fault takes a request that was refused for done. It touches no memory.
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

    fn place(&mut self, request: &Request, addr: u64, registration: Option<(u32, u64)>) -> Verdict {
        self.serials += 1;
        self.placing = Some(Placing { serial: self.serials, request: *request, registration });
        Verdict::Place { addr, len: request.len, serial: self.serials }
    }

    fn not_ready(&mut self, request: &Request) -> Verdict {
        if self.planted == Some(Planted::MissingRnr) {
            return Verdict::Done(self.carried_out(request));
        }
        self.state = State::Awaiting;
        let kind = ReplyKind::Rnr { timer: self.rules.rnr_timer };
        Verdict::Answer(Reply { psn: request.psn, kind, len: 0 })
    }

    /// The receive that the request takes cannot take it; both ends fail.
    fn refuse_receive(&mut self, request: &Request, status: CompletionStatus, why: Nak) -> Verdict {
        let receive = self.receives.pop_front().map(|recv| RawCompletion {
            wr_id: recv.wr_id,
            status: status.0,
            ..RawCompletion::default()
        });
        Verdict::Refuse { outcome: Outcome { reply: nak(request.psn, why), receive }, event: None }
    }
}

pub(super) fn ack(psn: u32) -> Reply {
    Reply { psn, kind: ReplyKind::Ack, len: 0 }
}

pub(super) fn refuse(request: &Request, why: Nak, event: EventKind) -> Verdict {
    Verdict::Refuse { outcome: Outcome { reply: nak(request.psn, why), receive: None }, event: Some(event) }
}

fn nak(psn: u32, why: Nak) -> Reply {
    Reply { psn, kind: ReplyKind::Nak(why), len: 0 }
}
