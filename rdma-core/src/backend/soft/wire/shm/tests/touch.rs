//! Memory touched without a request: what is not told by way of whole processes.

use super::*;
use crate::backend::interface::{RawReach, RawTouch};
use crate::backend::soft::engine::keys::KeyRefusal;
use crate::backend::soft::wire::shm::Touched;
use crate::memory::Expect;

fn touch(rig: &Rig, remote_addr: u64, len: u64, rkey: u32, touch: RawTouch) -> Touched {
    // SAFETY: what the tests touch by has no bytes here, or those of a constant that lives on.
    unsafe { rig.port.touch(&RawReach { remote_addr, len, rkey, touch }) }
}

fn store(rig: &Rig, remote_addr: u64, rkey: u32) -> Touched {
    touch(rig, remote_addr, 8, rkey, RawTouch::Store { bits: 7 })
}

#[test]
fn nothing_is_done_for_a_queue_pair_that_does_not_answer() {
    static BYTES: [u8; 8] = [1; 8];
    let mut rig = Rig::new(64, terms(1, None));
    rig.expose(1, 1);
    let write = RawTouch::Write { from: BYTES.as_ptr().expose_provenance() as u64, expect: Expect::Cached };
    rig.mailbox.set_silent(true);
    assert_eq!(touch(&rig, BASE, 8, 1, write), Touched::Silent);
    rig.mailbox.close();
    assert_eq!(touch(&rig, BASE, 8, 1, write), Touched::Closed);
    assert!(rig.bytes().iter().all(|byte| *byte == 0));
}

#[test]
fn memory_that_is_not_mapped_is_named() {
    let mut rig = Rig::new(64, terms(1, None));
    rig.expose(1, 1);
    rig.port.remove_memory(MEMORY);
    assert_eq!(touch(&rig, BASE, 8, 1, RawTouch::Look), Touched::Unmapped(MEMORY));
    assert_eq!(store(&rig, BASE, 1), Touched::Unmapped(MEMORY));
    assert_eq!(store(&rig, BASE, 2), Touched::Refused(KeyRefusal::Unknown));
}

#[test]
fn more_than_goes_into_32_bits_is_looked_at() {
    let mut rig = Rig::new(64, terms(1, None));
    let registered = Registered { domain: DOMAIN, addr: BASE, len: 5 << 30, access: ALL, serial: 1 };
    assert!(rig.keys.insert(&exposed(1, registered)));
    assert_eq!(touch(&rig, BASE, 6 << 30, 1, RawTouch::Look), Touched::Refused(KeyRefusal::OutOfRange));
    // A peer that lies: no more than 64 bytes of it are mapped.
    assert_eq!(touch(&rig, BASE, 5 << 30, 1, RawTouch::Look), Touched::Unmapped(MEMORY));
}

#[test]
fn what_lets_nobody_in_is_no_use_to_wait_for() {
    let mut rig = Rig::new(64, terms(1, None));
    let registered =
        Registered { domain: DOMAIN, addr: BASE, len: 32, access: Access::LOCAL_WRITE, serial: 1 };
    assert!(rig.keys.insert(&exposed(1, registered)));
    rig.port.remove_memory(MEMORY);
    assert_eq!(touch(&rig, BASE, 8, 1, RawTouch::Look), Touched::Refused(KeyRefusal::AccessDenied));
}

#[test]
fn a_peer_that_lies_about_where_its_memory_begins_has_no_flag_there() {
    let mut rig = Rig::new(64, terms(1, None));
    let registered = Registered { domain: DOMAIN, addr: BASE, len: 32, access: ALL, serial: 1 };
    assert!(rig.keys.insert(&Exposed { offset: 4, ..exposed(1, registered) }));
    assert_eq!(store(&rig, BASE, 1), Touched::Refused(KeyRefusal::OutOfRange));
    assert_eq!(touch(&rig, BASE, 8, 1, RawTouch::Load), Touched::Refused(KeyRefusal::OutOfRange));
    assert_eq!(store(&rig, BASE + 4, 1), Touched::Done(0));
    assert_eq!(touch(&rig, BASE + 4, 8, 1, RawTouch::Load), Touched::Done(7));
}
