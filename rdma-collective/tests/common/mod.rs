//! Helpers that the tests over the software device share.

#![allow(dead_code, reason = "each test file uses its part")]

pub mod random;

use std::any::Any;
use std::collections::BTreeMap;
use std::fs;
use std::future::{Future, IntoFuture};
use std::mem::ManuallyDrop;
use std::pin::pin;
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use rdma_collective::bootstrap::{JobToken, Join, StoreClient, StoreOptions, StoreServer};
use rdma_collective::collective::{Communicator, CommunicatorOptions};
use rdma_collective::engine::{Engine, EngineOptions};
use rdma_core::{Deadline, Device, DeviceList, SoftOptions, Wire};

/// Each way in which devices of one process reach each other.
pub const WIRES: [Wire; 3] = [Wire::Local, Wire::Mapped, Wire::Tcp];

/// Far beyond what anything here takes, so that a slow machine is not a failure.
pub fn long() -> Deadline {
    Deadline::after(Duration::from_secs(60))
}

/// The device of a name: the software device on the wire `mapped` or `tcp`, or an RDMA device of this machine.
pub fn named_device(name: &str) -> rdma_core::Context {
    let wire = match name {
        "mapped" => Wire::Mapped,
        "tcp" => Wire::Tcp,
        name => return DeviceList::probe().find(name).unwrap().open().unwrap(),
    };
    Device::soft(SoftOptions { wire, ..SoftOptions::default() }).open().unwrap()
}

/// The kernel's counts for the RDMA subsystem of this machine, by name.
pub fn rdma_books() -> BTreeMap<String, usize> {
    let output = Command::new("rdma").args(["resource", "show"]).output().expect("iproute2's `rdma` runs");
    let text = String::from_utf8(output.stdout).unwrap();
    let words: Vec<&str> = text.split_whitespace().collect();
    let counts = words.windows(2).filter_map(|pair| Some((pair[0].to_owned(), pair[1].parse().ok()?)));
    let books: BTreeMap<String, usize> = counts.collect();
    assert!(["pd", "cq", "qp", "mr"].iter().all(|name| books.contains_key(*name)), "`rdma resource`: {text}");
    books
}

/// Whether the full counts are asked for, and not a tenth of them.
pub fn is_soak() -> bool {
    std::env::var("SOAK").is_ok_and(|soak| soak == "full")
}

/// Counts of the kernel for this process. Every registration of the software device is a mapping and a descriptor, and
/// so is every memory of a peer that is mapped.
pub fn books() -> BTreeMap<&'static str, usize> {
    let count = |directory: &str| fs::read_dir(directory).unwrap().count();
    let mapped = fs::read_to_string("/proc/self/maps").unwrap();
    let ours = mapped.lines().filter(|line| line.contains("memfd:rdma")).count();
    BTreeMap::from([
        ("descriptors", count("/proc/self/fd")),
        ("threads", count("/proc/self/task")),
        ("mappings", ours),
    ])
}

/// The counts once nothing changes any more: threads of the software device end a little later.
pub fn settled_books() -> BTreeMap<&'static str, usize> {
    loop {
        let before = books();
        thread::sleep(Duration::from_millis(50));
        if books() == before {
            return before;
        }
    }
}

/// Asserts that the counts are those of `before`. Sockets of the software device are closed by its thread, a
/// little later.
pub fn assert_books(before: &BTreeMap<&'static str, usize>, when: &str) {
    let patience = Instant::now() + Duration::from_secs(30);
    while books() != *before && Instant::now() < patience {
        thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(books(), *before, "{when}");
}

/// The bytes with which a rank on the software device with default options introduces itself, learnt from such a rank.
pub fn introduction() -> Vec<u8> {
    let token = JobToken::random().unwrap();
    let server = StoreServer::bind("127.0.0.1:0".parse().unwrap(), StoreOptions::new(token, 2)).unwrap();
    let join = |rank| {
        StoreClient::connect(Join { address: server.address(), token, rank, world: 2 }, long()).unwrap()
    };
    thread::scope(|threads| {
        threads.spawn(|| {
            let engine =
                Engine::new(&Device::soft(SoftOptions::default()).open().unwrap(), EngineOptions::default());
            let made =
                Communicator::new(&engine.unwrap(), &mut join(0), CommunicatorOptions::default(), long());
            assert!(made.is_err(), "the other rank only listens");
        });
        join(1).all_gather("comm/world/0/ranks", b"", long()).unwrap().swap_remove(0)
    })
}

/// Never drops `value`. It stays within reach, so that it is no leak to who looks for those.
pub fn forget(value: impl Send + 'static) {
    static FORGOTTEN: Mutex<Vec<Box<dyn Any + Send>>> = Mutex::new(Vec::new());
    FORGOTTEN.lock().unwrap().push(Box::new(ManuallyDrop::new(value)));
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// The smallest runtime: it looks again when it is woken, and at nothing else.
pub fn block_on<T>(future: impl IntoFuture<Output = T>) -> T {
    let mut future = pin!(future.into_future());
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(value) => return value,
            Poll::Pending => thread::park(),
        }
    }
}
