//! The receiving side of a lane: completions of its requests, and arrivals from the peer.
//!
//! Everything that the peer sends is checked here, before a service sees it. A peer that breaks the protocol ends its
//! lane, never this process.

use std::time::Instant;

use rdma_core::{Completion, CompletionStatus, Failure, LocalBuf, Opcode, Success};

use super::{Arrival, Lane, Received, Sent, Unsent};
use crate::link::LaneFailure;
use crate::link::control::{ControlError, Kind};
use crate::link::imm::Imm;

impl Lane {
    /// Takes one completion of this lane's queue pair.
    pub(crate) fn sort(&mut self, completion: Completion, now: Instant) {
        let Completion { id, buffer, result, .. } = completion;
        // A queue completes in the order of posting. So a completion belongs to the oldest request, or it is an
        // arrival.
        let sent = match self.posted.front() {
            Some(&(oldest, sent)) if oldest == id => {
                self.posted.pop_front();
                Some(sent)
            }
            _ => None,
        };
        match result {
            Err(failure) => {
                self.failed(failure);
                if let Some(sent) = sent {
                    self.failed.extend(Unsent::of(sent, buffer));
                }
            }
            Ok(success) => match sent {
                Some(sent) => self.done(sent, buffer),
                None => {
                    self.pulse.heard(now);
                    self.arrived(buffer, &success);
                }
            },
        }
    }

    /// Hands the buffer of a completed request back.
    fn done(&mut self, sent: Sent, buffer: Option<LocalBuf>) {
        match (sent, buffer) {
            (Sent::Control, Some(buffer)) => self.control.push(buffer),
            (Sent::Owned(_), Some(buffer)) => self.returned.push(buffer),
            (Sent::Range(_) | Sent::Read, _) => self.ranges_done += 1,
            _ => {}
        }
    }

    /// Ends the lane by a failed request. The device reports the requests after the cause as flushed, and may report
    /// flushed ones first: so a flush is replaced by the cause when that comes.
    fn failed(&mut self, failure: Failure) {
        let flushed = |failure: &Failure| failure.status == CompletionStatus::WR_FLUSH_ERR;
        match &mut self.failure {
            Some(LaneFailure::Request(known)) if flushed(known) && !flushed(&failure) => *known = failure,
            Some(_) => {}
            // After a CLOSE of either side a failure is no loss: the peer may be gone before it heard this side's
            // CLOSE.
            None if self.closed || self.leaving => self.fail(LaneFailure::Closed),
            None => self.fail(LaneFailure::Request(failure)),
        }
    }

    /// Sorts an arrival by its opcode and immediate.
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
                    // A heartbeat is consumed by being heard. Its receive is posted before the credit is returned.
                    Ok(Imm::Alive) => self.credits.consumed(),
                    Ok(imm) => self.arrival(Arrival::Imm(imm, success.bytes)),
                    Err(unknown) => self.violation(&unknown.to_string()),
                }
            }
            (Opcode::Recv, None) => {
                let (len, epoch) = (success.bytes as usize, self.peer_epoch);
                self.control_arrived(Received { buffer, len, epoch });
            }
            _ => self.violation("an immediate where none belongs, or none where one does"),
        }
    }

    /// Checks a control message, and handles CLOSE.
    fn control_arrived(&mut self, received: Received) {
        match received.message() {
            Ok(message) if message.kind == Kind::CLOSE => {
                self.closed = true;
                self.recycle(received);
            }
            Ok(_) => self.arrival(Arrival::Control(received)),
            Err(ControlError::Epoch(theirs)) => {
                self.fail(LaneFailure::OtherEpoch { ours: self.peer_epoch, theirs });
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

    /// Ends the lane because the peer broke the protocol.
    pub(crate) fn violation(&mut self, what: &str) {
        self.fail(LaneFailure::Violation(what.into()));
    }

    /// Whether the peer has sent CLOSE.
    pub(crate) fn is_closed(&self) -> bool {
        self.closed
    }
}
