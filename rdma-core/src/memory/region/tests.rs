//! Copies within a region, and pages that are replaced during a long copy.

use super::super::{Keys, Mapping, Pages, PdId, Registration};
use super::*;

struct Held;

impl Registration for Held {
    fn keys(&self) -> Keys {
        Keys { lkey: LocalKey(1), rkey: RemoteKey(2) }
    }

    fn deregister(&mut self, _: crate::Deadline) -> Result<(), CloseError> {
        Ok(())
    }
}

fn region(len: usize) -> (Region, Arc<Pages>) {
    let memory = Mapping::allocate(len).unwrap();
    let pages = Arc::clone(&memory.backing().unwrap().pages);
    let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
    (Region::new(Registered::new(memory, Box::new(Held), access, PdId(1))), pages)
}

fn byte_of(at: usize) -> u8 {
    (at % 251) as u8 ^ (at >> 20) as u8
}

#[test]
fn what_is_copied_within_a_region_is_whole_however_far() {
    const LEN: usize = 3 * HOLD_BYTES_MAX + 7;
    let (region, _) = region(LEN + 2 * HOLD_BYTES_MAX);
    let bytes: Vec<u8> = (0..LEN).map(byte_of).collect();
    for (from, to) in [(0, 1), (1, 0), (0, HOLD_BYTES_MAX + 3), (HOLD_BYTES_MAX + 3, 0), (5, 5)] {
        for hint in [CacheHint::Cached, CacheHint::Streamed] {
            region.copy_in(from, &bytes).unwrap();
            region.copy_to_hinted(from, LEN, (&region, to), hint).unwrap();
            let mut copied = vec![0; LEN];
            region.copy_out(to, &mut copied).unwrap();
            assert!(copied == bytes, "from {from} to {to}, {hint:?}");
        }
    }
}

#[test]
fn whoever_replaces_pages_does_not_wait_for_a_long_copy() {
    const LEN: usize = 64 << 20;
    let (region, pages) = region(LEN);
    let (base, bytes) = (region.address_of(0, LEN).unwrap(), vec![1; LEN]);
    // Other load on the machine may delay the replacement once, but not in each of 50 rounds.
    let overtaken = (0..50).any(|_| {
        region.copy_in(0, &[0]).unwrap();
        region.copy_in(LEN - 1, &[0]).unwrap();
        std::thread::scope(|scope| {
            let copied = scope.spawn(|| region.copy_in(0, &bytes).unwrap());
            let mut byte = [0];
            while byte == [0] && !copied.is_finished() {
                region.copy_out(0, &mut byte).unwrap();
            }
            let page = Pages::around(0..1);
            // SAFETY: the page is mapped, and `copy_in` holds the pages while it writes them, so no write
            // is lost.
            unsafe { pages.replace(base, std::slice::from_ref(&page), true) }.unwrap();
            region.copy_out(LEN - 1, &mut byte).unwrap();
            byte == [0]
        })
    });
    assert!(overtaken, "it waits for all of the copy");
}
