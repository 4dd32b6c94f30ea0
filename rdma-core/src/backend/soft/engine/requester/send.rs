//! Handing requests out: from the queue, and past it.
//!
//! A wire that has the answer of the peer before a post returns (the mapped one) goes past the queue. It asks for the
//! [`bypass_request`](Requester::bypass_request), carries it out, and reports it as
//! [`complete_bypassed`](Requester::complete_bypassed). Only requests that are not complete then enter the queue.

use std::time::Instant;

use super::super::effect::{Buffer, Effect};
use super::super::keys::{Domain, KeyTable};
use super::super::message::{MESSAGE_BYTES_MAX, Request, RequestOp};
use super::super::sequence;
use super::{Requester, State, done};
use crate::backend::interface::{RawCompletion, RawOpcode, RawSend};
use crate::{Access, CompletionStatus};

impl Requester {
    /// Returns the next request to transmit. An error is the status of the oldest outstanding request, which is
    /// invalid.
    pub(super) fn next_request(
        &mut self,
        now: Instant,
        keys: &KeyTable,
        domain: Domain,
    ) -> Result<Option<Effect>, CompletionStatus> {
        let Some(send) = self.queue.get(self.sent) else { return Ok(None) };
        let is_read = send.opcode == RawOpcode::Read;
        if let Err(status) = self.check(send, keys, domain) {
            // The requests before it must complete first, since completions come in order.
            return if self.outstanding() == 0 { Err(status) } else { Ok(None) };
        }
        if is_read && self.reads_outstanding >= self.limits.max_rd_atomic {
            return Ok(None);
        }
        let mut request = request(send, sequence::add(self.first_psn, self.sent));
        // A request that is sent again asks in any case, because its retries may be up before a late acknowledgement.
        request.ack_req |= !is_read && self.sent < self.sent_max;
        let serial = self.first_serial + self.sent as u64;
        let payload = (!is_read && send.len > 0).then_some(Buffer { addr: send.addr, len: send.len, serial });
        self.sent += 1;
        self.sent_max = self.sent_max.max(self.sent);
        self.reads_outstanding += u8::from(is_read);
        if self.ack_timer.is_none() {
            self.start_ack_timer(now);
        }
        Ok(Some(Effect::Transmit { request, payload }))
    }

    /// Checks everything about a request that this side can know.
    #[inline]
    pub(super) fn check(
        &self,
        send: &RawSend,
        keys: &KeyTable,
        domain: Domain,
    ) -> Result<(), CompletionStatus> {
        let is_read = send.opcode == RawOpcode::Read;
        if is_read && self.limits.max_rd_atomic == 0 {
            return Err(CompletionStatus::LOC_QP_OP_ERR);
        }
        if send.len > MESSAGE_BYTES_MAX {
            return Err(CompletionStatus::LOC_LEN_ERR);
        }
        if send.len > 0 && !send.inline {
            let needs = if is_read { Access::LOCAL_WRITE } else { Access::empty() };
            let found = keys.check(send.lkey, domain, send.addr, send.len, needs);
            found.map_err(|_| CompletionStatus::LOC_PROT_ERR)?;
        }
        Ok(())
    }

    /// Returns the message that `send` would be if it were posted and handed out now. `None` when an earlier request
    /// is in the queue, or when `send` is invalid: it must then go through the queue.
    #[inline]
    pub(crate) fn bypass_request(&self, send: &RawSend, keys: &KeyTable, domain: Domain) -> Option<Request> {
        let is_idle = self.state == State::Sending && self.queue.is_empty() && !self.rewound;
        if !is_idle || self.check(send, keys, domain).is_err() {
            return None;
        }
        Some(request(send, self.first_psn))
    }

    /// Completes `send`, whose [`bypass_request`](Self::bypass_request) the peer has carried out, exactly as if it had
    /// been posted, transmitted, acknowledged and retired. Returns its completion, if it asks for one.
    #[inline]
    pub(crate) fn complete_bypassed(&mut self, send: &RawSend) -> Option<RawCompletion> {
        self.first_psn = sequence::add(self.first_psn, 1);
        self.first_serial += 1;
        // An acknowledgement gives all retries back, and the queue is empty only after one, so there is nothing to
        // reset.
        debug_assert!(self.has_all_retries());
        done(send)
    }
}

/// Translates a request into its message.
#[inline]
fn request(send: &RawSend, psn: u32) -> Request {
    let op = match send.opcode {
        RawOpcode::Send | RawOpcode::SendImm => RequestOp::Send,
        RawOpcode::Write | RawOpcode::WriteImm => RequestOp::Write,
        RawOpcode::Read => RequestOp::Read,
    };
    let with_imm = matches!(send.opcode, RawOpcode::SendImm | RawOpcode::WriteImm);
    let imm = with_imm.then_some(send.imm);
    let ack_req = send.signalled && op != RequestOp::Read;
    Request { psn, op, imm, remote_addr: send.remote_addr, rkey: send.rkey, len: send.len, ack_req }
}
