//! Two mappings of the same pages: their contents, the descriptors that are refused, and what a forked child has.

use super::*;
use crate::memory::OwnProcess;

fn memfd(bytes: u64, seals: SealFlags) -> OwnedFd {
    let memfd = rustix::fs::memfd_create("test", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
    rustix::fs::ftruncate(&memfd, bytes).unwrap();
    rustix::fs::fcntl_add_seals(&memfd, seals).unwrap();
    memfd
}

fn refusal(memfd: impl AsFd, bytes: u64, protection: ProtFlags) -> String {
    Segment::map(memfd.as_fd(), bytes, protection).unwrap_err().to_string()
}

#[test]
fn both_mappings_show_the_same_bytes() {
    let own = Segment::create("test", 5000).unwrap();
    assert_eq!(own.len() % rustix::param::page_size(), 0);
    assert!(own.len() >= 5000);
    let theirs = Segment::map(own.memfd().unwrap(), own.len() as u64, READ_WRITE).unwrap();
    let reader = Segment::map(own.memfd().unwrap(), own.len() as u64, ProtFlags::READ).unwrap();
    assert!(theirs.is_writable() && !reader.is_writable());
    assert!(theirs.memfd().is_none());
    let last = own.len() - 1;
    // SAFETY: both addresses are within live mappings, the first of them writable, and only this thread uses them.
    let read = unsafe {
        theirs.as_ptr().add(last).write(7);
        [own.as_ptr().add(last).read(), reader.as_ptr().add(last).read(), own.as_ptr().read()]
    };
    assert_eq!(read, [7, 7, 0]);
}

#[test]
fn only_what_cannot_go_away_is_mapped() {
    let page = rustix::param::page_size() as u64;
    let (socket, _other) = std::os::unix::net::UnixStream::pair().unwrap();
    assert_eq!(refusal(&socket, page, ProtFlags::READ), "the descriptor is not a memfd of ordinary pages");
    for seals in [SealFlags::empty(), SealFlags::SHRINK, SealFlags::GROW | SealFlags::SEAL] {
        assert_eq!(
            refusal(memfd(page, seals), page, ProtFlags::READ),
            "the memfd is not sealed against shrinking and growing"
        );
    }
    assert_eq!(
        refusal(memfd(page, SEALS), 2 * page, ProtFlags::READ),
        format!("the memfd has {page} bytes instead of the {} that the peer announced", 2 * page)
    );
    assert_eq!(refusal(memfd(0, SEALS), 0, ProtFlags::READ), "the memfd has no bytes");
    let frozen = memfd(page, SEALS | SealFlags::WRITE);
    let refused = refusal(&frozen, page, READ_WRITE);
    assert!(refused.starts_with("the memfd cannot be mapped: "), "{refused}");
    Segment::map(frozen.as_fd(), page, ProtFlags::READ).unwrap();
}

#[test]
fn what_peers_may_only_read_they_cannot_write() {
    let own = Segment::create_for("test", 1, ProtFlags::READ).unwrap();
    let (memfd, len) = (own.memfd().unwrap(), own.len() as u64);
    assert!(matches!(Segment::map(memfd, len, READ_WRITE), Err(MapRefused::Map(_))));
    assert!(rustix::io::write(memfd, &[1]).is_err());
    let theirs = Segment::map(memfd, len, ProtFlags::READ).unwrap();
    // SAFETY: both addresses are within live mappings, the first of them writable, and only this thread uses them.
    let read = unsafe {
        own.as_ptr().write(7);
        theirs.as_ptr().read()
    };
    assert_eq!(read, 7);
}

#[test]
fn other_pages_are_mapped_in_order_and_once_with_the_same_rights() {
    let page = rustix::param::page_size() as u64;
    let own = Segment::create("test", 2 * page as usize).unwrap();
    let theirs = Segment::map(own.memfd().unwrap(), 2 * page, READ_WRITE).unwrap();
    let fresh = memfd(page, SEALS);
    rustix::io::pwrite(&fresh, &[9], 0).unwrap();
    let patch = |version, range| theirs.patch(fresh.as_fd(), version, range);
    assert!(matches!(patch(2, (0, page)), Err(MapRefused::Version { said: 2, known: 0 })));
    assert!(matches!(patch(1, (2 * page, page)), Err(MapRefused::Range)));
    assert!(matches!(patch(1, (0, 0)), Err(MapRefused::Size { .. })));
    // Kernels before 6.12 unmap the range before they find that a sealed memfd cannot be mapped for writing.
    let sealed = memfd(page, SEALS | SealFlags::FUTURE_WRITE);
    assert!(matches!(theirs.patch(sealed.as_fd(), 1, (page, page)), Err(MapRefused::Map(_))));
    assert!(
        !flags(theirs.as_ptr().as_ptr().wrapping_add(page as usize)).is_empty(),
        "the segment has a hole"
    );
    patch(1, (page, page)).unwrap();
    patch(1, (0, 7)).unwrap();
    // SAFETY: the addresses are within live mappings that only this thread writes, so the accesses do not race.
    let read = unsafe {
        theirs.as_ptr().write(5);
        [
            own.as_ptr().read(),
            own.as_ptr().add(page as usize).read(),
            theirs.as_ptr().add(page as usize).read(),
        ]
    };
    assert_eq!((read, theirs.version()), ([5, 0, 9], 1));
    assert_forked_child_has_none(false, own, theirs);
}

#[test]
fn a_made_one_is_sealed_and_never_empty() {
    let own = Segment::create("test", 1).unwrap();
    assert!(rustix::fs::ftruncate(own.memfd().unwrap(), 0).is_err());
    assert!(rustix::fs::ftruncate(own.memfd().unwrap(), 1 << 30).is_err());
    assert!(Segment::create("test", 0).is_err());
    assert!(Segment::create("test", usize::MAX).is_err());
}

#[test]
fn a_forked_child_has_nothing_of_it_and_unmaps_nothing() {
    for own_is_looked_at in [false, true] {
        let own = Segment::create("test", 1).unwrap();
        let theirs = Segment::map(own.memfd().unwrap(), own.len() as u64, ProtFlags::READ).unwrap();
        assert_forked_child_has_none(own_is_looked_at, own, theirs);
    }
}

fn assert_forked_child_has_none(own_is_looked_at: bool, own: Segment, theirs: Segment) {
    let looked_at = if own_is_looked_at { &own } else { &theirs };
    let (at, len) = (looked_at.as_ptr().as_ptr(), looked_at.len());
    let both = OwnProcess::new((own, theirs));
    let mut resident = vec![0u8; len.div_ceil(rustix::param::page_size())];
    // SAFETY: the child makes system calls, drops one value and ends by `_exit`, so it waits for no other thread.
    let child = unsafe { libc::fork() };
    assert!(child >= 0, "{}", io::Error::last_os_error());
    if child == 0 {
        let flags = MapFlags::PRIVATE | MapFlags::FIXED_NOREPLACE;
        // SAFETY: MAP_FIXED_NOREPLACE takes a range only if it is free, so no mapping is replaced.
        let taken = unsafe { rustix::mm::mmap_anonymous(at.cast(), len, ProtFlags::READ, flags) };
        drop(both);
        // SAFETY: `resident` has a byte for each page, so mincore writes in bounds; it returns -1 when a page is not
        // mapped.
        let kept = unsafe { libc::mincore(at.cast(), len, resident.as_mut_ptr()) } == 0;
        // SAFETY: `_exit` ends the child at once, so nothing that belongs to the parent runs in it.
        unsafe { libc::_exit(i32::from(taken.is_err()) + 2 * i32::from(!kept)) };
    }
    let mut status = 0;
    // SAFETY: `child` was forked here, and `status` is a local, so the call writes only to it.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    assert_eq!(status, 0, "the child has the peer's memory, or unmapped what took its place");
}

/// Flags of the mapping at `at`, as /proc/self/smaps names them.
fn flags(at: *const u8) -> String {
    let smaps = std::fs::read_to_string("/proc/self/smaps").unwrap();
    let mut found = false;
    for line in smaps.lines() {
        if let Some(flags) = line.strip_prefix("VmFlags:").filter(|_| found) {
            return flags.to_owned();
        }
        let range = line.split_once(' ').and_then(|(range, _)| range.split_once('-'));
        let bounds = range.map(|(start, end)| [start, end].map(|bound| usize::from_str_radix(bound, 16)));
        if let Some([Ok(start), Ok(end)]) = bounds {
            found = (start..end).contains(&at.addr());
        }
    }
    panic!("{at:?} is not mapped");
}

#[test]
fn what_is_a_peers_is_in_no_dump_of_this_process() {
    let page = rustix::param::page_size();
    let own = Segment::create("test", 2 * page).unwrap();
    let theirs = Segment::map(own.memfd().unwrap(), 2 * page as u64, READ_WRITE).unwrap();
    theirs.patch(memfd(page as u64, SEALS).as_fd(), 1, (page as u64, page as u64)).unwrap();
    let is_left_out = |at: *const u8| flags(at).split_whitespace().any(|flag| flag == "dd");
    assert!(!is_left_out(own.as_ptr().as_ptr()));
    let first = theirs.as_ptr().as_ptr();
    assert!(is_left_out(first), "{}", flags(first));
    assert!(is_left_out(first.wrapping_add(page)), "{}", flags(first.wrapping_add(page)));
}
