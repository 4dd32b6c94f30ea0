//! Replacement pages: announced in order to every peer that has the memory, and mapped over the former ones.

use rustix::fs::{MemfdFlags, SealFlags};

use super::super::super::segment::READ_WRITE;
use super::owners::{Owner, borrowed, good, say, welcome};
use super::*;
use crate::memory::Mapping;

/// Memory whose pages can be replaced, and its announcement.
fn replaceable(pages: u64) -> (Mapping, Announcement) {
    let memory = Mapping::allocate((pages * page()) as usize).unwrap();
    let backing = memory.backing().unwrap();
    let announced = Announcement {
        id: backing.id,
        len: backing.bytes,
        memfd: Arc::clone(&backing.memfd),
        patches: Vec::new(),
    };
    (memory, announced)
}

fn page() -> u64 {
    rustix::param::page_size() as u64
}

#[expect(unsafe_code, reason = "nobody else has the memory")]
fn replace(memory: &Mapping, range: std::ops::Range<u64>) -> Vec<Patch> {
    let pages = &memory.backing().unwrap().pages;
    let before = pages.version();
    // SAFETY: the memory is mapped at that address, and nothing writes it, so no byte is lost.
    unsafe { pages.replace(memory.as_ptr(), &[range], true) }.unwrap();
    pages.patches(before)
}

#[expect(unsafe_code, reason = "looks at a byte of a mapping")]
fn first_of(segment: &Segment, page_of: u64) -> u8 {
    // SAFETY: the page is within the segment's mapping, which lives, so the read is in bounds.
    unsafe { segment.as_ptr().add((page_of * page()) as usize).read_volatile() }
}

#[expect(unsafe_code, reason = "nobody else has the memory")]
fn write(memory: &Mapping, page_of: u64, byte: u8) {
    // SAFETY: the page is within the memory, which lives and which only this thread writes.
    unsafe { memory.as_ptr().add((page_of * page()) as usize).write_volatile(byte) }
}

#[test]
fn pages_that_are_replaced_are_mapped_by_those_that_were_told_and_by_those_that_come_later() {
    let (mut a, mut b) = pair();
    let (memory, mut announced) = replaceable(3);
    b.tell(Change::Announce(announced.clone()));
    until(&mut a, &mut b, |a, _| a.state.mapped.len() == 1);
    for (index, at) in [0, 2, 2].into_iter().enumerate() {
        let patches = replace(&memory, at * page()..(at + 1) * page());
        write(&memory, at, 5 + index as u8);
        b.tell(Change::Patch { id: announced.id, patches: patches.clone() });
    }
    let segment = Arc::clone(&a.state.mapped[0].1);
    until(&mut a, &mut b, |_, _| segment.version() == 3);
    assert_eq!([0, 1, 2].map(|at| first_of(&segment, at)), [5, 0, 7]);
    announced.patches = memory.backing().unwrap().pages.patches(0);
    b.state.memories = vec![announced];
    let mut late = End::new();
    b.take(&late);
    late.connect(b.gid).unwrap();
    until(&mut late, &mut b, |late, _| late.state.mapped.iter().any(|(_, it)| it.version() == 3));
    assert_eq!([0, 1, 2].map(|at| first_of(&late.state.mapped[0].1, at)), [5, 0, 7]);
}

#[test]
fn what_two_queue_pairs_share_is_mapped_once_whoever_hears_first() {
    let (mut a, mut b) = pair();
    let (memory, announced) = replaceable(2);
    let shared = Arc::new(Segment::map(announced.memfd.as_fd(), announced.len, READ_WRITE).unwrap());
    a.state.shares = Some((announced.id, Arc::clone(&shared)));
    b.tell(Change::Announce(announced.clone()));
    let patches = replace(&memory, page()..2 * page());
    let Patch { version, offset, bytes, memfd } = &patches[0];
    shared.patch(memfd.as_fd(), *version, (*offset, *bytes)).unwrap();
    write(&memory, 1, 9);
    b.tell(Change::Patch { id: announced.id, patches: patches.clone() });
    b.tell(Change::Forget(announced.id));
    until(&mut a, &mut b, |a, _| a.state.forgotten == [announced.id]);
    assert!(a.state.over.is_empty(), "{:?}", a.state.over);
    assert_eq!((shared.version(), first_of(&shared, 1)), (1, 9));
}

#[test]
fn pages_of_memory_that_went_before_a_peer_took_it_are_not_told_and_take_no_room() {
    let (mut a, mut b) = pair();
    // More notices than a socket takes at once.
    for id in 0..1000 {
        b.tell(Change::Announce(memory(id)));
    }
    let (memory, announced) = replaceable(1);
    b.tell(Change::Announce(announced.clone()));
    let patches = replace(&memory, 0..page());
    for _ in 0..64 {
        b.tell(Change::Patch { id: announced.id, patches: patches.clone() });
    }
    b.tell(Change::Forget(announced.id));
    let key = b.rendezvous.writers[b.qp];
    let Kind::InvitedWriter(writer) = &b.rendezvous.sockets[key].kind else { panic!("no writer") };
    let waiting = format!("{writer:?}");
    assert!(waiting.contains("Memory") && !waiting.contains("Patch"), "pages of what is gone wait");
    drop((memory, announced, patches));
    until(&mut a, &mut b, |a, _| a.state.mapped.len() == 1000);
}

#[test]
fn that_pages_are_what_they_were_is_told_once_and_only_of_memory_that_there_is() {
    let (mut a, mut b) = pair();
    // More notices than a socket takes at once.
    for id in 0..1000 {
        b.tell(Change::Announce(memory(id)));
    }
    for id in [998, 999, 998] {
        b.tell(Change::Resume(id));
    }
    b.tell(Change::Forget(999));
    until(&mut a, &mut b, |a, _| !a.state.resumed.is_empty());
    b.tell(Change::Resume(7));
    until(&mut a, &mut b, |a, _| a.state.resumed.last() == Some(&7));
    assert_eq!(a.state.resumed, [998, 7]);
}

/// The reason that `a` reports about an owner that announces a memory of two pages and then sends `said`.
fn reason(said: Frame, descriptors: &[BorrowedFd<'_>]) -> String {
    let (mut a, owner) = (End::new(), Owner::new());
    let socket = owner.meet(&mut a);
    say(&socket, &welcome(), &borrowed(&good()));
    let (memfd, len) = sent(&Segment::create("test", 2 * page() as usize).unwrap());
    say(&socket, &Frame::Memory { id: 1, len }.encode(), &[memfd.as_fd()]);
    a.until(|a| a.state.mapped.len() == 1);
    say(&socket, &said.encode(), descriptors);
    a.until(|a| !a.state.over.is_empty());
    assert_eq!(a.state.mapped[0].1.version(), 0, "it was mapped all the same");
    a.state.over.remove(0)
}

#[test]
fn whatever_is_wrong_with_pages_ends_the_connection_and_says_why() {
    let page = page();
    let fine = sent(&Segment::create("test", page as usize).unwrap()).0;
    let fine = [fine.as_fd()];
    let patch = |id, offset, len, version| Frame::Patch { id, offset, len, version };
    assert_eq!(
        reason(patch(2, 0, page, 1), &fine),
        "the peer replaced pages of a memory that it did not announce"
    );
    for (offset, len) in [(2 * page, page), (u64::MAX - page + 1, page), (8, page)] {
        assert_eq!(
            reason(patch(1, offset, len, 1), &fine),
            "pages that the peer handed over: the range is not made of whole pages within the memory",
            "{offset:#x}"
        );
    }
    assert_eq!(
        reason(patch(1, 0, page, 2), &fine),
        "pages that the peer handed over: version 2 of the pages came after version 0, out of order"
    );
    assert_eq!(
        reason(patch(1, 0, 2 * page, 1), &fine),
        format!(
            "pages that the peer handed over: the memfd has {page} bytes instead of the {} that the peer announced",
            2 * page
        )
    );
    assert_eq!(reason(patch(1, 0, page, 1), &[]), "a frame came with 0 descriptors instead of 1");
    let (socket, _other) = std::os::unix::net::UnixStream::pair().unwrap();
    assert_eq!(
        reason(patch(1, 0, page, 1), &[socket.as_fd()]),
        "pages that the peer handed over: the descriptor is not a memfd of ordinary pages"
    );
    let unsealed = rustix::fs::memfd_create("test", MemfdFlags::ALLOW_SEALING).unwrap();
    rustix::fs::ftruncate(&unsealed, page).unwrap();
    rustix::fs::fcntl_add_seals(&unsealed, SealFlags::GROW).unwrap();
    assert_eq!(
        reason(patch(1, 0, page, 1), &[unsealed.as_fd()]),
        "pages that the peer handed over: the memfd is not sealed against shrinking and growing"
    );
}
