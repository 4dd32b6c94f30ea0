//! Handing requests out.

use std::time::Instant;

use super::super::effect::{Effect, Source};
use super::super::keys::{Domain, KeyTable};
use super::super::message::{Request, RequestOp};
use super::super::sequence;
use super::super::timer::Timer;
use super::Requester;
use crate::backend::interface::{RawOpcode, RawSend};
use crate::{Access, CompletionStatus};

/// The longest message of a reliable connection.
const MESSAGE_BYTES_MAX: u32 = 1 << 31;

impl Requester {
    /// The next request to transmit; an error is that of the oldest request, which cannot be.
    pub(super) fn next_request(
        &mut self,
        now: Instant,
        keys: &KeyTable,
        domain: Domain,
    ) -> Result<Option<Effect>, CompletionStatus> {
        let Some(send) = self.queue.get(self.sent) else { return Ok(None) };
        let is_read = send.opcode == RawOpcode::Read;
        if let Err(status) = self.check(send, keys, domain) {
            // Those before it complete first.
            return if self.outstanding() == 0 { Err(status) } else { Ok(None) };
        }
        if is_read && self.reads_outstanding >= self.limits.max_rd_atomic {
            return Ok(None);
        }
        let request = request(send, sequence::add(self.first_psn, self.sent));
        let serial = self.first_serial + self.sent as u64;
        let payload = (!is_read && send.len > 0).then_some(Source { addr: send.addr, len: send.len, serial });
        self.sent += 1;
        self.sent_max = self.sent_max.max(self.sent);
        self.reads_outstanding += u8::from(is_read);
        if self.ack_timer == Timer::Off {
            self.ack_timer = Timer::after(now, self.limits.ack_timeout);
        }
        Ok(Some(Effect::Transmit { request, payload }))
    }

    /// What this side can tell is wrong with a request.
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
}

#[inline]
pub(super) fn request(send: &RawSend, psn: u32) -> Request {
    let op = match send.opcode {
        RawOpcode::Send | RawOpcode::SendImm => RequestOp::Send,
        RawOpcode::Write | RawOpcode::WriteImm => RequestOp::Write,
        RawOpcode::Read => RequestOp::Read,
    };
    let with_imm = matches!(send.opcode, RawOpcode::SendImm | RawOpcode::WriteImm);
    let imm = with_imm.then_some(send.imm);
    Request { psn, op, imm, remote_addr: send.remote_addr, rkey: send.rkey, len: send.len }
}
