//! What arrives from sockets: handed to requester and responder, and their wishes turned into commands.

use std::time::Instant;

use super::super::engine::message::{Reply, Request, RequestOp};
use super::super::engine::requester::Landing;
use super::super::engine::responder::{Outcome, Verdict};
use super::super::fabric::{Command, State};
use super::{Hello, Payload, Placement, QpRef, Right, Sink, Token};
use crate::PortState;

impl Sink for State {
    fn accept(&mut self, hello: &Hello) -> Option<QpRef> {
        let device = self.devices.get(*self.by_gid.get(&hello.destination_gid)?)?;
        let found = *device.qp_nums.get(&hello.destination_qp.0)?;
        let peer = self.qps.get(found).filter(|qp| qp.state.responds())?.peer?;
        (peer.gid == hello.source_gid && peer.qp_num == hello.source_qp).then_some(found)
    }

    fn request(&mut self, now: Instant, qp: QpRef, request: &Request) -> Placement {
        let payload_len = if request.op == RequestOp::Read { 0 } else { request.len };
        let discard =
            if payload_len > 0 { Placement::Discard { len: payload_len } } else { Placement::Nothing };
        if !self.is_up(qp) {
            return discard;
        }
        match self.ask(qp, request) {
            Some(Verdict::Place { addr, len, serial }) => {
                Placement::At { token: Token { qp, right: Right::Placing { serial } }, addr, len }
            }
            Some(verdict) => {
                self.conclude(now, qp, verdict);
                discard
            }
            None => discard,
        }
    }

    fn reply(&mut self, now: Instant, qp: QpRef, reply: &Reply) -> Placement {
        let discard = if reply.len > 0 { Placement::Discard { len: reply.len } } else { Placement::Nothing };
        if !self.is_up(qp) {
            return discard;
        }
        let Some(found) = self.qps.get_mut(qp) else { return discard };
        let landing = found.requester.handle_reply(now, reply);
        self.pump(now, qp);
        match landing {
            Landing::At { addr, len, serial } => {
                Placement::At { token: Token { qp, right: Right::Requested { serial } }, addr, len }
            }
            Landing::Nothing | Landing::Discard => discard,
        }
    }

    fn placed(&mut self, now: Instant, token: Token) {
        match token.right {
            Right::Placing { serial } => {
                if let Some(verdict) = self.ask_placed(token.qp, serial) {
                    self.conclude(now, token.qp, verdict);
                }
            }
            Right::Requested { serial } => {
                if let Some(qp) = self.qps.get_mut(token.qp) {
                    qp.requester.landed(now, serial);
                    self.pump(now, token.qp);
                }
            }
            Right::Answering { .. } => {}
        }
    }

    fn still_valid(&self, token: Token) -> bool {
        let Some(qp) = self.qps.get(token.qp) else { return false };
        let Some(device) = self.devices.get(qp.device) else { return false };
        match token.right {
            Right::Requested { serial } => qp.requester.holds(serial),
            Right::Placing { serial } => qp.responder.holds(serial, &device.keys),
            Right::Answering { key, serial } => qp.state.responds() && device.keys.is_current(key, serial),
        }
    }

    fn moving(&mut self, now: Instant, qp: QpRef) {
        if let Some(qp) = self.qps.get_mut(qp) {
            qp.requester.moving(now);
        }
    }
}

impl State {
    /// Carries out what a responder decided.
    fn conclude(&mut self, now: Instant, qp: QpRef, verdict: Verdict) {
        match verdict {
            Verdict::Silence | Verdict::Place { .. } => {}
            Verdict::Answer(reply) => self.commands.push_back(Command::Reply { qp, reply, payload: None }),
            Verdict::Serve { reply, addr, key, serial } => {
                let token = Token { qp, right: Right::Answering { key, serial } };
                let payload = (reply.len > 0).then_some(Payload { token, addr, len: reply.len });
                self.commands.push_back(Command::Reply { qp, reply, payload });
            }
            Verdict::Done(Outcome { reply, receive }) => {
                self.receive(qp, receive);
                self.commands.push_back(Command::Reply { qp, reply, payload: None });
            }
            Verdict::Refuse { outcome: Outcome { reply, receive }, event } => {
                self.receive(qp, receive);
                self.commands.push_back(Command::Reply { qp, reply, payload: None });
                self.raise(qp, event);
                self.enter_error(now, qp);
            }
        }
    }

    fn is_up(&self, qp: QpRef) -> bool {
        let device = self.qps.get(qp).and_then(|qp| self.devices.get(qp.device));
        device.is_some_and(|device| device.port == PortState::ACTIVE)
    }
}
