//! Both ends of a mailbox in one process, at different addresses.

#![expect(unsafe_code, reason = "hands the responder memory of the test")]

mod access;
mod chunks;
mod decisions;
mod hammer;
mod latency;
mod lies;
mod oracle;

use std::collections::VecDeque;
use std::sync::Arc;

use rustix::mm::ProtFlags;

use super::remote_responder::{Executed, LocalBuffer, Outcome};
use super::segment::READ_WRITE;
use super::{Export, KeyTable, Mailbox, RemoteResponder, Segment};
use crate::Access;
use crate::backend::interface::RawRecv;
use crate::backend::soft::engine::keys::{Domain, Registered};
use crate::backend::soft::engine::message::{Reply, ReplyKind, Request, RequestOp};
use crate::backend::soft::engine::responder::{LentResponder, Rules};
use crate::backend::soft::fault::Injected;

/// Address of the owner's memory, as the owner announces it. Nothing is mapped there, so an access at it would crash.
pub(super) const BASE: u64 = 0x7000_0000;
/// Identifier of the memory.
pub(super) const MEMORY: u64 = 5;
pub(super) const DOMAIN: Domain = Domain(3);
pub(super) const ALL: Access = Access::LOCAL_WRITE.union(Access::REMOTE_WRITE).union(Access::REMOTE_READ);

pub(super) fn terms(depth: usize) -> LentResponder {
    let rules = Rules { access: ALL, rnr_timer: 9 };
    LentResponder { receives: VecDeque::new(), depth, expected: 0x00ff_fffe, rules }
}

pub(super) fn mapped(segment: &Segment, protection: ProtFlags) -> Arc<Segment> {
    let memfd = segment.memfd().expect("made here");
    Arc::new(Segment::map(memfd, segment.len() as u64, protection).unwrap())
}

/// An owner and its writer.
pub(super) struct Rig {
    pub(super) keys: KeyTable,
    pub(super) mailbox: Mailbox,
    pub(super) memory: Segment,
    pub(super) responder: RemoteResponder,
    pub(super) psn: u32,
}

impl Rig {
    pub(super) fn new(bytes: usize, terms: LentResponder) -> Self {
        let (keys, memory) = (KeyTable::create().unwrap(), Segment::create("test", bytes).unwrap());
        let mailbox = Mailbox::create(&terms, DOMAIN).unwrap();
        let responder = responder(&keys, &mailbox, &memory);
        Self { keys, mailbox, memory, responder, psn: terms.expected }
    }

    /// A second responder of the same mailbox, to be used instead of the first.
    pub(super) fn another_responder(&self) -> RemoteResponder {
        responder(&self.keys, &self.mailbox, &self.memory)
    }

    /// Registers all of the memory under `key`.
    pub(super) fn expose(&mut self, key: u32, serial: u64) {
        let len = self.memory.len() as u64;
        let registered = Registered { domain: DOMAIN, addr: BASE, len, access: ALL, serial };
        assert!(self.keys.insert(&export(key, registered)));
    }

    /// Renews that registration under another serial, with that version of its pages.
    pub(super) fn reexpose(&mut self, key: u32, serial: u64, version: u32) {
        let len = self.memory.len() as u64;
        let registered = Registered { domain: DOMAIN, addr: BASE, len, access: ALL, serial };
        self.keys.renew(&Export { version, ..export(key, registered) });
    }

    /// The next request in order.
    pub(super) fn next(&mut self, op: RequestOp, rkey: u32, remote_addr: u64, len: u32) -> Request {
        let psn = self.psn;
        self.psn = crate::backend::soft::engine::sequence::add(psn, 1);
        Request { psn, op, imm: None, remote_addr, rkey, len, ack_req: false }
    }

    pub(super) fn bytes(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.memory.len()];
        // SAFETY: both ranges have `bytes.len()` bytes, of a live mapping and of a vector, so the copy is in bounds.
        unsafe {
            crate::memory::copy_shared(self.memory.as_ptr().as_ptr(), bytes.as_mut_ptr(), bytes.len());
        }
        bytes
    }

    pub(super) fn post(&mut self, wr_id: u64, addr: u64, len: u32, lkey: u32) {
        self.mailbox.post_recv(RawRecv { wr_id, addr, len, lkey }).unwrap();
    }
}

fn responder(keys: &KeyTable, mailbox: &Mailbox, memory: &Segment) -> RemoteResponder {
    let theirs = mapped(mailbox.segment(), READ_WRITE);
    let mut responder = RemoteResponder::new(&theirs, &mapped(keys.segment(), ProtFlags::READ)).unwrap();
    responder.memories.add(MEMORY, mapped(memory, READ_WRITE));
    responder
}

pub(super) fn export(key: u32, registered: Registered) -> Export {
    Export { key, registered, memory: MEMORY, version: 0, offset: registered.addr.wrapping_sub(BASE) }
}

/// Carries out a request, with its payload, or the target of its answer, in `local`.
pub(super) fn execute(
    responder: &mut RemoteResponder,
    request: &Request,
    local: &mut [u8],
    injected: Injected,
) -> Executed {
    assert!(request.len as usize <= local.len());
    let local = local.as_mut_ptr().expose_provenance() as u64;
    // SAFETY: `local` has at least `request.len` bytes and is borrowed mutably for the call, so nothing else uses it.
    unsafe { responder.execute(request, LocalBuffer::at(local), injected) }
}

/// Carries out a request by the fast path of small requests; `None` when the fast path declines.
pub(super) fn try_execute_small(
    responder: &mut RemoteResponder,
    request: &Request,
    local: &mut [u8],
) -> Option<Executed> {
    assert!(request.len as usize <= local.len());
    let local = local.as_mut_ptr().expose_provenance() as u64;
    // SAFETY: `local` has at least `request.len` bytes and is borrowed for the call, so it stays readable.
    let ring = unsafe { responder.try_execute_small(request, local) }?;
    let reply = Reply { psn: request.psn, kind: ReplyKind::Ack, len: 0 };
    Some(Executed { outcome: Outcome::Reply(reply), ring, nudge: false })
}
