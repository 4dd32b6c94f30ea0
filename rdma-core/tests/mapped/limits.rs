//! What the system does not give, and what a peer does to what it was given. Limits of the process are reached in one of
//! its own: the same test, run again by itself.

use std::fs::{self, File, OpenOptions};
use std::path::PathBuf;
use std::process::Command;

use rdma_core::{Device, Memory, SoftOptions, Work};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::end::{self, End};

/// Runs `body` in a process that runs nothing else.
fn alone(name: &str, body: impl FnOnce()) {
    const ALONE: &str = "RDMA_TEST_ALONE";
    if std::env::var_os(ALONE).is_some() {
        return body();
    }
    let mut again = Command::new(std::env::current_exe().unwrap());
    again.args([&format!("limits::{name}"), "--exact", "--test-threads=1"]).env(ALONE, "1");
    let output = again.output().unwrap();
    let [said, wrong] = [&output.stdout, &output.stderr].map(|said| String::from_utf8_lossy(said));
    assert!(output.status.success() && said.contains("1 passed"), "{}: {said}{wrong}", output.status);
}

/// Sets a limit; what it was.
fn limit(resource: Resource, to: u64) -> Rlimit {
    let before = getrlimit(resource);
    setrlimit(resource, Rlimit { current: Some(to), ..before }).unwrap();
    before
}

fn open() -> Result<(), String> {
    let options = SoftOptions { wire: crate::WIRE, ..SoftOptions::default() };
    Device::soft(options).open().map(drop).map_err(|error| error.to_string())
}

/// A write arrives.
fn works() {
    let (mut a, b) = End::pair();
    let target = b.region(8192);
    a.transfer(Work::write(a.filled(8192, 7), target.remote()));
    end::assert_holds(&target, 0..8192, 7);
}

#[test]
fn no_descriptors_left() {
    alone("no_descriptors_left", || {
        // What is made once in a process is there.
        open().unwrap();
        let before = limit(Resource::Nofile, fs::read_dir("/proc/self/fd").unwrap().count() as u64 + 64);
        let mut taken: Vec<_> = std::iter::from_fn(|| File::open("/dev/null").ok()).collect();
        let mut refused = vec![Memory::allocate(8192).unwrap_err().to_string()];
        // Wherever it comes upon the limit: its bells, its port, what it shares.
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
    alone("no_file_may_be_so_long", || {
        let before = limit(Resource::Fsize, 4096);
        let refused = open().unwrap_err();
        assert!(refused.contains("ulimit -f"), "{refused}");
        setrlimit(Resource::Fsize, before).unwrap();
        works();
    });
}

/// What it shares is in memfds, whatever is mounted at /dev/shm and however little room there is.
#[test]
fn dev_shm_is_not_used() {
    alone("dev_shm_is_not_used", || {
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

/// Descriptors of this process whose names are `wanted`.
fn descriptors(wanted: impl Fn(&str) -> bool) -> Vec<PathBuf> {
    let all = fs::read_dir("/proc/self/fd").unwrap().map(|entry| entry.unwrap().path());
    let is_wanted =
        |path: &PathBuf| fs::read_link(path).is_ok_and(|target| wanted(&target.to_string_lossy()));
    all.filter(is_wanted).collect()
}

/// A page that went away under a peer's mapping would end the peer's process.
#[test]
fn a_peer_that_truncates_what_it_shares() {
    alone("a_peer_that_truncates_what_it_shares", || {
        let (mut a, b) = End::pair();
        let target = b.region(8192);
        a.transfer(Work::write(a.filled(8192, 1), target.remote()));
        let shared = descriptors(|target| target.starts_with("/memfd:rdma"));
        // The memory and what a queue pair and a device share, at least.
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
