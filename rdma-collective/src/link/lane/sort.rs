//! What comes back on a lane: completions of what was sent, and arrivals.

use std::time::Instant;

use rdma_core::{Completion, CompletionStatus, Failure, LocalBuf, Opcode, Success};

use super::{Arrival, Lane, Received, Sent};
use crate::link::LaneFailure;
use crate::link::control::{self, ControlError, Kind};
use crate::link::imm::Imm;

impl Lane {
    /// Takes one completion of this lane's queue pair.
    pub(crate) fn sort(&mut self, completion: Completion, now: Instant) {
        let Completion { id, buffer, result, .. } = completion;
        // Completions of a queue come in the order of posting, so that a request sent is the oldest or none.
        let sent = match self.posted.front() {
            Some(&(oldest, sent)) if oldest == id => {
                self.posted.pop_front();
                Some(sent)
            }
            _ => None,
        };
        match result {
            Err(failure) => self.failed(failure),
            Ok(success) => match sent {
                Some(sent) => self.done(sent, buffer),
                None => {
                    self.pulse.heard(now);
                    self.arrived(buffer, &success);
                }
            },
        }
    }

    fn done(&mut self, sent: Sent, buffer: Option<LocalBuf>) {
        match (sent, buffer) {
            (Sent::Control, Some(buffer)) => self.control.push(buffer),
            (Sent::Owned, Some(buffer)) => self.returned.push(buffer),
            (Sent::Range | Sent::Read, _) => self.ranges_done += 1,
            _ => {}
        }
    }

    /// The first failure has the cause; those after it are told as flushed, and those before the cause may be too.
    fn failed(&mut self, failure: Failure) {
        let flushed = |failure: &Failure| failure.status == CompletionStatus::WR_FLUSH_ERR;
        match &mut self.failure {
            Some(LaneFailure::Request(known)) if flushed(known) && !flushed(&failure) => *known = failure,
            Some(_) => {}
            // One that has left may be gone before this side is, and need not hear this side's last word.
            None if self.closed || self.leaving => self.fail(LaneFailure::Closed),
            None => self.fail(LaneFailure::Request(failure)),
        }
    }

    fn arrived(&mut self, buffer: Option<LocalBuf>, success: &Success) {
        let Some(buffer) = buffer else {
            return self.violation("a receive without its buffer");
        };
        match (success.opcode, success.imm) {
            (Opcode::RecvWriteImm, Some(word)) => {
                self.idle.push(buffer);
                match Imm::decode(word) {
                    Ok(Imm::Credit { count }) => {
                        if self.credits.returned(count).is_err() {
                            self.violation("more credits than messages");
                        }
                    }
                    // Heard it is; its receive is posted again before the credit is told.
                    Ok(Imm::Alive) => self.credits.consumed(),
                    Ok(imm) => self.arrival(Arrival::Imm(imm, success.bytes)),
                    Err(unknown) => self.violation(&unknown.to_string()),
                }
            }
            (Opcode::Recv, None) => self.control_arrived(Received { buffer, len: success.bytes as usize }),
            _ => self.violation("an immediate where none belongs, or none where one does"),
        }
    }

    fn control_arrived(&mut self, received: Received) {
        let Some(bytes) = received.buffer.get(..received.len) else {
            return self.violation("a control message longer than its receive");
        };
        match control::decode(bytes, self.name.epoch) {
            Ok(message) if message.kind == Kind::CLOSE => {
                self.closed = true;
                self.recycle(received);
            }
            Ok(_) => self.arrival(Arrival::Control(received)),
            Err(ControlError::Epoch(theirs)) => {
                self.fail(LaneFailure::OtherEpoch { ours: self.name.epoch, theirs });
            }
            Err(error) => self.violation(&error.to_string()),
        }
    }

    fn arrival(&mut self, arrival: Arrival) {
        if self.arrivals.len() >= self.arrivals_max {
            return self.violation("more messages than credits");
        }
        self.arrivals.push_back(arrival);
    }

    /// The peer sent what it may not send.
    pub(crate) fn violation(&mut self, what: &str) {
        self.fail(LaneFailure::Violation(what.into()));
    }

    /// Whether the peer has said that it sends nothing more.
    pub(crate) fn is_closed(&self) -> bool {
        self.closed
    }
}
