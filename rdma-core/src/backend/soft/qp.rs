//! Queue pairs: the requester and the responder of the engine, and the steps between the states from RESET to ERR.

#![expect(unsafe_code, reason = "copies inline data from where the poster says it is")]

use std::cell::Cell;
use std::time::Instant;

use super::clock;
use super::cq::CqRef;
use super::engine::keys::Domain;
use super::engine::requester::Requester;
use super::engine::responder::{Responder, Rules};
use super::event::ContextRef;
use super::fabric::{Command, State};
use super::fault::planted::{self, Planted};
use super::wire::{DeviceRef, Hello, MappedState, QpRef};
use crate::backend::interface::{RawOpcode, RawSend, SENTINELS};
use crate::memory::copy_shared;
use crate::{Access, Gid, QpNum, QpState, QueuePairOptions};

/// The wire that carries the messages of a queue pair, chosen at RTR. A mapped requester may change to TCP later.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Carrier {
    Local,
    Mapped,
    Tcp,
}

/// The peer that a queue pair is connected to.
#[derive(Debug, Clone, Copy)]
pub(super) struct Peer {
    pub(super) gid: Gid,
    pub(super) qp_num: QpNum,
    /// The queue pair that the peer was found to be, if it is of this process; spares the next look-up.
    pub(super) found: Option<QpRef>,
}

/// A reliable-connection queue pair.
#[derive(Debug)]
pub(super) struct QueuePair {
    pub(super) num: QpNum,
    pub(super) device: DeviceRef,
    pub(super) context: ContextRef,
    pub(super) cq: CqRef,
    pub(super) domain: Domain,
    pub(super) state: QpState,
    pub(super) access: Access,
    /// The GID that it sends from.
    pub(super) gid: Gid,
    pub(super) peer: Option<Peer>,
    pub(super) carrier: Carrier,
    pub(super) requester: Requester,
    pub(super) responder: Responder,
    pub(super) mapped: MappedState,
    /// Copies of inline data: `max_inline_data` bytes for each request of the send queue. Wires read them by address,
    /// so they are cells, and no `&mut` to them ever exists.
    inline: Vec<Cell<u8>>,
    pub(super) max_inline_data: u32,
    max_send_wr: u32,
}

impl QueuePair {
    pub(super) fn new(
        num: QpNum,
        (device, domain): (DeviceRef, Domain),
        (context, cq): (ContextRef, CqRef),
        options: &QueuePairOptions,
    ) -> Self {
        let inline = options.max_inline_data as usize * options.max_send_wr as usize;
        Self {
            num,
            device,
            context,
            cq,
            domain,
            state: QpState::RESET,
            access: Access::empty(),
            gid: Gid::default(),
            peer: None,
            carrier: Carrier::Local,
            requester: Requester::new(options.max_send_wr as usize),
            responder: Responder::new((options.max_recv_wr + SENTINELS) as usize),
            mapped: MappedState::default(),
            inline: vec![Cell::new(0); inline],
            max_inline_data: options.max_inline_data,
            max_send_wr: options.max_send_wr,
        }
    }

    /// Adds a request to the send queue, or returns an errno.
    ///
    /// # Safety
    ///
    /// The local range of an inline request is readable for the call.
    pub(super) unsafe fn post_send(&mut self, send: &RawSend) -> Result<(), i32> {
        let mut send = *send;
        send.inline &= send.opcode != RawOpcode::Read;
        if self.requester.len() >= self.max_send_wr as usize {
            return Err(libc::ENOMEM);
        }
        if send.inline {
            if send.len > self.max_inline_data {
                return Err(libc::EINVAL);
            }
            let index = (self.requester.next_serial() % u64::from(self.max_send_wr)) as usize;
            let begin = index * self.max_inline_data as usize;
            let cells = self.inline.get(begin..begin + send.len as usize).ok_or(libc::EINVAL)?;
            let target = cells.as_ptr().cast::<u8>().cast_mut();
            if !cells.is_empty() {
                // SAFETY: the caller promises a readable source. The target cells belong to this request alone: the
                // request that used them before, `max_send_wr` posts ago, has left the queue, since there is room for
                // this one. Cells may be written through a shared reference.
                unsafe {
                    let from = std::ptr::with_exposed_provenance::<u8>(send.addr as usize);
                    copy_shared(from, target, cells.len());
                }
            }
            send.addr = target.expose_provenance() as u64;
        }
        self.requester.post(send).map_err(|_| libc::ENOMEM)
    }

    /// Whether the data of a request fits, if it is to be copied inline.
    #[inline]
    pub(super) fn takes_inline(&self, send: &RawSend) -> bool {
        !send.inline || send.len <= self.max_inline_data
    }

    /// Takes the step to a state, if the present one allows it; an errno otherwise.
    pub(super) fn step(&mut self, to: QpState) -> Result<(), i32> {
        if !self.state.may_step(to) {
            return Err(libc::EINVAL);
        }
        self.state = to;
        Ok(())
    }

    /// INIT to RTR: answers `peer`, whose first request has sequence number `psn`.
    pub(super) fn receive_from(
        &mut self,
        gid: Gid,
        peer: Peer,
        psn: u32,
        carrier: Carrier,
        rnr_timer: u8,
    ) -> Result<(), i32> {
        self.step(QpState::RTR)?;
        (self.gid, self.peer, self.carrier) = (gid, Some(peer), carrier);
        self.responder.start(psn, Rules { access: self.access, rnr_timer });
        Ok(())
    }

    /// The hello that the requester opens a connection to the peer with; `None` before RTR.
    pub(super) fn hello(&self) -> Option<Hello> {
        self.peer.map(|peer| Hello {
            source_gid: self.gid,
            source_qp: self.num,
            destination_gid: peer.gid,
            destination_qp: peer.qp_num,
        })
    }
}

impl State {
    /// Moves a queue pair to ERR, from any state, and flushes its requests.
    ///
    /// The mailbox closes before the receives are flushed, so that a mapped peer takes none of them any more.
    pub(super) fn enter_error(&mut self, now: Instant, id: QpRef) {
        let Some(qp) = self.qps.get_mut(id) else { return };
        if std::mem::replace(&mut qp.state, QpState::ERR) == QpState::ERR {
            return;
        }
        qp.requester.fail(None);
        qp.responder.fail();
        let port = qp.mapped.outgoing.take();
        self.discarded.outgoing(port);
        if qp.carrier != Carrier::Local {
            self.commands.push_back(Command::Close { qp: id });
        }
        self.close_mailbox(now, id);
        self.pump(now, id);
        self.flush_receives(id);
    }

    /// Completes the receives of a queue pair in ERR as flushed; those that a mapped writer is still at come later.
    pub(super) fn flush_receives(&mut self, id: QpRef) {
        while let Some(done) = self.next_flushed(clock::now(), id) {
            let Some(qp) = self.qps.get(id) else { return };
            let (cq, num) = (qp.cq, qp.num);
            if !planted::is(Planted::MissingFlush) {
                self.complete(cq, num, done);
            }
        }
    }

    /// Destroys a queue pair: once the lock is released, no thread of this process touches its memory any more.
    pub(super) fn destroy(&mut self, id: QpRef) {
        let Some(mut qp) = self.qps.remove(id) else { return };
        self.discarded.outgoing(qp.mapped.outgoing.take());
        if let Some(incoming) = qp.mapped.incoming.take() {
            self.orphan(clock::now(), qp.device, incoming);
        }
        if let Some(device) = self.devices.get_mut(qp.device) {
            device.qp_nums.remove(&qp.num.0);
        }
        if let Some(cq) = self.cqs.get_mut(qp.cq) {
            cq.unwatch(id);
            cq.forget(qp.num.0);
        }
        self.commands.push_back(Command::Close { qp: id });
    }
}
