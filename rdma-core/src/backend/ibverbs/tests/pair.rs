//! A test pair: two queue pairs of one worker, connected to each other, and memory for them.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::backend::ibverbs::{Context, Device, ProtectionDomain, Worker};
use crate::backend::interface::{
    ProtectionDomain as _, RawCompletion, RawOpcode, RawPostError, RawRecv, RawSend, RawWorker, Slot,
};
use crate::memory::{Mapping, PdId, Registered};
use crate::{
    Access, Endpoint, GidEntry, InitOptions, PathOptions, PortNum, Psn, QueuePairOptions, RetryOptions,
    WorkerOptions, gid,
};

pub(super) const PORT: PortNum = PortNum(1);
/// The longest wait for completions. Generous, because the device may be emulated.
const WAIT: Duration = Duration::from_secs(30);

/// Opens the device under test, which `ROCE_DEVICE` names.
pub(super) fn context() -> Arc<Context> {
    let name = std::env::var("ROCE_DEVICE").expect("ROCE_DEVICE names the device to test");
    let devices = Device::list().unwrap();
    let device = devices.iter().find(|device| device.name() == name).expect("the device is there");
    println!("device: {name}");
    Arc::new(device.open().unwrap())
}

/// The GID that the library would choose.
pub(super) fn chosen_gid(context: &Context) -> GidEntry {
    let port = context.query_port(PORT).unwrap();
    let table = context.gid_table(PORT).unwrap();
    gid::choose(PORT, &table, &gid::Preference::new(port.link_layer)).unwrap().entry
}

/// The interface behind the device, if it was made for tests: they take it down and change its addresses.
pub(super) fn disposable_netdev(context: &Context) -> String {
    let netdev = chosen_gid(context).netdev.expect("an interface of this namespace");
    let real = std::fs::canonicalize(format!("/sys/class/net/{netdev}")).unwrap();
    assert!(
        real.to_string_lossy().contains("/virtual/"),
        "{netdev} is no interface to be changed for a test"
    );
    netdev
}

/// Runs `ip`.
pub(super) fn ip(arguments: &[&str]) {
    let status = std::process::Command::new("ip").args(arguments).status().unwrap();
    assert!(status.success(), "ip {arguments:?}: {status}");
}

pub(super) struct Pair {
    pub(super) worker: Worker,
    pub(super) pd: ProtectionDomain,
    pub(super) context: Arc<Context>,
}

pub(super) const LEFT: Slot = 0;
pub(super) const RIGHT: Slot = 1;

impl Pair {
    pub(super) fn new() -> Self {
        Self::with(&QueuePairOptions { max_inline_data: 64, ..QueuePairOptions::default() }, 4096)
    }

    pub(super) fn with(options: &QueuePairOptions, max_cqe: u32) -> Self {
        let context = context();
        let pd = ProtectionDomain::new(&context).unwrap();
        let mut worker = Worker::new(&context, &WorkerOptions { max_cqe, allow_overrun: true }).unwrap();
        let port = context.query_port(PORT).unwrap();
        let own = chosen_gid(&context);
        let path = PathOptions { gid_index: own.index, ..PathOptions::default() };
        let retry = RetryOptions::default();
        let access = Access::REMOTE_WRITE | Access::REMOTE_READ;
        let mut ends = Vec::new();
        for slot in [LEFT, RIGHT] {
            let qp_num = worker.create_qp(slot, &pd, options).unwrap();
            worker.modify_to_init(slot, &InitOptions { access, ..InitOptions::default() }).unwrap();
            let psn = Psn::random();
            ends.push(Endpoint { qp_num, psn, lid: port.lid, gid: own.gid, mtu: port.active_mtu });
        }
        for (slot, peer) in [(LEFT, 1), (RIGHT, 0)] {
            worker.modify_to_rtr(slot, &ends[peer], &path).unwrap();
            worker.modify_to_rts(slot, ends[1 - peer].psn, &retry).unwrap();
        }
        Self { worker, pd, context }
    }

    pub(super) fn memory(&self, len: usize, access: Access) -> Memory {
        let mapping = Mapping::allocate(len).unwrap();
        // SAFETY: `Registered` keeps the mapping until it is deregistered, so the range outlives its registration.
        let registration = unsafe { self.pd.register(mapping.as_ptr().as_ptr(), len, access, None) }.unwrap();
        Memory(Registered::new(mapping, registration, access, PdId(1)))
    }

    pub(super) fn send(&mut self, slot: Slot, chain: &[RawSend]) -> Result<(), RawPostError> {
        // SAFETY: each test keeps its memory until it has dropped the worker, so the ranges stay valid.
        unsafe { self.worker.post_send(slot, chain) }
    }

    pub(super) fn recv(&mut self, slot: Slot, chain: &[RawRecv]) -> Result<(), RawPostError> {
        // SAFETY: each test keeps its memory until it has dropped the worker, so the receives stay valid.
        unsafe { self.worker.post_recv(slot, chain) }
    }

    /// Polls until there are `count` completions, or fails the test.
    pub(super) fn completions(&mut self, count: usize) -> Vec<RawCompletion> {
        let until = Instant::now() + WAIT;
        let mut all = Vec::new();
        while all.len() < count {
            let mut batch = [RawCompletion::default(); 16];
            let taken = self.worker.poll(&mut batch[..(count - all.len()).min(16)]).unwrap();
            all.extend_from_slice(&batch[..taken]);
            assert!(Instant::now() < until, "{} of {count} completions: {all:?}", all.len());
            std::thread::yield_now();
        }
        all
    }

    /// Polls `count` completions and returns that of `wr_id`.
    pub(super) fn completion_of(&mut self, wr_id: u64, count: usize) -> RawCompletion {
        let all = self.completions(count);
        *all.iter().find(|one| one.wr_id == wr_id).unwrap_or_else(|| panic!("no {wr_id} in {all:?}"))
    }
}

/// Registered memory of a test.
pub(super) struct Memory(Registered);

impl Memory {
    pub(super) fn addr(&self) -> u64 {
        self.0.as_ptr().as_ptr() as u64
    }

    pub(super) fn rkey(&self) -> u32 {
        self.0.keys().rkey.0
    }

    pub(super) fn fill(&self, bytes: &[u8]) {
        assert!(bytes.len() <= self.0.len());
        // SAFETY: the length was checked, so the copy stays within the mapping; tests call this only while nothing is
        // in flight.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.0.as_ptr().as_ptr(), bytes.len()) };
    }

    pub(super) fn bytes(&self, len: usize) -> Vec<u8> {
        assert!(len <= self.0.len());
        // SAFETY: the length was checked, so the slice is within the mapping; tests call this only while nothing is in
        // flight, so nobody writes it.
        unsafe { std::slice::from_raw_parts(self.0.as_ptr().as_ptr(), len) }.to_vec()
    }

    pub(super) fn deregister(&mut self) {
        self.0.deregister(crate::Deadline::in_drop()).unwrap();
    }

    /// A request on the first `len` bytes, towards all of `target`.
    pub(super) fn request(
        &self,
        wr_id: u64,
        opcode: RawOpcode,
        len: u32,
        target: Option<&Memory>,
    ) -> RawSend {
        RawSend {
            wr_id,
            opcode,
            signalled: true,
            inline: false,
            addr: self.addr(),
            len,
            lkey: self.0.keys().lkey.0,
            remote_addr: target.map_or(0, Memory::addr),
            rkey: target.map_or(0, Memory::rkey),
            imm: 0x0102_0304,
            hint: crate::memory::CacheHint::Cached,
        }
    }

    pub(super) fn receive(&self, wr_id: u64, len: u32) -> RawRecv {
        RawRecv { wr_id, addr: self.addr(), len, lkey: self.0.keys().lkey.0 }
    }
}
