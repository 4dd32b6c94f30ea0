//! Pages replaced and put back, and everything that prevents it. Limits are tested in a process of their own.

use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};

use rustix::mm::{Advice, mmap};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::*;

/// Private anonymous pages whose bytes differ from their neighbours; unmapped on drop.
struct TestPages(AnonymousPages);

impl TestPages {
    fn new(pages: usize) -> Self {
        let mut made = Self(AnonymousPages::map(pages * page(), WRITABLE).unwrap());
        made.bytes().iter_mut().enumerate().for_each(|(at, byte)| *byte = byte_at(at));
        made
    }

    fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: the pages are mapped for reading and writing, and no other reference exists, because `&mut self`
        // excludes those of the test.
        unsafe { std::slice::from_raw_parts_mut(self.0.base.as_ptr(), self.0.len) }
    }

    fn at(&self, page_index: usize) -> NonNull<u8> {
        // SAFETY: the tests pass page indices up to the number of pages, so the address is at most one past
        // the end.
        unsafe { self.0.base.add(page_index * page()) }
    }

    fn range(&self) -> Range<usize> {
        let start = self.0.base.as_ptr().addr();
        start..start + self.0.len
    }

    fn replace(&self, pages: Range<usize>) -> Result<ReplacedPages, Unshared> {
        // SAFETY: the range is inside the mapping, which outlives the result; no other thread has its
        // address, so none accesses it.
        let replaced = unsafe { ReplacedPages::replace(self.at(pages.start), pages.len() * page()) };
        replaced.map_err(|refused| {
            assert!(refused.left.is_none());
            refused.why
        })
    }

    /// Returns the number of mappings that hold some of the bytes. The first and the last may extend beyond
    /// them.
    fn mappings(&self) -> usize {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let address = |text: &str| usize::from_str_radix(text, 16).unwrap();
        let held = |line: &&str| {
            let (start, end) = line.split_once(' ').unwrap().0.split_once('-').unwrap();
            address(start) < self.range().end && address(end) > self.range().start
        };
        maps.lines().filter(held).count()
    }

    fn assert_untouched(&mut self) {
        assert_eq!(vma::check(self.range()), Ok(()));
        self.assert_bytes();
    }

    fn assert_bytes(&mut self) {
        let differs = self.bytes().iter().enumerate().position(|(at, byte)| *byte != byte_at(at));
        assert_eq!(differs, None);
    }
}

fn page() -> usize {
    rustix::param::page_size()
}

fn byte_at(at: usize) -> u8 {
    (at % 251) as u8 ^ (at / page()) as u8
}

fn alone(name: &str, body: impl FnOnce()) {
    crate::alone::alone(module_path!(), name, body);
}

pub(in super::super) fn limit(resource: Resource, to: u64) -> Rlimit {
    let before = getrlimit(resource);
    setrlimit(resource, Rlimit { current: Some(to), ..before }).unwrap();
    before
}

#[test]
fn what_is_written_at_the_address_is_in_the_memfd_and_stays_when_the_pages_are_put_back() {
    let mut pages = TestPages::new(5);
    let mut replaced = pages.replace(1..4).unwrap();
    assert!(replaced.len == 3 * page() && replaced.backing().bytes == 3 * page() as u64);
    assert_eq!(vma::check(pages.range()), Err(Unshared::Shared));
    let (memfd, mut bytes) = (replaced.backing().memfd.clone(), vec![0; 3 * page()]);
    rustix::io::pread(&memfd, &mut bytes, 0).unwrap();
    assert_eq!(bytes, pages.bytes()[page()..4 * page()]);
    pages.bytes()[2 * page()] ^= 0xff;
    rustix::io::pwrite(&memfd, &[!byte_at(3 * page())], 2 * page() as u64).unwrap();
    replaced.put_back().unwrap();
    for changed in [2, 3] {
        assert_eq!(pages.bytes()[changed * page()], !byte_at(changed * page()), "page {changed}");
        pages.bytes()[changed * page()] ^= 0xff;
    }
    pages.assert_untouched();
    rustix::io::pread(&memfd, &mut bytes, 0).unwrap();
    assert!(bytes.iter().all(|byte| *byte == 0), "the memfd still takes up memory");
}

/// A late write of a stopped peer goes to the memfd's old page, and is not put back. A write to the page that
/// replaced it is.
#[test]
fn pages_that_were_replaced_since_are_put_back_as_they_are_now() {
    let mut pages = TestPages::new(4);
    let mut replaced = pages.replace(0..4).unwrap();
    let backing = replaced.backing().clone();
    let second = page() as u64..2 * page() as u64;
    // SAFETY: the memory is mapped at this address, and nobody writes it meanwhile, so no write is lost.
    unsafe { backing.pages.replace(pages.at(0), std::slice::from_ref(&second), true) }.unwrap();
    let patch = backing.pages.patches(0).remove(0);
    rustix::io::pwrite(&*backing.memfd, &[!byte_at(page())], second.start).unwrap();
    rustix::io::pwrite(&*patch.memfd, &[!byte_at(page() + 1)], 1).unwrap();
    replaced.put_back().unwrap();
    assert_eq!(pages.bytes()[page() + 1], !byte_at(page() + 1));
    pages.bytes()[page() + 1] ^= 0xff;
    pages.assert_untouched();
}

#[test]
fn bytes_of_several_pieces_are_in_order() {
    let mut pages = TestPages::new(9);
    let (begin, len) = (pages.at(1), 7 * page());
    // SAFETY: the pages are the test's own, and no other thread has their address, so none accesses them.
    let replaced =
        unsafe { ReplacedPages::onto(Backing::create(len as u64).unwrap(), begin, len, 3 * page()) };
    let (mut replaced, mut bytes) = (replaced.unwrap(), vec![0; len]);
    rustix::io::pread(&replaced.backing().memfd, &mut bytes, 0).unwrap();
    assert_eq!(bytes, pages.bytes()[page()..8 * page()]);
    replaced.put_back().unwrap();
    pages.assert_untouched();
    let mut large = TestPages::new((2 * PIECE) / page() + 3);
    large.replace(1..(2 * PIECE) / page() + 2).unwrap().put_back().unwrap();
    large.assert_untouched();
    assert_eq!(large.mappings(), 3, "what was put back is one mapping, between the pages beside it");
}

#[test]
fn a_memfd_in_place_cannot_change_its_size() {
    let pages = TestPages::new(1);
    let replaced = pages.replace(0..1).unwrap();
    for len in [0, 2 * page() as u64] {
        assert!(rustix::fs::ftruncate(replaced.backing().memfd.as_fd(), len).is_err());
    }
}

#[test]
fn only_whole_pages_are_replaced() {
    let mut pages = TestPages::new(3);
    let page = page();
    for (begin, len) in [(1, page), (0, page + 1), (0, page - 1), (page / 2, page / 2)] {
        // SAFETY: the range is inside the mapping, and no other thread has its address, so none accesses it.
        let replaced = unsafe { ReplacedPages::replace(pages.at(0).add(begin), len) };
        assert_eq!(replaced.unwrap_err().why, Unshared::Unaligned { page });
    }
    pages.assert_untouched();
}

/// Changes the second of three pages by `change`, and returns why the three cannot be replaced then.
fn refused(change: impl FnOnce(*mut c_void)) -> Unshared {
    let mut pages = TestPages::new(3);
    change(pages.at(1).as_ptr().cast());
    let unshared = pages.replace(0..3).unwrap_err();
    let (first, last) = (0..page(), 2 * page()..3 * page());
    for at in first.chain(last) {
        assert_eq!(pages.bytes()[at], byte_at(at));
    }
    unshared
}

#[test]
fn what_is_not_ordinary_memory_stays_as_it_is() {
    let map = |at, rights, flags, fd: &OwnedFd| {
        // SAFETY: replaces a page of the test's own, which nobody else has mapped, so no other memory is
        // affected.
        unsafe { mmap(at, page(), rights, MapFlags::FIXED | flags, fd, 0) }.unwrap();
    };
    let file = std::fs::File::open(std::env::current_exe().unwrap()).unwrap().into();
    let memfd = rustix::fs::memfd_create("test", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
    rustix::fs::ftruncate(&memfd, page() as u64).unwrap();
    assert_eq!(refused(|at| map(at, WRITABLE, MapFlags::PRIVATE, &file)), Unshared::File);
    assert_eq!(refused(|at| map(at, WRITABLE, MapFlags::SHARED, &memfd)), Unshared::Shared);
    for rights in [rustix::mm::MprotectFlags::READ, rustix::mm::MprotectFlags::empty()] {
        let protect = |at| {
            // SAFETY: a page of the test's own, which the test never reads afterwards.
            unsafe { rustix::mm::mprotect(at, page(), rights) }.unwrap();
        };
        assert_eq!(refused(protect), Unshared::Protected);
    }
    // SAFETY: a page of the test's own, which the test never reads afterwards.
    assert_eq!(refused(|at| unsafe { rustix::mm::munmap(at, page()) }.unwrap()), Unshared::Protected);
    for (advice, said) in [(Advice::LinuxDontFork, "MADV_DONTFORK"), (Advice::LinuxDontDump, "MADV_DONTDUMP")]
    {
        // SAFETY: the advice affects only children and core dumps, not the bytes.
        let text = refused(|at| unsafe { rustix::mm::madvise(at, page(), advice) }.unwrap()).to_string();
        assert!(text.contains(said), "{text}");
    }
    // SAFETY: locking a page of the test's own never changes its bytes.
    let text = refused(|at| unsafe { rustix::mm::mlock(at, page()) }.unwrap()).to_string();
    assert!(text.contains("mlock"), "{text}");
}

#[test]
fn what_fails_midway_leaves_every_byte_where_it_was() {
    let mut pages = TestPages::new(4);
    let backing = Backing::create(2 * page() as u64).unwrap();
    // SAFETY: the pages are the test's own, and no other thread has their address, so none accesses them.
    let refused = unsafe { ReplacedPages::onto(backing, pages.at(0), pages.0.len, page()) }.unwrap_err();
    assert_eq!(refused.why, Unshared::Denied { what: "copying to a memfd", errno: libc::EPERM });
    assert!(refused.left.is_none());
    pages.assert_untouched();
}

#[test]
fn a_forked_child_puts_pages_back_for_itself_alone() {
    let mut pages = TestPages::new(2);
    let mut replaced = pages.replace(0..2).unwrap();
    // SAFETY: the child only makes system calls and copies, and ends, so it needs no lock that another thread
    // may hold.
    let child = unsafe { libc::fork() };
    assert!(child >= 0, "{}", std::io::Error::last_os_error());
    if child == 0 {
        let kept = replaced.put_back().is_ok()
            && pages.bytes().iter().enumerate().all(|(at, byte)| *byte == byte_at(at));
        pages.bytes().fill(0);
        // SAFETY: ends the child at once, so that it never runs the parent's destructors.
        unsafe { libc::_exit(i32::from(!kept)) };
    }
    let mut status = 0;
    // SAFETY: `child` is a child of this process and `status` a local, so the call writes only `status`.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    assert_eq!(status, 0, "the child lacks bytes");
    let differs = pages.bytes().iter().enumerate().position(|(at, byte)| *byte != byte_at(at));
    assert_eq!(differs, None, "the child changed its parent's bytes");
    replaced.put_back().unwrap();
    pages.assert_untouched();
}

#[test]
fn a_process_without_descriptors_keeps_its_pages_and_is_told_the_limit() {
    alone("a_process_without_descriptors_keeps_its_pages_and_is_told_the_limit", || {
        let mut pages = TestPages::new(2);
        let before = limit(Resource::Nofile, 3);
        let text = pages.replace(0..2).unwrap_err().to_string();
        setrlimit(Resource::Nofile, before).unwrap();
        assert!(text.contains("ulimit -n"), "{text}");
        pages.assert_untouched();
        pages.replace(0..2).unwrap().put_back().unwrap();
        pages.assert_untouched();
    });
}

#[test]
fn a_process_that_may_not_make_such_a_file_keeps_its_pages_and_lives() {
    alone("a_process_that_may_not_make_such_a_file_keeps_its_pages_and_lives", || {
        let mut pages = TestPages::new(2);
        limit(Resource::Fsize, page() as u64);
        let text = pages.replace(0..2).unwrap_err().to_string();
        assert!(text.contains("ulimit -f"), "{text}");
        pages.assert_untouched();
    });
}

#[test]
fn a_process_without_mappings_left_keeps_its_pages_and_is_told_the_limit() {
    alone("a_process_without_mappings_left_keeps_its_pages_and_is_told_the_limit", || {
        let mut pages = TestPages::new(8);
        let mut taken = Vec::with_capacity(1 << 20);
        // Each pair of pages is a mapping of its own, because a page that cannot be read lies between it and
        // the next one.
        let full = loop {
            if taken.len() == taken.capacity() {
                break false;
            }
            let Ok(fresh) = AnonymousPages::map(2 * page(), WRITABLE) else { break true };
            // SAFETY: the page is the test's own, and the test never reads it.
            let split = unsafe {
                let none = rustix::mm::MprotectFlags::empty();
                rustix::mm::mprotect(fresh.base.as_ptr().cast(), page(), none)
            };
            taken.push(fresh);
            if split.is_err() {
                break true;
            }
        };
        let unshared = full.then(|| pages.replace(2..6));
        drop(taken);
        if let Some(unshared) = unshared {
            let denied = Unshared::Denied { what: "mmap", errno: libc::ENOMEM };
            assert_eq!(unshared.unwrap_err(), denied);
        }
        pages.assert_untouched();
    });
}

#[test]
fn pages_that_cannot_be_put_back_keep_their_bytes() {
    alone("pages_that_cannot_be_put_back_keep_their_bytes", || {
        let mut pages = TestPages::new(4);
        let mut replaced = pages.replace(0..4).unwrap();
        let before = limit(Resource::As, page() as u64);
        let refused = replaced.put_back();
        setrlimit(Resource::As, before).unwrap();
        assert_eq!(refused, Err(Denied { what: "mmap", errno: Errno::NOMEM }));
        assert_eq!(vma::check(pages.range()), Err(Unshared::Shared));
        pages.assert_bytes();
        replaced.put_back().unwrap();
        pages.assert_untouched();
    });
}

#[test]
fn what_is_unmapped_before_pages_are_moved_there_is_not_lost_when_they_are_not() {
    let mut pages = TestPages::new(4);
    let mut replaced = pages.replace(1..4).unwrap();
    let done = replaced.put_back_by(&|_, len, to| {
        // SAFETY: the pages are the test's own, and nobody reads them before `fill_hole` maps new ones, so no
        // access faults.
        unsafe { rustix::mm::munmap(to, len) }.unwrap();
        Err(Errno::NOMEM)
    });
    assert_eq!((done, replaced.len), (Ok(()), 0));
    pages.assert_untouched();
}

#[test]
fn what_cannot_be_moved_stays_on_shared_pages_and_is_put_back_later() {
    let mut pages = TestPages::new(4);
    let mut replaced = pages.replace(0..4).unwrap();
    let refused = replaced.put_back_by(&|_, _, _| Err(Errno::NOMEM));
    assert_eq!((refused, replaced.len), (Err(Denied { what: "mremap", errno: Errno::NOMEM }), 4 * page()));
    assert_eq!(vma::check(pages.range()), Err(Unshared::Shared));
    pages.assert_bytes();
    replaced.put_back().unwrap();
    pages.assert_untouched();
}

#[test]
fn a_child_keeps_the_bytes_that_its_parent_puts_back() {
    let mut pages = TestPages::new(2);
    let mut replaced = pages.replace(0..2).unwrap();
    let (told, tell) = rustix::pipe::pipe().unwrap();
    // SAFETY: the child only makes system calls and compares, and ends, so it needs no lock that another
    // thread may hold.
    let child = unsafe { libc::fork() };
    assert!(child >= 0, "{}", std::io::Error::last_os_error());
    if child == 0 {
        drop(tell);
        let _ = rustix::io::read(&told, &mut [0]);
        let kept = pages.bytes().iter().enumerate().all(|(at, byte)| *byte == byte_at(at));
        // SAFETY: ends the child at once, so that it never runs the parent's destructors.
        unsafe { libc::_exit(i32::from(!kept)) };
    }
    replaced.put_back().unwrap();
    drop((told, tell));
    let mut status = 0;
    // SAFETY: `child` is a child of this process and `status` a local, so the call writes only `status`.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    assert_eq!(status, 0, "the child lacks bytes");
    pages.assert_untouched();
}
