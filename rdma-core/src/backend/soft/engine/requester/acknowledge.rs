//! Taking replies. An acknowledgement counts for every request before it; a read is acknowledged only by its own data.

use std::time::Instant;

use super::super::effect::Buffer;
use super::super::message::{Nak, Reply, ReplyKind};
use super::super::sequence;
use super::{Requester, State};
use crate::CompletionStatus;
use crate::backend::interface::{RawOpcode, RawSend};

impl Requester {
    /// Takes a reply of the peer's responder. Replies that name no outstanding request are ignored.
    ///
    /// Returns the target of the payload that answers a read: put it there, then call [`landed`](Self::landed). Every
    /// other payload answers no outstanding read, and is dropped.
    pub(crate) fn handle_reply(&mut self, now: Instant, reply: &Reply) -> Option<Buffer> {
        let index = self.index_of(reply.psn)?;
        match reply.kind {
            ReplyKind::Ack => self.acknowledge(now, index + 1),
            ReplyKind::ReadData => return self.read_data(now, index, reply.len),
            ReplyKind::Rnr { timer } => {
                if self.acknowledge(now, index) && self.acked == index {
                    self.back_off(now, timer);
                }
                true
            }
            ReplyKind::Nak(nak) => {
                if self.acknowledge(now, index) {
                    self.refused(nak);
                }
                true
            }
        };
        None
    }

    /// The local address of the read `psn`.
    pub(crate) fn landing(&self, psn: u32) -> Option<u64> {
        let send = self.queue.get(self.index_of(psn)?)?;
        (send.opcode == RawOpcode::Read).then_some(send.addr)
    }

    /// Notes that the data of the read `serial` is in place.
    pub(crate) fn landed(&mut self, now: Instant, serial: u64) {
        if self.holds(serial) && serial == self.first_serial + self.acked as u64 {
            self.count_acknowledged(now);
        }
    }

    /// Restarts the acknowledgement timer, because bytes are moving: a long message must not time out on a slow wire.
    pub(crate) fn moving(&mut self, now: Instant) {
        if self.ack_timer.is_some() {
            self.start_ack_timer(now);
        }
    }

    /// The queue index of the request that `psn` names, if it was sent and is not acknowledged.
    fn index_of(&self, psn: u32) -> Option<usize> {
        if self.state != State::Sending {
            return None;
        }
        let index = usize::try_from(sequence::distance(self.first_psn, psn)).ok()?;
        (self.acked..self.sent_max).contains(&index).then_some(index)
    }

    /// Counts every request before `end` as carried out. Returns `false` when a read among them has no data yet: its
    /// data is lost, and the read goes out again.
    ///
    /// The read is repeated once. Acknowledgements that were under way by then say nothing new; if the second data is
    /// lost as well, the timer expires.
    fn acknowledge(&mut self, now: Instant, end: usize) -> bool {
        while self.acked < end {
            if self.oldest_is_read() {
                if !std::mem::replace(&mut self.asked_again, true) {
                    self.retry();
                }
                return false;
            }
            self.count_acknowledged(now);
        }
        true
    }

    /// Takes the data of a read, and with it the acknowledgement of every request before it. Data of another length
    /// than asked for fails the queue pair.
    fn read_data(&mut self, now: Instant, index: usize, len: u32) -> Option<Buffer> {
        if !self.acknowledge(now, index) {
            return None;
        }
        let asked = |send: &&RawSend| send.opcode == RawOpcode::Read && send.len == len;
        let Some(send) = self.queue.get(index).filter(asked) else {
            self.fail(Some(CompletionStatus::BAD_RESP_ERR));
            return None;
        };
        let serial = self.first_serial + index as u64;
        if len == 0 {
            self.count_acknowledged(now);
            return None;
        }
        Some(Buffer { addr: send.addr, len, serial })
    }

    fn oldest_is_read(&self) -> bool {
        self.queue.get(self.acked).is_some_and(|send| send.opcode == RawOpcode::Read)
    }

    /// Counts the oldest outstanding request as carried out, and gives the retries back.
    fn count_acknowledged(&mut self, now: Instant) {
        if self.oldest_is_read() && self.acked < self.sent {
            self.reads_outstanding = self.reads_outstanding.saturating_sub(1);
        }
        self.acked += 1;
        self.asked_again = false;
        self.sent = self.sent.max(self.acked);
        self.reset_retries();
        self.ack_timer = None;
        if self.outstanding() > 0 {
            self.start_ack_timer(now);
        }
    }

    /// Acts on a negative acknowledgement of the oldest outstanding request.
    fn refused(&mut self, nak: Nak) {
        match nak {
            Nak::Sequence => self.retry(),
            Nak::InvalidRequest => self.fail(Some(CompletionStatus::REM_INV_REQ_ERR)),
            Nak::RemoteAccess => self.fail(Some(CompletionStatus::REM_ACCESS_ERR)),
            Nak::RemoteOperational => self.fail(Some(CompletionStatus::REM_OP_ERR)),
        }
    }
}
