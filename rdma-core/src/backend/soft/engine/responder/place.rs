//! What follows once a payload is in place.

use super::super::keys::KeyTable;
use super::super::message::{Nak, Request, RequestOp};
use super::super::sequence;
use super::check::{ack, refuse};
use super::{Outcome, Responder, Verdict};
use crate::EventKind;
use crate::backend::interface::RawCompletion;
use crate::backend::soft::fault::Planted;

impl Responder {
    /// Whether the placement `serial` is still under way, into memory that is still there.
    pub(crate) fn holds(&self, serial: u64, keys: &KeyTable) -> bool {
        self.placing.is_some_and(|placing| {
            placing.serial == serial
                && placing.registration.is_none_or(|(key, serial)| keys.is_current(key, serial))
        })
    }

    /// The payload of the placement `serial` is complete.
    pub(crate) fn placed(&mut self, serial: u64, keys: &KeyTable) -> Verdict {
        let Some(placing) = self.placing.filter(|placing| placing.serial == serial) else {
            return Verdict::Silence;
        };
        let whole = self.holds(serial, keys);
        self.placing = None;
        if !whole {
            // Deregistered while the bytes came in.
            return refuse(&placing.request, Nak::RemoteAccess, EventKind::QP_ACCESS_ERR);
        }
        Verdict::Done(self.carried_out(&placing.request))
    }

    /// Counts a request as carried out; the receive it takes, if any, is posted.
    pub(super) fn carried_out(&mut self, request: &Request) -> Outcome {
        self.expected = sequence::add(self.expected, 1);
        let takes_receive = request.op == RequestOp::Send || request.imm.is_some();
        let receive = if takes_receive { self.receives.pop_front() } else { None };
        let receive = receive.map(|recv| RawCompletion {
            wr_id: recv.wr_id,
            byte_len: request.len,
            write_imm: request.op == RequestOp::Write,
            imm: request.imm.map(|imm| imm ^ u32::from(self.planted == Some(Planted::WrongImmediate))),
            ..RawCompletion::default()
        });
        Outcome { reply: ack(request.psn), receive }
    }
}
