//! Memory that goes back when neighbours hold on, and the bytes of a forked child.

use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use super::super::Pages;
use super::*;

const BYTES: usize = 1 << 20;

/// Returns memory of which some pages were replaced, and the descriptors that a peer holds of it.
fn shared() -> (Allocated, Vec<Arc<OwnedFd>>) {
    let memory = Allocated::allocate(BYTES).unwrap();
    // SAFETY: only this test knows the memory, so nobody else accesses it.
    unsafe { memory.as_ptr().as_ptr().write_bytes(7, BYTES) };
    let pages = &memory.backing().pages;
    let replaced: Range<u64> = Pages::around(1 << 16..1 << 17);
    // SAFETY: the memory is mapped at this address, and only this test writes it, so no write is lost.
    unsafe { pages.replace(memory.as_ptr(), std::slice::from_ref(&replaced), true) }.unwrap();
    let memfds = pages.patches(0).into_iter().map(|patch| patch.memfd);
    let held = memfds.chain([Arc::clone(&memory.backing().memfd)]).collect();
    (memory, held)
}

fn charged(held: &[Arc<OwnedFd>]) -> Vec<i64> {
    held.iter().map(|memfd| rustix::fs::fstat(memfd).unwrap().st_blocks * 512).collect()
}

#[test]
fn what_neighbours_hold_on_to_takes_no_memory_once_it_is_dropped() {
    loop {
        let (memory, held) = shared();
        assert_eq!(charged(&held), [1 << 16, BYTES as i64]);
        let checkpoint = fork::Checkpoint::now();
        drop(memory);
        // Another test may fork at any time; the memory is then rightly kept, so the round is repeated.
        if checkpoint.is_unforked() {
            return assert_eq!(charged(&held), [0, 0]);
        }
    }
}

#[test]
fn what_a_child_has_keeps_its_bytes() {
    let (mut memory, held) = shared();
    memory.checkpoint = fork::Checkpoint::of_another_process();
    drop(memory);
    assert_eq!(charged(&held), [1 << 16, BYTES as i64]);
}
