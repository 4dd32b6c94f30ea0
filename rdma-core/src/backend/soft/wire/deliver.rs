//! Delivers what arrives from sockets to requesters and responders, and turns their decisions into commands.

use std::time::Instant;

use super::super::clock;
use super::super::engine::effect::Buffer;
use super::super::engine::message::{Reply, Request};
use super::super::engine::responder::Verdict;
use super::super::fabric::{Command, State};
use super::super::fault::{Injected, Message};
use super::{Hello, Payload, QpRef, Right, Sink, Token};

impl Sink for State {
    fn accept(&mut self, hello: &Hello) -> Option<QpRef> {
        let found = self.responder_for(hello)?;
        // The peer may have been mapped before; over TCP it needs the receives that are in the mailbox.
        self.move_responder_to_tcp(clock::now(), found).then_some(found)
    }

    fn request(&mut self, now: Instant, qp: QpRef, request: &Request) -> Option<Payload> {
        let message = Message::Request(*request);
        let injected = match self.arrived(now, qp, &message) {
            Ok(injected) => injected,
            Err(kept) => return kept,
        };
        let verdict = self.ask(qp, request, injected)?;
        if let Verdict::Place { addr, len, serial } = verdict {
            return self.place(injected, Token { qp, right: Right::Placing { serial } }, addr, len);
        }
        self.conclude(now, qp, verdict);
        self.overtaken(now, qp, &message);
        None
    }

    fn reply(&mut self, now: Instant, qp: QpRef, reply: &Reply) -> Option<Payload> {
        let message = Message::Reply(*reply);
        let injected = match self.arrived(now, qp, &message) {
            Ok(injected) => injected,
            Err(kept) => return kept,
        };
        let landing = self.qps.get_mut(qp)?.requester.handle_reply(now, reply);
        self.pump(now, qp);
        if let Some(Buffer { addr, len, serial }) = landing {
            return self.place(injected, Token { qp, right: Right::Requested { serial } }, addr, len);
        }
        self.overtaken(now, qp, &message);
        None
    }

    fn placed(&mut self, now: Instant, token: Token) {
        self.corrupt_now(token);
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
            Right::Delayed { serial } => self.delayed_payload_arrived(serial),
            Right::Answering { .. } => {}
        }
    }

    fn still_valid(&self, token: Token) -> bool {
        let Some(qp) = self.qps.get(token.qp) else { return false };
        let Some(device) = self.devices.get(qp.device) else { return false };
        match token.right {
            Right::Requested { serial } => qp.requester.holds(serial),
            Right::Placing { serial } => qp.responder.holds(serial, &device.keys),
            Right::Delayed { serial } => self.awaits_delayed_payload(serial),
            Right::Answering { key, serial } => qp.state.responds() && device.keys.is_current(key, serial),
        }
    }

    fn carried_out(&self, token: Token) -> bool {
        let Right::Requested { serial } = token.right else { return false };
        self.qps.get(token.qp).is_some_and(|qp| qp.requester.carried_out(serial))
    }

    fn moving(&mut self, now: Instant, qp: QpRef) {
        if let Some(qp) = self.qps.get_mut(qp) {
            qp.requester.moving(now);
        }
    }
}

impl State {
    /// Lets the faults act on a message that has arrived. The error of a message that does not get through says where
    /// its payload is kept, if it is.
    fn arrived(&mut self, now: Instant, qp: QpRef, message: &Message) -> Result<Injected, Option<Payload>> {
        if self.is_up(qp) { self.admit(now, None, qp, message, None) } else { Err(None) }
    }

    /// Returns the target of a payload, and notes a byte that a fault must flip once it is there.
    fn place(&mut self, injected: Injected, token: Token, addr: u64, len: u32) -> Option<Payload> {
        if let Injected::Corrupt(chance) = injected {
            self.corrupt_later(token, addr, len, chance);
        }
        Some(Payload { token, addr, len })
    }

    /// Carries out the decision of a responder.
    pub(in super::super) fn conclude(&mut self, now: Instant, qp: QpRef, verdict: Verdict) {
        match verdict {
            Verdict::Silence | Verdict::Place { .. } => {}
            Verdict::Serve { reply, addr, key, serial } => {
                let token = Token { qp, right: Right::Answering { key, serial } };
                let payload = (reply.len > 0).then_some(Payload { token, addr, len: reply.len });
                self.commands.push_back(Command::Reply { qp, reply, payload });
            }
            Verdict::Answer { reply, receive, refused } => {
                self.receive(qp, receive);
                self.commands.push_back(Command::Reply { qp, reply, payload: None });
                if let Some(refusal) = refused {
                    self.refuse(now, qp, refusal.event());
                }
            }
        }
    }
}
