//! Carrying a plan out: what becomes of a message that arrives.

#![expect(unsafe_code, reason = "flips a byte where a payload landed")]

use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

use super::super::engine::effect::Source;
use super::super::engine::message::{Reply, Request, RequestOp};
use super::super::engine::responder::Verdict;
use super::super::fabric::{Silence, State};
use super::super::qp::Carrier;
use super::super::wire::{Placement, QpRef, Right, Token, copy};
use super::rule::{Event, Fault};

/// How long a message waits for a later one to overtake it.
const OVERTAKE_WAIT: Duration = Duration::from_millis(10);
/// Messages held back at once; beyond, the oldest is lost.
const HELD_MAX: usize = 1024;
/// Bytes of payload held back at once; beyond, the oldest messages are lost, and so is one that is longer by itself.
const HELD_BYTES_MAX: usize = 64 << 20;

/// What arrives.
#[derive(Debug, Clone, Copy)]
pub(in super::super) enum Message {
    Request(Request),
    Reply(Reply),
}

/// What becomes of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) enum Injected {
    Deliver,
    Lose,
    /// The number chooses the byte.
    Corrupt(u64),
    NotReady,
    Hold {
        due: Instant,
        until_next: bool,
    },
}

/// A message held back, with a copy of its payload.
#[derive(Debug)]
pub(in super::super) struct Held {
    serial: u64,
    due: Instant,
    until_next: bool,
    /// All of the payload is here.
    whole: bool,
    /// The requester, on the wire inside a process.
    from: Option<QpRef>,
    to: QpRef,
    message: Message,
    /// The wire writes them through their address: nothing refers to them before they are whole.
    bytes: Vec<u8>,
}

impl Message {
    fn is_request(&self) -> bool {
        matches!(self, Self::Request(_))
    }

    /// Bytes that follow it.
    pub(in super::super) fn payload_len(&self) -> u32 {
        match self {
            Self::Request(request) if request.op == RequestOp::Read => 0,
            Self::Request(request) => request.len,
            Self::Reply(reply) => reply.len,
        }
    }

    /// What becomes of a payload that nobody wants.
    pub(in super::super) fn unwanted(&self) -> Placement {
        match self.payload_len() {
            0 => Placement::Nothing,
            len => Placement::Discard { len },
        }
    }

    fn takes_receive(&self) -> bool {
        matches!(self, Self::Request(request) if request.op == RequestOp::Send || request.imm.is_some())
    }
}

impl State {
    /// What the plan of the device of `to` does to a message that arrives there.
    pub(in super::super) fn inject(&mut self, now: Instant, to: QpRef, message: &Message) -> Injected {
        let Some(device) = self.qps.get(to).map(|qp| qp.device) else { return Injected::Lose };
        let Some(plan) = self.devices.get(device).and_then(|device| device.faults.as_ref()) else {
            return Injected::Deliver;
        };
        let event = Event::Message {
            is_request: message.is_request(),
            has_payload: message.payload_len() > 0,
            takes_receive: message.takes_receive(),
        };
        let Some((fault, chance)) = plan.ask(event) else { return Injected::Deliver };
        match fault {
            Fault::Drop => return Injected::Lose,
            Fault::Delay(by) => match now.checked_add(by) {
                Some(due) => return Injected::Hold { due, until_next: false },
                // Later than the clock can count.
                None => return Injected::Lose,
            },
            Fault::Reorder => return Injected::Hold { due: now + OVERTAKE_WAIT, until_next: true },
            Fault::Corrupt => return Injected::Corrupt(chance),
            Fault::Rnr => return Injected::NotReady,
            Fault::RefuseDeregistration => return Injected::Deliver,
            Fault::Kill => self.silence(device, Silence::Killed),
            Fault::Stop => self.silence(device, Silence::Stopped),
            Fault::FlapPort(time) => self.flap(now, device, time),
        }
        Injected::Lose
    }

    /// Holds a message back; the wire puts its payload where the answer says.
    pub(in super::super) fn hold(
        &mut self,
        (due, until_next): (Instant, bool),
        from: Option<QpRef>,
        to: QpRef,
        message: Message,
    ) -> Placement {
        let len = message.payload_len();
        let Some(room) = HELD_BYTES_MAX.checked_sub(len as usize) else { return message.unwanted() };
        while self.held.len() >= HELD_MAX || self.held_bytes() > room {
            self.held.remove(0);
        }
        self.held_serials += 1;
        let serial = self.held_serials;
        let mut bytes = vec![0; len as usize];
        let addr = bytes.as_mut_ptr().expose_provenance() as u64;
        self.held.push(Held { serial, due, until_next, whole: len == 0, from, to, message, bytes });
        if len == 0 {
            self.note_due(due);
            return Placement::Nothing;
        }
        Placement::At { token: Token { qp: to, right: Right::Held { serial } }, addr, len }
    }

    fn held_bytes(&self) -> usize {
        self.held.iter().map(|held| held.bytes.len()).sum()
    }

    /// The payload of a message held back is complete.
    pub(in super::super) fn held_whole(&mut self, serial: u64) {
        if let Some(held) = self.held.iter_mut().find(|held| held.serial == serial) {
            held.whole = true;
            let due = held.due;
            self.note_due(due);
        }
    }

    /// Whether the payload of that message is still wanted.
    pub(in super::super) fn holds_back(&self, serial: u64) -> bool {
        self.held.iter().any(|held| held.serial == serial && !held.whole)
    }

    /// When the next message held back is due.
    pub(in super::super) fn held_until(&self) -> Option<Instant> {
        self.held.iter().filter(|held| held.whole).map(|held| held.due).min()
    }

    /// Delivers what is due, and what becomes due by that. What is delivered lets out more: only
    /// the outermost call delivers, so that swapped messages do not pile up on the stack.
    pub(in super::super) fn deliver_due(&mut self, now: Instant) {
        if std::mem::replace(&mut self.delivering, true) {
            return;
        }
        while let Some(index) = self.held.iter().position(|held| held.whole && held.due <= now) {
            let held = self.held.remove(index);
            self.deliver(now, held);
        }
        self.delivering = false;
    }

    /// A message was delivered to `to`: those that waited to be overtaken follow.
    pub(in super::super) fn overtaken(&mut self, now: Instant, to: QpRef, by: &Message) {
        if self.held.is_empty() {
            return;
        }
        for held in &mut self.held {
            let waits = held.whole && held.until_next;
            if waits && held.to == to && held.message.is_request() == by.is_request() {
                held.due = held.due.min(now);
            }
        }
        self.deliver_due(now);
    }

    fn deliver(&mut self, now: Instant, held: Held) {
        let Held { from, to, message, bytes, .. } = held;
        if !self.is_up(to) {
            return;
        }
        let addr = bytes.as_ptr().expose_provenance() as u64;
        match (message, from) {
            (Message::Request(request), Some(from)) => {
                let payload = Source { addr, len: bytes.len() as u32, serial: 0 };
                if self.qps.get(from).is_some_and(|qp| qp.carrier == Carrier::Mapped) {
                    self.execute(now, from, &request, Some(payload), Injected::Deliver);
                    self.pump(now, from);
                } else if self.peer_of(from) == Some(to) {
                    self.hand_over(now, (from, to), &request, Some(payload), Injected::Deliver);
                    self.pump(now, from);
                }
            }
            (Message::Request(request), None) => {
                let mut verdict = self.ask(to, &request);
                if let Some(Verdict::Place { addr: target, len, serial }) = verdict
                    && len as usize == bytes.len()
                {
                    // SAFETY: the source is ours; the target was granted in this hold of the lock.
                    unsafe { copy(addr, target, len) };
                    verdict = self.ask_placed(to, serial);
                }
                if let Some(verdict) = verdict {
                    self.conclude(now, to, verdict);
                }
            }
            (Message::Reply(reply), _) => {
                self.hand_back(now, to, &reply, Some(addr), Injected::Deliver);
                self.pump(now, to);
            }
        }
    }

    /// The payload of `token` will have one byte flipped when it is complete.
    pub(in super::super) fn corrupt_later(&mut self, token: Token, addr: u64, len: u32, chance: u64) {
        let mut pending = std::mem::take(&mut self.corrupting);
        pending.retain(|(token, _)| super::super::wire::Sink::still_valid(self, *token));
        pending.push((token, byte_of(addr, len, chance)));
        self.corrupting = pending;
    }

    /// The payload of `token` is complete: flips its byte, if it was to be.
    pub(in super::super) fn corrupt_now(&mut self, token: Token) {
        let Some(index) = self.corrupting.iter().position(|(pending, _)| *pending == token) else { return };
        let (_, addr) = self.corrupting.swap_remove(index);
        if super::super::wire::Sink::still_valid(self, token) {
            // SAFETY: the address is inside the range of `token`, which is valid in this hold of the lock.
            unsafe { flip(addr) };
        }
    }
}

/// The byte of a payload that `chance` chooses.
pub(in super::super) fn byte_of(addr: u64, len: u32, chance: u64) -> u64 {
    addr + chance % u64::from(len.max(1))
}

/// Flips every bit of the byte at `addr`.
///
/// # Safety
///
/// It is mapped and writable, and no reference to it exists.
pub(in super::super) unsafe fn flip(addr: u64) {
    let byte = std::ptr::with_exposed_provenance_mut::<u8>(addr as usize);
    // SAFETY: by the caller's promise; others may use the byte at the same time.
    unsafe { AtomicU8::from_ptr(byte) }.fetch_xor(0xff, Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(len: u32) -> Message {
        Message::Request(Request { psn: 0, op: RequestOp::Write, imm: None, remote_addr: 0, rkey: 0, len })
    }

    #[test]
    fn what_is_held_back_is_bounded_in_messages_and_in_bytes() {
        let mut state = State::default();
        let mut hold = |len| {
            let when = (Instant::now() + Duration::from_secs(60), false);
            let place = state.hold(when, None, QpRef::default(), write(len));
            (place, state.held.len(), state.held_bytes())
        };
        for len in [(HELD_BYTES_MAX + 1) as u32, 1 << 31] {
            assert_eq!(hold(len), (Placement::Discard { len }, 0, 0), "longer than all that may be held");
        }
        for count in 1..=200 {
            let (place, messages, bytes) = hold(1 << 20);
            assert!(matches!(place, Placement::At { len: 0x10_0000, .. }), "the newest is held");
            assert_eq!((messages, bytes), (count.min(64), count.min(64) << 20));
        }
        assert_eq!(hold(HELD_BYTES_MAX as u32).2, HELD_BYTES_MAX);
        for _ in 0..2 * HELD_MAX {
            assert!(hold(0).1 <= HELD_MAX);
        }
    }
}
