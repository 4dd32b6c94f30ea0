//! Memories that are mapped, and the one found last when it changes.

use rustix::mm::ProtFlags;

use super::super::segment::READ_WRITE;
use super::*;

#[test]
fn only_what_is_mapped_is_found() {
    let own = Segment::create("test", 1).unwrap();
    let len = own.len() as u64;
    let map =
        |protection| Arc::new(Segment::map(own.memfd().unwrap(), own.len() as u64, protection).unwrap());
    let mut memories = PeerMemories::default();
    let writable = map(READ_WRITE);
    let base = writable.as_ptr().as_ptr() as usize;
    memories.add(7, writable);
    memories.add(8, map(ProtFlags::READ));
    let at = |id, version, offset, len, written| {
        memories.locate((id, version), offset, len, written).map(|at| at.as_ptr() as usize)
    };
    assert_eq!(at(7, 0, 0, len as u32, true), Some(base));
    assert_eq!(at(7, 0, len - 1, 1, true), Some(base + len as usize - 1));
    for (offset, len) in [(len - 1, 2), (len, 1), (u64::MAX, 1), (0, u32::MAX)] {
        assert_eq!(at(7, 0, offset, len, true), None, "{offset} {len}");
    }
    assert_eq!(at(7, 1, 0, 1, true), None, "pages that were replaced");
    assert!(memories.has(7, 0) && !memories.has(7, 1));
    assert_eq!(at(9, 0, 0, 1, true), None);
    assert!(at(8, 0, 0, 1, false).is_some() && at(8, 0, 0, 1, true).is_none());
}

#[test]
fn what_was_found_last_is_not_found_once_it_is_gone_or_another() {
    let map = || Arc::new(Segment::create("test", 1).unwrap());
    let (before, after) = (map(), map());
    let mut memories = PeerMemories::default();
    memories.add(7, Arc::clone(&before));
    assert_eq!(memories.locate((7, 0), 0, 1, true), Some(before.as_ptr()));
    memories.add(7, Arc::clone(&after));
    assert_eq!(memories.locate((7, 0), 0, 1, true), Some(after.as_ptr()));
    memories.remove(7);
    assert_eq!(memories.locate((7, 0), 0, 1, true), None);
}

#[test]
fn what_was_found_last_has_the_pages_that_it_was_given_since() {
    let (own, pages) = (Segment::create("test", 1).unwrap(), Segment::create("test", 1).unwrap());
    let len = own.len() as u64;
    let segment = Arc::new(Segment::map(own.memfd().unwrap(), len, READ_WRITE).unwrap());
    let mut memories = PeerMemories::default();
    memories.add(7, Arc::clone(&segment));
    let at = |version| memories.locate((7, version), 0, 1, true);
    assert_eq!((at(0), at(1)), (Some(segment.as_ptr()), None));
    segment.patch(pages.memfd().unwrap(), 1, (0, len)).unwrap();
    assert_eq!((at(0), at(1), at(2)), (Some(segment.as_ptr()), Some(segment.as_ptr()), None));
}
