//! Limits of the process, each reached in a process of its own: this executable runs itself again for one test.

#![expect(unsafe_code, reason = "uses mappings up")]

use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::owners::{Owner, borrowed, good, say, welcome};
use super::*;
use crate::backend::soft::wire::shm::segment::{PEER_MAPPINGS, READ_WRITE};

fn alone(name: &str, body: impl FnOnce()) {
    crate::alone::alone(module_path!(), name, body);
}

fn open_descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

fn limit(resource: Resource, to: u64) -> Rlimit {
    let before = getrlimit(resource);
    setrlimit(resource, Rlimit { current: Some(to), ..before }).unwrap();
    before
}

/// Takes all descriptors that a small limit leaves, until it is dropped.
struct Taken {
    before: Rlimit,
    taken: Vec<OwnedFd>,
}

impl Taken {
    fn all() -> Self {
        let before = limit(Resource::Nofile, open_descriptors() as u64 + 64);
        let taken = std::iter::from_fn(|| eventfd(0, EventfdFlags::CLOEXEC).ok());
        Self { before, taken: taken.collect() }
    }

    /// Takes all descriptors but the last quarter.
    fn but_a_quarter() -> Self {
        let mut taken = Self::all();
        let quarter = getrlimit(Resource::Nofile).current.unwrap() / 4;
        taken.taken.truncate(taken.taken.len() - quarter as usize);
        taken
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.taken.clear();
        setrlimit(Resource::Nofile, self.before).unwrap();
    }
}

#[test]
fn a_requester_without_descriptors_left_says_so_and_leaks_none() {
    alone("a_requester_without_descriptors_left_says_so_and_leaks_none", || {
        let (mut a, owner) = (End::new(), Owner::new());
        let [mailbox, keys] = [1, 2].map(|_| sent(&Segment::create("test", 4096).unwrap()).0);
        let bell = doorbell();
        let socket = owner.meet(&mut a);
        let before = open_descriptors();
        say(
            &socket,
            &Frame::Welcome { mailbox: 4096, keys: 4096 }.encode(),
            &[&mailbox, &keys, &bell].map(AsFd::as_fd),
        );
        let taken = Taken::all();
        a.until(|a| a.state.over.len() == 1);
        // The descriptors of the invitation and of the connection are closed again.
        let free: Vec<_> = std::iter::from_fn(|| eventfd(0, EventfdFlags::CLOEXEC).ok()).collect();
        assert_eq!(free.len(), 2);
        let error = a.connect(owner.gid).unwrap_err().to_string();
        drop((taken, free));
        assert_eq!(open_descriptors(), before - 2);
        for said in [&a.state.over[0], &error] {
            assert!(said.contains("ulimit -n"), "{said}");
        }
    });
}

#[test]
fn the_last_descriptors_are_left_to_the_other_wire() {
    alone("the_last_descriptors_are_left_to_the_other_wire", || {
        let (mut a, mut b) = (End::new(), End::new());
        b.take(&a);
        let taken = Taken::but_a_quarter();
        // A GID that nothing on this host listens for is reported as such, whatever the descriptors.
        for (at_requester, at_responder) in [(true, false), (false, true), (false, false)] {
            (a.state.other_wire, b.state.other_wire) = (at_requester, at_responder);
            assert!(matches!(a.connect(fresh_gid()), Err(UnmappedReason::NoNeighbour)));
            let met = a.connect(b.gid);
            assert_eq!(met.is_err(), at_requester);
            match met {
                Err(reason) => {
                    assert!(reason.to_string().contains("ulimit -n") && !reason.is_departure(), "{reason}")
                }
                Ok(()) => until(&mut a, &mut b, |a, _| a.state.over.len() + a.state.invited.len() == 1),
            }
            let told = if at_responder {
                "the peer refused: it has no descriptors or memory left (error 24): raise its limits"
            } else {
                ""
            };
            assert_eq!(a.state.over.pop().unwrap_or_default(), told);
        }
        assert_eq!(a.state.invited.len(), 1);
        drop(taken);
        (a.state.other_wire, b.state.other_wire) = (true, true);
        a.connect(b.gid).unwrap();
        until(&mut a, &mut b, |a, _| a.state.invited.len() == 2);
    });
}

#[test]
fn who_cannot_be_watched_for_want_of_a_descriptor_says_so() {
    alone("who_cannot_be_watched_for_want_of_a_descriptor_says_so", || {
        let (mut a, b) = (End::new(), End::new());
        let mut taken = Taken::all();
        taken.taken.pop();
        let error = a.connect(b.gid).unwrap_err().to_string();
        drop(taken);
        assert!(error.contains("ulimit -n"), "{error}");
    });
}

#[test]
fn a_listener_without_descriptors_left_pauses_and_goes_on() {
    alone("a_listener_without_descriptors_left_pauses_and_goes_on", || {
        let mut b = End::new();
        let waiting = listener::connect(b.gid).unwrap();
        let taken = Taken::all();
        b.until(|b| b.rendezvous.accept_paused.is_some());
        drop(taken);
        assert!(b.rendezvous.strangers.is_empty());
        let at = b.rendezvous.poll_timeout().unwrap();
        b.rendezvous.handle_timeout(at, &mut b.state);
        b.until(|b| b.rendezvous.strangers.len() == 1);
        drop(waiting);
        b.until(|b| b.rendezvous.strangers.is_empty());
        assert_works(&mut b);
    });
}

/// More descriptors in flight than this user may have, until it is dropped.
struct Crowd {
    ends: Option<[OwnedFd; 2]>,
}

impl Crowd {
    fn new() -> Self {
        use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
        // A privileged process has no such limit.
        let mut own = rustix::thread::capabilities(None).unwrap();
        own.effective = rustix::thread::CapabilitySet::empty();
        rustix::thread::set_capabilities(None, own).unwrap();
        Self::unlimit();
        let (kind, flags) = (SocketType::SEQPACKET, SocketFlags::NONBLOCK);
        let (here, there) = socketpair(AddressFamily::UNIX, kind, flags, None).unwrap();
        let bell = doorbell();
        let send = || descriptors::send(here.as_fd(), &Frame::Memory { id: 1, len: 1 }, &[&bell]).unwrap();
        let most = open_descriptors() + 64;
        for _ in 0..=most {
            assert_eq!(send(), Sent::Whole);
        }
        limit(Resource::Nofile, most as u64);
        assert_eq!(send(), Sent::Crowded);
        Self { ends: Some([here, there]) }
    }

    fn unlimit() {
        limit(Resource::Nofile, getrlimit(Resource::Nofile).maximum.unwrap());
    }
}

impl Drop for Crowd {
    fn drop(&mut self) {
        self.ends = None;
        Self::unlimit();
    }
}

#[test]
fn a_requester_that_meets_a_crowd_is_let_in_once_it_is_gone() {
    alone("a_requester_that_meets_a_crowd_is_let_in_once_it_is_gone", || {
        let (mut a, mut b) = (End::new(), End::new());
        b.take(&a);
        let crowd = Crowd::new();
        a.connect(b.gid).unwrap();
        until(&mut a, &mut b, |_, b| b.rendezvous.crowded.is_some());
        assert!(a.state.over.is_empty() && b.rendezvous.strangers.len() == 1);
        drop(crowd);
        let at = b.rendezvous.poll_timeout().unwrap();
        b.rendezvous.handle_timeout(at, &mut b.state);
        until(&mut a, &mut b, |a, _| a.state.invited.len() == 1);
        assert!(b.rendezvous.strangers.is_empty() && b.rendezvous.crowded.is_none());
    });
}

#[test]
fn a_requester_that_meets_a_crowd_for_long_is_told_to_take_another_wire() {
    alone("a_requester_that_meets_a_crowd_for_long_is_told_to_take_another_wire", || {
        let (mut a, mut b) = (End::new(), End::new());
        b.take(&a);
        let _crowd = Crowd::new();
        a.connect(b.gid).unwrap();
        until(&mut a, &mut b, |_, b| b.rendezvous.crowded.is_some());
        while let Some(at) = b.rendezvous.crowded {
            assert!(at < Instant::now() + 2 * CROWD_WAIT, "it waits without end");
            b.rendezvous.handle_timeout(at, &mut b.state);
        }
        until(&mut a, &mut b, |a, _| a.state.over.len() == 1);
        assert_eq!(
            a.state.over,
            ["the peer refused: it has no descriptors or memory left (error 109): raise its limits"]
        );
        assert!(b.rendezvous.strangers.is_empty());
    });
}

#[test]
fn a_requester_without_address_space_left_says_so() {
    alone("a_requester_without_address_space_left_says_so", || {
        const BYTES: u64 = 1 << 40;
        let (mut a, owner) = (End::new(), Owner::new());
        let [mailbox, keys] = [1, 2].map(|_| sent(&Segment::create("test", 4096).unwrap()).0);
        let large = rustix::fs::memfd_create("test", rustix::fs::MemfdFlags::ALLOW_SEALING).unwrap();
        rustix::fs::ftruncate(&large, BYTES).unwrap();
        let seals = rustix::fs::SealFlags::SHRINK | rustix::fs::SealFlags::GROW;
        rustix::fs::fcntl_add_seals(&large, seals).unwrap();
        let bell = doorbell();
        let socket = owner.meet(&mut a);
        say(
            &socket,
            &Frame::Welcome { mailbox: 4096, keys: 4096 }.encode(),
            &[&mailbox, &keys, &bell].map(AsFd::as_fd),
        );
        a.until(|a| a.state.invited.len() == 1);
        limit(Resource::As, 1 << 36);
        say(&socket, &Frame::Memory { id: 1, len: BYTES }.encode(), &[large.as_fd()]);
        a.until(|a| a.state.over.len() == 1);
        let said = &a.state.over[0];
        assert!(said.starts_with("memory that the peer handed over: the memfd cannot be mapped"), "{said}");
    });
}

/// Lets a peer announce one memory; returns the peer's end of the connection.
fn told_of_one(a: &mut End) -> OwnedFd {
    let owner = Owner::new();
    let socket = owner.meet(a);
    say(&socket, &welcome(), &borrowed(&good()));
    let before = a.state.over.len() + a.state.mapped.len();
    let memory = sent(&Segment::create("test", 4096).unwrap()).0;
    say(&socket, &Frame::Memory { id: 1, len: 4096 }.encode(), &[memory.as_fd()]);
    a.until(|a| a.state.over.len() + a.state.mapped.len() > before);
    socket
}

#[test]
fn more_memory_than_is_mapped_of_all_peers_ends_a_connection() {
    alone("more_memory_than_is_mapped_of_all_peers_ends_a_connection", || {
        let none = Segment::peer_mappings();
        // Room for the mailbox, the table and one memory, but not for a second memory.
        PEER_MAPPINGS.fetch_add(MAPPINGS_MAX - 5, std::sync::atomic::Ordering::Relaxed);
        let (mut a, mut other, mut third) = (End::new(), End::new(), End::new());
        let socket = told_of_one(&mut a);
        assert_eq!(Segment::peer_mappings(), MAPPINGS_MAX - 2);
        told_of_one(&mut other);
        assert!(other.state.over[0].starts_with("the peers of this host share more memories"));
        // There is no room for replacement pages of the mapped one, either.
        other.state.invited.clear();
        PEER_MAPPINGS.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let patch = Frame::Patch { id: 1, offset: 0, len: 4096, version: 1 };
        let pages = sent(&Segment::create("test", 4096).unwrap()).0;
        say(&socket, &patch.encode(), &[pages.as_fd()]);
        a.until(|a| a.state.over.len() == 1);
        assert!(a.state.over[0].starts_with("the peers of this host share more memories"));
        // Dropped mappings make room.
        drop(a);
        PEER_MAPPINGS.fetch_sub(1, std::sync::atomic::Ordering::Relaxed);
        told_of_one(&mut third);
        assert!(third.state.over.is_empty());
        drop(third);
        assert_eq!(Segment::peer_mappings(), none + MAPPINGS_MAX - 5);
    });
}

#[test]
fn other_pages_count_until_their_memory_goes() {
    alone("other_pages_count_until_their_memory_goes", || {
        let page = rustix::param::page_size() as u64;
        let memory = Segment::create("test", 2 * page as usize).unwrap();
        let (memfd, len) = sent(&memory);
        let before = Segment::peer_mappings();
        let theirs = Segment::map(memfd.as_fd(), len, READ_WRITE).unwrap();
        let pages = sent(&Segment::create("test", page as usize).unwrap()).0;
        for version in [1, 1, 2] {
            theirs.patch(pages.as_fd(), version, (page, page)).unwrap();
        }
        assert_eq!(Segment::peer_mappings(), before + 5);
        drop(theirs);
        assert_eq!(Segment::peer_mappings(), before);
    });
}

/// Takes as many mappings as a process may have.
fn take_mappings() {
    let page = rustix::param::page_size();
    // Shared mappings are never merged with their neighbours.
    let flags = MapFlags::SHARED | MapFlags::NORESERVE;
    // SAFETY: the kernel chooses a free range, so the mapping replaces nothing.
    while unsafe { mmap_anonymous(std::ptr::null_mut(), page, ProtFlags::empty(), flags) }.is_ok() {}
}

#[test]
fn a_process_without_mappings_left_says_so() {
    alone("a_process_without_mappings_left_says_so", || {
        let (mut a, owner) = (End::new(), Owner::new());
        let [mailbox, keys, memory] = [1, 2, 3].map(|_| sent(&Segment::create("test", 4096).unwrap()).0);
        let bell = doorbell();
        let socket = owner.meet(&mut a);
        let welcome = Frame::Welcome { mailbox: 4096, keys: 4096 }.encode();
        say(&socket, &welcome, &[&mailbox, &keys, &bell].map(AsFd::as_fd));
        a.until(|a| a.state.invited.len() == 1);
        let told = Frame::Memory { id: 1, len: 4096 }.encode();
        take_mappings();
        say(&socket, &told, &[memory.as_fd()]);
        a.until(|a| a.state.over.len() == 1);
        let refused = crate::Memory::allocate(1).unwrap_err().to_string();
        for said in [&a.state.over[0], &refused] {
            assert!(said.contains("vm.max_map_count"), "{said}");
        }
    });
}

#[test]
fn a_process_that_may_not_make_a_file_so_long_says_so() {
    alone("a_process_that_may_not_make_a_file_so_long_says_so", || {
        let before = limit(Resource::Fsize, 8192);
        let refused = Segment::create("test", 8193).unwrap_err().to_string();
        assert!(refused.contains("8192") && refused.contains("ulimit -f"), "{refused}");
        Segment::create("test", 8192).unwrap();
        setrlimit(Resource::Fsize, before).unwrap();
        Segment::create("test", 8193).unwrap();
    });
}

#[test]
fn whatever_a_peer_sends_leaves_no_descriptor_open() {
    alone("whatever_a_peer_sends_leaves_no_descriptor_open", || {
        let (mut a, owner) = (End::new(), Owner::new());
        let many: Vec<_> = (0..16).map(|_| doorbell()).collect();
        let memfd = sent(&Segment::create("test", 4096).unwrap()).0;
        let welcome = Frame::Welcome { mailbox: 4096, keys: 4096 }.encode();
        let memory = Frame::Memory { id: 1, len: 4096 }.encode();
        let (full, some) = (many.iter().map(AsFd::as_fd).collect::<Vec<_>>(), [memfd.as_fd(); 3]);
        let before = open_descriptors();
        for said in [&welcome[..], &welcome[..10], &memory[..], &[9; 64], &[9; 100]] {
            for descriptors in [&full[..], &full[..3], &full[..1], &some, &some[..1], &[]] {
                let socket = owner.meet(&mut a);
                say(&socket, said, descriptors);
                let heard = a.state.over.len();
                drop(socket);
                a.until(|a| a.state.over.len() > heard);
            }
        }
        assert_eq!(open_descriptors(), before);
    });
}
