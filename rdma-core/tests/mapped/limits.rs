//! Limits of the system, and peers that tamper with the memfds they were given.

use std::fs::{self, File, OpenOptions};
use std::path::PathBuf;

use rdma_core::{
    Access, AckTimeout, Device, Memory, PeerAccess, RetryOptions, Segment, SoftOptions, Wire, Work,
};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::alone::{Log, alone};
use super::auto::{auto, exchange, to};
use super::end::{self, End, soon};
use super::processes::Peer;
use super::raw;

/// Sets a limit, and returns the former one.
fn limit(resource: Resource, to: u64) -> Rlimit {
    let before = getrlimit(resource);
    setrlimit(resource, Rlimit { current: Some(to), ..before }).unwrap();
    before
}

fn open() -> Result<(), String> {
    let options = SoftOptions { wire: crate::WIRE, ..SoftOptions::default() };
    Device::soft(options).open().map(drop).map_err(|error| error.to_string())
}

/// Checks that a write arrives.
fn works() {
    let (mut a, b) = End::pair();
    let target = b.region(8192);
    a.transfer(Work::write(a.filled(8192, 7), target.remote()));
    end::assert_holds(&target, 0..8192, 7);
}

#[test]
fn no_descriptors_left() {
    alone("limits::no_descriptors_left", || {
        // Creates everything that exists once in a process.
        open().unwrap();
        let before = limit(Resource::Nofile, fs::read_dir("/proc/self/fd").unwrap().count() as u64 + 64);
        let mut taken: Vec<_> = std::iter::from_fn(|| File::open("/dev/null").ok()).collect();
        let mut refused = vec![Memory::allocate(8192).unwrap_err().to_string()];
        // The limit may hit any step: the doorbells, the listener, the shared memory.
        while let Err(said) = open() {
            refused.push(said);
            taken.pop().expect("it does not open");
        }
        drop(taken);
        for said in &refused {
            assert!(said.contains("ulimit -n"), "{said}");
        }
        assert!(refused.iter().any(|said| said.contains("listening")), "{refused:?}");
        setrlimit(Resource::Nofile, before).unwrap();
        works();
    });
}

#[test]
fn no_file_may_be_so_long() {
    alone("limits::no_file_may_be_so_long", || {
        let before = limit(Resource::Fsize, 4096);
        let refused = open().unwrap_err();
        assert!(refused.contains("ulimit -f"), "{refused}");
        setrlimit(Resource::Fsize, before).unwrap();
        works();
    });
}

/// Shared memory is in memfds, so neither the presence nor the size of /dev/shm matters.
#[test]
fn dev_shm_is_not_used() {
    alone("limits::dev_shm_is_not_used", || {
        works();
        let (a, b) = End::pair();
        let held = b.region(8192);
        let maps = fs::read_to_string("/proc/self/maps").unwrap();
        assert!(maps.contains("memfd:rdma") && !maps.contains("/dev/shm"), "{maps}");
        let open = descriptors(|target| target.starts_with("/dev/shm"));
        assert!(open.is_empty(), "{open:?}");
        drop((a, b, held));
    });
}

/// Descriptors of this process whose targets are `wanted`.
fn descriptors(wanted: impl Fn(&str) -> bool) -> Vec<PathBuf> {
    let all = fs::read_dir("/proc/self/fd").unwrap().map(|entry| entry.unwrap().path());
    let is_wanted =
        |path: &PathBuf| fs::read_link(path).is_ok_and(|target| wanted(&target.to_string_lossy()));
    all.filter(is_wanted).collect()
}

/// A peer must not be able to shrink a memfd: a page that went away under a mapping would end this process.
#[test]
fn a_peer_that_truncates_what_it_shares() {
    alone("limits::a_peer_that_truncates_what_it_shares", || {
        let (mut a, b) = End::pair();
        let target = b.region(8192);
        a.transfer(Work::write(a.filled(8192, 1), target.remote()));
        let shared = descriptors(|target| target.starts_with("/memfd:rdma"));
        // At least the memory, and the segments of a queue pair and a device.
        assert!(shared.len() >= 3, "{shared:?}");
        for path in shared {
            let file = OpenOptions::new().write(true).open(&path).unwrap();
            let len = file.metadata().unwrap().len();
            for other in [0, len - 1, len + 1] {
                let refused = file.set_len(other).unwrap_err();
                assert_eq!(refused.kind(), std::io::ErrorKind::PermissionDenied, "{path:?}");
            }
        }
        a.transfer(Work::write(a.filled(8192, 2), target.remote()));
        end::assert_holds(&target, 0..8192, 2);
    });
}

/// Connects by `Wire::Auto` to another process while `limited` takes the resources that mapping needs: bytes go both
/// ways all the same, and the log says why not through shared memory.
fn goes_over_tcp_within<T>(log: &Log, limited: impl FnOnce() -> T, why: &str) {
    let mut idle = auto(None);
    idle.retry = RetryOptions { ack_timeout: AckTimeout::new(16), ..idle.retry };
    let region = idle.pd.alloc_region(8192, Access::LOCAL_WRITE | Access::REMOTE_WRITE).unwrap();
    let [first, last] = [1, 2].map(|fill| {
        let mut buffer = idle.pd.alloc_local(8192).unwrap();
        buffer.fill(fill);
        buffer
    });
    let peer = Peer::start_as("auto::a_peer_of_any_wire", &idle.endpoint(), region.remote());
    let to = peer.memory.slice(0..8192).unwrap();
    let taken = limited();
    let mut end = idle.connect(&peer.endpoint);
    end.transfer(Work::write(first, to));
    let access = end.qp.peer_access(&mut end.worker).unwrap();
    drop(taken);
    end.transfer(Work::write(last, to));
    end.worker.post(&end.qp, Work::recv(Segment::Empty)).unwrap();
    end.worker.post(&end.qp, Work::send(Segment::Empty).unsignalled()).unwrap();
    while end.worker.wait(soon()).unwrap().result.unwrap().imm.is_none() {}
    end::assert_holds(&region, 0..8192, 2);
    let told = log.take("not mapped");
    assert_eq!(access, PeerAccess::Stream, "{told:?}");
    assert!(told.len() == 1 && told[0].contains("INFO") && told[0].contains(why), "{told:?}");
}

/// Takes all descriptors that the process may have, but for `left`.
fn descriptors_but(left: usize) -> Vec<File> {
    limit(Resource::Nofile, fs::read_dir("/proc/self/fd").unwrap().count() as u64 + 64);
    let mut taken: Vec<_> = std::iter::from_fn(|| File::open("/dev/null").ok()).collect();
    taken.truncate(taken.len() - left);
    taken
}

#[test]
fn no_descriptors_left_to_map_a_peer() {
    alone("limits::no_descriptors_left_to_map_a_peer", || {
        let log = Log::begin();
        let before = getrlimit(Resource::Nofile);
        // TCP needs one descriptor in each direction.
        for left in 1..5 {
            goes_over_tcp_within(&log, || descriptors_but(left), "ulimit -n");
            setrlimit(Resource::Nofile, before).unwrap();
        }
    });
}

#[test]
fn no_descriptors_left_to_be_mapped() {
    alone("limits::no_descriptors_left_to_be_mapped", || {
        let log = Log::begin();
        auto(None);
        let before = getrlimit(Resource::Nofile);
        let mut taken = descriptors_but(0);
        let options = || SoftOptions { wire: Wire::Auto, ..SoftOptions::default() };
        let context = loop {
            match Device::soft(options()).open() {
                Ok(context) => break context,
                Err(_) => drop(taken.pop().expect("it does not open")),
            }
        };
        setrlimit(Resource::Nofile, before).unwrap();
        let told = log.take("reach the device over TCP alone");
        assert!(told.len() == 1 && told[0].contains("WARN") && told[0].contains("ulimit -n"), "{told:?}");
        drop(taken);
        assert_eq!(exchange(End::within(context), to("auto::a_peer_of_any_wire")), PeerAccess::Stream);
    });
}

#[test]
fn no_mappings_left_to_map_a_peer() {
    alone("limits::no_mappings_left_to_map_a_peer", || {
        goes_over_tcp_within(&Log::begin(), || raw::take_mappings(2), "vm.max_map_count");
    });
}
