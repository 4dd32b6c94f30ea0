//! Limits of the process, each reached in a process of its own: the same test, run again by itself.

#![expect(unsafe_code, reason = "uses mappings up")]

use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::owners::{Owner, say};
use super::*;

/// Runs `body` in a process that runs nothing else.
fn alone(name: &str, body: impl FnOnce()) {
    const ALONE: &str = "RDMA_TEST_ALONE";
    if std::env::var_os(ALONE).is_some() {
        return body();
    }
    let test = format!("{}::{name}", module_path!().split_once("::").unwrap().1);
    let mut again = std::process::Command::new(std::env::current_exe().unwrap());
    let output = again.args([&test, "--exact", "--test-threads=1"]).env(ALONE, "1").output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && said.contains("1 passed"),
        "{said}{}",
        String::from_utf8_lossy(&output.stderr)
    );
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
        // What had come of the invitation is closed, and so are the connection and the pidfd.
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
        assert!(said.starts_with("memory that it handed over: the memfd cannot be mapped"), "{said}");
    });
}

/// Takes as many mappings as a process may have.
fn take_mappings() {
    let page = rustix::param::page_size();
    // Shared ones are never joined with their neighbours.
    let flags = MapFlags::SHARED | MapFlags::NORESERVE;
    // SAFETY: a mapping at an address of the kernel's choice overlaps nothing, and is kept for ever.
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
