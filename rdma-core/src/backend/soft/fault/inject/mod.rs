//! Fault injection: applies the plan of a device to each message that arrives, and holds delayed messages back.
//!
//! The [`plan`](super::plan) decides which fault strikes. Every wire asks [`State::inject`] before it delivers a
//! message, and delivers, loses, corrupts or delays the message as the answer says.

#![expect(unsafe_code, reason = "copies payloads that are held back, and flips a byte where one landed")]

use std::time::{Duration, Instant};

use super::super::engine::decision::takes_receive;
use super::super::engine::effect::Buffer;
use super::super::engine::message::{Reply, Request};
use super::super::fabric::{Silence, State};
use super::super::qp::Carrier;
use super::super::wire::{Payload, QpRef, Right, Token, copy};
use super::injected::{Delay, Injected, byte_of, flip};
use super::rule::{Event, Fault};

/// How long a reordered message waits for a later one to overtake it. 10 ms: shorter than a usual acknowledgement
/// timeout, so that the message arrives before the requester retries when no later one comes.
const OVERTAKE_WAIT: Duration = Duration::from_millis(10);
/// Delayed messages of the process at most; beyond this the oldest is lost, so that a plan cannot exhaust memory.
const DELAYED_MAX: usize = 1024;
/// Payload bytes of delayed messages at most. Beyond this the oldest messages are lost. A message whose own payload is
/// longer is lost at once.
const DELAYED_BYTES_MAX: usize = 64 << 20;

/// A message that arrives at a queue pair, on any wire.
#[derive(Debug, Clone, Copy)]
pub(in super::super) enum Message {
    Request(Request),
    Reply(Reply),
}

/// A message that a fault holds back, with a copy of its payload.
#[derive(Debug)]
pub(in super::super) struct DelayedMessage {
    serial: u64,
    delay: Delay,
    /// The payload copy is complete; only then may the message be delivered.
    whole: bool,
    /// The requester, if it is of this process; `None` for a request that came over TCP, and for a reply.
    from: Option<QpRef>,
    to: QpRef,
    message: Message,
    /// The payload copy. The wire writes through the address that [`State::delay_message`] gave out, so nothing may
    /// borrow these bytes before `whole` is set, and the vector must never grow.
    bytes: Vec<u8>,
}

impl Message {
    fn is_request(&self) -> bool {
        matches!(self, Self::Request(_))
    }

    /// Payload bytes that follow the message.
    fn payload_len(&self) -> u32 {
        match self {
            Self::Request(request) => request.payload_len(),
            Self::Reply(reply) => reply.len,
        }
    }

    /// Whether the message consumes a receive.
    fn takes_receive(&self) -> bool {
        matches!(self, Self::Request(request) if takes_receive(request))
    }
}

impl State {
    /// Lets the faults of the device of `to` act on a message that arrives there, with its payload at `data` if that is
    /// there already. The error of a message that is lost or held back says where its payload must still go, if any.
    pub(in super::super) fn admit(
        &mut self,
        now: Instant,
        from: Option<QpRef>,
        to: QpRef,
        message: &Message,
        data: Option<u64>,
    ) -> Result<Injected, Option<Payload>> {
        match self.inject(now, to, message) {
            Injected::Lose => Err(None),
            Injected::Delay(until) => Err(self.delay_message(until, from, to, *message, data)),
            injected => Ok(injected),
        }
    }

    /// Asks the plan of the device of `to` about a message that arrives there. A fault of the whole device (kill, stop,
    /// port flap) is carried out here, and loses the message.
    fn inject(&mut self, now: Instant, to: QpRef, message: &Message) -> Injected {
        let Some((device, queue_pair)) = self.qps.get(to).map(|qp| (qp.device, qp.num)) else {
            return Injected::Lose;
        };
        let Some(plan) = self.devices.get(device).and_then(|device| device.faults.as_ref()) else {
            return Injected::Deliver;
        };
        let event = Event::Message {
            queue_pair,
            is_request: message.is_request(),
            has_payload: message.payload_len() > 0,
            takes_receive: message.takes_receive(),
        };
        let Some((fault, chance)) = plan.ask(event) else { return Injected::Deliver };
        match fault {
            Fault::Drop => return Injected::Lose,
            Fault::Delay(by) => match now.checked_add(by) {
                Some(due) => return Injected::Delay(Delay { due, until_next: false }),
                // The clock cannot represent the due time, so the message never arrives.
                None => return Injected::Lose,
            },
            Fault::Reorder => return Injected::Delay(Delay { due: now + OVERTAKE_WAIT, until_next: true }),
            Fault::Corrupt => return Injected::Corrupt(chance),
            Fault::Rnr => return Injected::NotReady,
            Fault::RefuseDeregistration => return Injected::Deliver,
            Fault::Kill => self.silence(device, Silence::Killed),
            Fault::Stop => self.silence(device, Silence::Stopped),
            Fault::FlapPort(time) => self.flap(now, device, time),
        }
        Injected::Lose
    }

    /// Keeps a message for later delivery, with a copy of its payload at `data`. Without `data`, returns where the wire
    /// must copy the payload; `None` if it has none, or one that is too long to be kept.
    fn delay_message(
        &mut self,
        delay: Delay,
        from: Option<QpRef>,
        to: QpRef,
        message: Message,
        data: Option<u64>,
    ) -> Option<Payload> {
        let len = message.payload_len();
        let room = DELAYED_BYTES_MAX.checked_sub(len as usize)?;
        while self.delayed.len() >= DELAYED_MAX || self.delayed_bytes() > room {
            self.delayed.remove(0);
        }
        self.delayed_serials += 1;
        let serial = self.delayed_serials;
        let mut bytes = vec![0; len as usize];
        let addr = bytes.as_mut_ptr().expose_provenance() as u64;
        if let Some(data) = data.filter(|_| len > 0) {
            // SAFETY: the payload is valid in this hold of the lock, because its message is being carried just now. The
            // target was allocated for this copy, with `len` bytes, so nothing else uses it.
            unsafe { copy(data, addr, len) };
        }
        let whole = len == 0 || data.is_some();
        self.delayed.push(DelayedMessage { serial, delay, whole, from, to, message, bytes });
        if whole {
            self.note_due(delay.due);
            return None;
        }
        Some(Payload { token: Token { qp: to, right: Right::Delayed { serial } }, addr, len })
    }

    fn delayed_bytes(&self) -> usize {
        self.delayed.iter().map(|delayed| delayed.bytes.len()).sum()
    }

    /// Notes that the payload copy of a delayed message is complete: the message may now be delivered.
    pub(in super::super) fn delayed_payload_arrived(&mut self, serial: u64) {
        if let Some(delayed) = self.delayed.iter_mut().find(|delayed| delayed.serial == serial) {
            delayed.whole = true;
            let due = delayed.delay.due;
            self.note_due(due);
        }
    }

    /// Whether a delayed message still waits for its payload. `false` once the message was dropped for room: the wire
    /// must then not write to the address it was given.
    pub(in super::super) fn awaits_delayed_payload(&self, serial: u64) -> bool {
        self.delayed.iter().any(|delayed| delayed.serial == serial && !delayed.whole)
    }

    /// The time at which the next delayed message is due.
    pub(in super::super) fn next_delayed_due(&self) -> Option<Instant> {
        self.delayed.iter().filter(|delayed| delayed.whole).map(|delayed| delayed.delay.due).min()
    }

    /// Delivers the delayed messages that are due, and those that become due by that.
    ///
    /// Delivering a message posts the next requests, whose messages may overtake others and make them due. Only the
    /// outermost call delivers, because otherwise a deep queue of reordered messages would overflow the stack.
    pub(in super::super) fn deliver_due(&mut self, now: Instant) {
        if std::mem::replace(&mut self.delivering, true) {
            return;
        }
        while let Some(index) = self.delayed.iter().position(|it| it.whole && it.delay.due <= now) {
            let delayed = self.delayed.remove(index);
            self.deliver(now, delayed);
        }
        self.delivering = false;
    }

    /// Delivers the reordered messages that the message `by`, just delivered to `to`, has overtaken.
    pub(in super::super) fn overtaken(&mut self, now: Instant, to: QpRef, by: &Message) {
        if self.delayed.is_empty() {
            return;
        }
        for delayed in &mut self.delayed {
            let waits = delayed.whole && delayed.delay.until_next;
            if waits && delayed.to == to && delayed.message.is_request() == by.is_request() {
                delayed.delay.due = delayed.delay.due.min(now);
            }
        }
        self.deliver_due(now);
    }

    /// Delivers a delayed message on the wire it came by, as if it arrived now. A queue pair that is gone or silent
    /// gets none.
    fn deliver(&mut self, now: Instant, delayed: DelayedMessage) {
        let DelayedMessage { from, to, message, bytes, .. } = delayed;
        if !self.is_up(to) {
            return;
        }
        let addr = bytes.as_ptr().expose_provenance() as u64;
        let payload = Some(Buffer { addr, len: bytes.len() as u32, serial: 0 });
        match (message, from) {
            (Message::Request(request), Some(from)) => {
                if self.qps.get(from).is_some_and(|qp| qp.carrier == Carrier::Mapped) {
                    self.execute(now, from, &request, payload, Injected::Deliver);
                    self.pump(now, from);
                } else if self.peer_of(from) == Some(to) {
                    self.hand_over(now, (from, to), &request, payload, Injected::Deliver);
                    self.pump(now, from);
                }
            }
            (Message::Request(request), None) => {
                if let Some(verdict) = self.settle(to, &request, payload, Injected::Deliver) {
                    self.conclude(now, to, verdict);
                }
            }
            (Message::Reply(reply), _) => {
                self.hand_back(now, to, &reply, Some(addr), Injected::Deliver);
                self.pump(now, to);
            }
        }
    }

    /// Remembers to flip one byte of the payload behind `token` once it is complete. Flipping earlier would be undone,
    /// because the wire still writes.
    pub(in super::super) fn corrupt_later(&mut self, token: Token, addr: u64, len: u32, chance: u64) {
        let mut pending = std::mem::take(&mut self.corrupting);
        pending.retain(|(token, _)| super::super::wire::Sink::still_valid(self, *token));
        pending.push((token, byte_of(addr, len, chance)));
        self.corrupting = pending;
    }

    /// Flips the byte that [`corrupt_later`](Self::corrupt_later) remembered for `token`, whose payload is complete.
    pub(in super::super) fn corrupt_now(&mut self, token: Token) {
        let Some(index) = self.corrupting.iter().position(|(pending, _)| *pending == token) else { return };
        let (_, addr) = self.corrupting.swap_remove(index);
        if super::super::wire::Sink::still_valid(self, token) {
            // SAFETY: the address is inside the range of `token`, which `still_valid` just confirmed. It stays
            // valid, because a deregistration needs the lock that is held here.
            unsafe { flip(addr) };
        }
    }
}

#[cfg(test)]
mod tests;
