//! A client that does as a test asks, over a software device of its own.

use std::io::{Read, Write};
use std::net::TcpStream;

use rdma_core::{
    Access, Attached, Deadline, Device, Endpoint, Gid, Init, InitOptions, Mtu, PathOptions, Psn, QpNum,
    QueuePair, QueuePairOptions, ReadyToSend, Region, RetryOptions, SoftOptions, Wire, Work, Worker,
    WorkerOptions,
};

use super::run::LONG;

/// The index of the software device's GID that other processes reach.
const GID_INDEX: u32 = 1;

/// A client, before it has met the server.
pub struct Peer {
    pub stream: TcpStream,
    worker: Worker,
    queue_pair: QueuePair<Init>,
    region: Region,
    attached: Attached,
}

/// A client that is connected.
pub struct Connected {
    stream: TcpStream,
    worker: Worker,
    queue_pair: QueuePair<ReadyToSend>,
    pub region: Region,
    attached: Attached,
}

impl Peer {
    /// Connects to a server that listens, with a buffer of `size` bytes.
    pub fn new(port: u16, size: usize) -> Self {
        let stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        stream.set_read_timeout(Some(LONG)).unwrap();
        // Over TCP the server's device notes a message by itself, as a NIC does, and not only when the program polls.
        let context = Device::soft(SoftOptions { wire: Wire::Tcp, ..SoftOptions::default() }).open().unwrap();
        let pd = context.alloc_pd().unwrap();
        let mut worker = context.worker(WorkerOptions::default()).unwrap();
        let init = InitOptions { access: Access::empty(), ..InitOptions::default() };
        let queue_pair = worker.create_queue_pair(&pd, &QueuePairOptions::default()).unwrap();
        let queue_pair = queue_pair.init(&mut worker, &init).map_err(|refused| refused.error).unwrap();
        let region = pd.alloc_region(size, Access::LOCAL_WRITE).unwrap();
        region.copy_in(0, &vec![0x7b; size]).unwrap();
        let attached = worker.attach(&region);
        for _ in 0..8 {
            worker.post_recv(&queue_pair, attached.range(0, size)).map_err(|refused| refused.error).unwrap();
        }
        Self { stream, worker, queue_pair, region, attached }
    }

    /// Tells the server the address of this device.
    pub fn tell(&mut self) {
        let own = self.queue_pair.endpoint(&self.worker, GID_INDEX).unwrap();
        let gid = u128::from_be_bytes(own.gid.0);
        write!(self.stream, "0000:{:06x}:{:06x}:{gid:032x}\0", own.qp_num.0, own.psn.value()).unwrap();
    }

    /// Exchanges addresses with the server, and connects.
    pub fn meet(self) -> Connected {
        let mut connected = self.hear();
        connected.say_done();
        connected
    }

    /// Connects, and does not say yet that it has the server's address.
    pub fn hear(mut self) -> Connected {
        self.tell();
        let mut text = [0; 52];
        self.stream.read_exact(&mut text).unwrap();
        let text = String::from_utf8(text.to_vec()).unwrap();
        let fields: Vec<&str> = text.trim_end_matches('\0').split(':').collect();
        let short = |field: &str| u32::from_str_radix(field, 16).unwrap();
        let endpoint = Endpoint {
            lid: Default::default(),
            qp_num: QpNum(short(fields[1])),
            psn: Psn::new(short(fields[2])),
            gid: Gid(u128::from_str_radix(fields[3], 16).unwrap().to_be_bytes()),
            mtu: Mtu::MTU_1024,
        };
        let path = PathOptions { gid_index: GID_INDEX, ..PathOptions::default() };
        let Self { stream, mut worker, queue_pair, region, attached } = self;
        let queue_pair = queue_pair.connect(&mut worker, &endpoint, &path, &RetryOptions::default()).unwrap();
        Connected { stream, worker, queue_pair, region, attached }
    }
}

impl Connected {
    /// Says that the server's address arrived.
    pub fn say_done(&mut self) {
        self.stream.write_all(b"done\0").unwrap();
    }

    /// Sends `size` bytes, and waits until the server has answered.
    pub fn exchange(&mut self, size: usize) {
        self.send(size);
        self.await_completions(2);
    }

    /// Waits until so many sends are acknowledged, or messages have arrived.
    pub fn await_completions(&mut self, count: u32) {
        for _ in 0..count {
            self.worker.wait(Deadline::after(LONG)).unwrap().result.unwrap();
        }
    }

    /// Sends `size` bytes; the completion is the caller's to wait for, or not.
    pub fn send(&mut self, size: usize) {
        let work = Work::send(self.attached.range(0, size));
        self.worker.post(&self.queue_pair, work).map_err(|refused| refused.error).unwrap();
    }
}
