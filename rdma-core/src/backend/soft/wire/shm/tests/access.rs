//! Accesses without a request, in the cases that tests of whole processes do not reach.

use super::*;
use crate::backend::interface::{MappedAccess, MappedOp};
use crate::backend::soft::engine::keys::KeyRefusal;
use crate::backend::soft::wire::shm::NoAccess;
use crate::memory::CacheHint;

fn touch(rig: &Rig, remote_addr: u64, len: u64, rkey: u32, op: MappedOp) -> Result<u64, NoAccess> {
    // SAFETY: the accesses of these tests use no local bytes, or those of a constant that lives for ever, so they are
    // valid.
    unsafe { rig.responder.access(&MappedAccess { remote_addr, len, rkey, op }) }
}

fn store(rig: &Rig, remote_addr: u64, rkey: u32) -> Result<u64, NoAccess> {
    touch(rig, remote_addr, 8, rkey, MappedOp::Store { bits: 7 })
}

#[test]
fn nothing_is_done_for_a_queue_pair_that_does_not_answer() {
    static BYTES: [u8; 8] = [1; 8];
    let mut rig = Rig::new(64, terms(1));
    rig.expose(1, 1);
    let write = MappedOp::Write { from: BYTES.as_ptr().expose_provenance() as u64, hint: CacheHint::Cached };
    rig.mailbox.set_silent(true);
    assert_eq!(touch(&rig, BASE, 8, 1, write), Err(NoAccess::Silent));
    rig.mailbox.close();
    assert_eq!(touch(&rig, BASE, 8, 1, write), Err(NoAccess::Closed));
    assert!(rig.bytes().iter().all(|byte| *byte == 0));
}

#[test]
fn memory_that_is_not_mapped_is_named() {
    let mut rig = Rig::new(64, terms(1));
    rig.expose(1, 1);
    rig.responder.memories.remove(MEMORY);
    assert_eq!(touch(&rig, BASE, 8, 1, MappedOp::Probe), Err(NoAccess::Unmapped(MEMORY)));
    assert_eq!(store(&rig, BASE, 1), Err(NoAccess::Unmapped(MEMORY)));
    assert_eq!(store(&rig, BASE, 2), Err(NoAccess::Refused(KeyRefusal::Unknown)));
}

#[test]
fn more_than_goes_into_32_bits_is_looked_at() {
    let mut rig = Rig::new(64, terms(1));
    let registered = Registered { domain: DOMAIN, addr: BASE, len: 5 << 30, access: ALL, serial: 1 };
    assert!(rig.keys.insert(&export(1, registered)));
    assert_eq!(
        touch(&rig, BASE, 6 << 30, 1, MappedOp::Probe),
        Err(NoAccess::Refused(KeyRefusal::OutOfRange))
    );
    // A peer that lies: it names more than the 64 bytes that are mapped.
    assert_eq!(touch(&rig, BASE, 5 << 30, 1, MappedOp::Probe), Err(NoAccess::Unmapped(MEMORY)));
}

#[test]
fn what_lets_nobody_in_is_no_use_to_wait_for() {
    let mut rig = Rig::new(64, terms(1));
    let registered =
        Registered { domain: DOMAIN, addr: BASE, len: 32, access: Access::LOCAL_WRITE, serial: 1 };
    assert!(rig.keys.insert(&export(1, registered)));
    rig.responder.memories.remove(MEMORY);
    assert_eq!(touch(&rig, BASE, 8, 1, MappedOp::Probe), Err(NoAccess::Refused(KeyRefusal::AccessDenied)));
}

#[test]
fn a_peer_that_lies_about_where_its_memory_begins_has_no_flag_there() {
    let mut rig = Rig::new(64, terms(1));
    let registered = Registered { domain: DOMAIN, addr: BASE, len: 32, access: ALL, serial: 1 };
    assert!(rig.keys.insert(&Export { offset: 4, ..export(1, registered) }));
    assert_eq!(store(&rig, BASE, 1), Err(NoAccess::Refused(KeyRefusal::OutOfRange)));
    assert_eq!(touch(&rig, BASE, 8, 1, MappedOp::Load), Err(NoAccess::Refused(KeyRefusal::OutOfRange)));
    assert_eq!(store(&rig, BASE + 4, 1), Ok(0));
    assert_eq!(touch(&rig, BASE + 4, 8, 1, MappedOp::Load), Ok(7));
}
