//! Taking replies. Acknowledgements are cumulative; only its own data acknowledges a read.

use std::time::Instant;

use super::super::message::{Nak, Reply, ReplyKind};
use super::super::sequence;
use super::super::timer::Timer;
use super::{Requester, State};
use crate::CompletionStatus;
use crate::backend::interface::RawOpcode;

/// What becomes of the payload that follows a reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Landing {
    /// There is none.
    Nothing,
    /// It answers the read `serial` and goes there; then [`Requester::landed`].
    At { addr: u64, len: u32, serial: u64 },
    /// It answers nothing that is open.
    Discard,
}

impl Requester {
    /// A reply of the peer's responder.
    pub(crate) fn handle_reply(&mut self, now: Instant, reply: &Reply) -> Landing {
        let unwanted = if reply.len > 0 { Landing::Discard } else { Landing::Nothing };
        let Some(place) = self.place_of(reply.psn) else { return unwanted };
        match reply.kind {
            ReplyKind::Ack => self.acknowledge(now, place + 1),
            ReplyKind::ReadData => return self.read_data(now, place, reply.len),
            ReplyKind::Rnr { timer } => {
                if self.acknowledge(now, place) && self.acked == place {
                    self.back_off(now, timer);
                }
                true
            }
            ReplyKind::Nak(nak) => {
                if self.acknowledge(now, place) {
                    self.refused(nak);
                }
                true
            }
        };
        unwanted
    }

    /// Where the data of the read `psn` goes.
    pub(crate) fn landing(&self, psn: u32) -> Option<u64> {
        let send = self.queue.get(self.place_of(psn)?)?;
        (send.opcode == RawOpcode::Read).then_some(send.addr)
    }

    /// The data of the read `serial` is in place.
    pub(crate) fn landed(&mut self, now: Instant, serial: u64) {
        if self.holds(serial) && serial == self.first_serial + self.acked as u64 {
            self.count_acknowledged(now);
        }
    }

    /// Bytes are moving: the peer is given its time again.
    pub(crate) fn moving(&mut self, now: Instant) {
        if self.ack_timer != Timer::Off {
            self.ack_timer = Timer::after(now, self.limits.ack_timeout);
        }
    }

    /// The place in the queue of what `psn` names, if that is open.
    fn place_of(&self, psn: u32) -> Option<usize> {
        if self.state != State::Sending {
            return None;
        }
        let place = usize::try_from(sequence::distance(self.first_psn, psn)).ok()?;
        (self.acked..self.sent_max).contains(&place).then_some(place)
    }

    /// Counts everything before `end` as carried out. `false` when a read among it was not
    /// answered: its answer is lost, and it goes out again. Once: acknowledgements that were on
    /// their way then say nothing new, and if the second answer is lost, too, the timer tells.
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

    fn read_data(&mut self, now: Instant, place: usize, len: u32) -> Landing {
        let unwanted = if len > 0 { Landing::Discard } else { Landing::Nothing };
        if !self.acknowledge(now, place) {
            return unwanted;
        }
        let Some(send) = self.queue.get(place).filter(|send| send.opcode == RawOpcode::Read) else {
            self.fail(Some(CompletionStatus::BAD_RESP_ERR));
            return unwanted;
        };
        if send.len != len {
            self.fail(Some(CompletionStatus::BAD_RESP_ERR));
            return unwanted;
        }
        let serial = self.first_serial + place as u64;
        if len == 0 {
            self.count_acknowledged(now);
            return Landing::Nothing;
        }
        Landing::At { addr: send.addr, len, serial }
    }

    fn oldest_is_read(&self) -> bool {
        self.queue.get(self.acked).is_some_and(|send| send.opcode == RawOpcode::Read)
    }

    /// The oldest outstanding request is carried out.
    fn count_acknowledged(&mut self, now: Instant) {
        if self.oldest_is_read() && self.acked < self.sent {
            self.reads_outstanding = self.reads_outstanding.saturating_sub(1);
        }
        self.acked += 1;
        self.asked_again = false;
        self.sent = self.sent.max(self.acked);
        self.reset_retries();
        self.ack_timer =
            if self.outstanding() > 0 { Timer::after(now, self.limits.ack_timeout) } else { Timer::Off };
    }

    fn refused(&mut self, nak: Nak) {
        match nak {
            Nak::Sequence => self.retry(),
            Nak::InvalidRequest => self.fail(Some(CompletionStatus::REM_INV_REQ_ERR)),
            Nak::RemoteAccess => self.fail(Some(CompletionStatus::REM_ACCESS_ERR)),
            Nak::RemoteOperational => self.fail(Some(CompletionStatus::REM_OP_ERR)),
        }
    }
}
