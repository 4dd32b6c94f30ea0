//! A device with one queue pair, and how two of them connect.

use std::ops::Range;
use std::time::Duration;

use rdma_core::{
    Access, AckTimeout, CompletionStatus, Context, Deadline, Device, Endpoint, Init, InitOptions, LocalBuf,
    PathOptions, ProtectionDomain, QueuePair, QueuePairOptions, ReadyToSend, Region, RetryOptions, RnrRetry,
    Segment, SoftOptions, State, Work, Worker, WorkerOptions,
};

/// Index of the GID that contains the device's listening address.
pub const GID_INDEX: u32 = 1;

/// A deadline that only a hang misses.
pub fn soon() -> Deadline {
    Deadline::after(Duration::from_secs(60))
}

pub struct End<S: State = ReadyToSend> {
    pub qp: QueuePair<S>,
    pub worker: Worker,
    pub pd: ProtectionDomain,
    pub context: Context,
    pub retry: RetryOptions,
}

impl End<Init> {
    pub fn new() -> Self {
        Self::at(0)
    }

    /// A device that listens at that port; 0 takes a free one.
    pub fn at(tcp_port: u16) -> Self {
        Self::of(SoftOptions { wire: crate::WIRE, tcp_port, ..SoftOptions::default() })
    }

    pub fn of(options: SoftOptions) -> Self {
        Self::within(Device::soft(options).open().unwrap())
    }

    /// An end of a device that is open already.
    pub fn within(context: Context) -> Self {
        let pd = context.alloc_pd().unwrap();
        let mut worker = context.worker(WorkerOptions::default()).unwrap();
        // No acknowledgement timeout: a busy machine may take its time, but a retransmission must not hide a message
        // that the wire lost.
        let never = AckTimeout::new(0);
        let retry =
            RetryOptions { ack_timeout: never, rnr_retry: RnrRetry::Unlimited, ..RetryOptions::default() };
        Self { qp: queue_pair(&mut worker, &pd), worker, pd, context, retry }
    }

    pub fn endpoint(&self) -> Endpoint {
        self.qp.endpoint(&self.worker, GID_INDEX).unwrap()
    }

    pub fn connect(self, peer: &Endpoint) -> End {
        let Self { qp, mut worker, pd, context, retry } = self;
        let path = PathOptions { gid_index: GID_INDEX, ..PathOptions::default() };
        let qp = qp.connect(&mut worker, peer, &path, &retry).unwrap();
        End { qp, worker, pd, context, retry }
    }

    pub fn join(self, peer: Self) -> (End, End) {
        let (ours, theirs) = (self.endpoint(), peer.endpoint());
        (self.connect(&theirs), peer.connect(&ours))
    }
}

impl End {
    pub fn pair() -> (Self, Self) {
        End::new().join(End::new())
    }

    /// Replaces the queue pair by a fresh one.
    pub fn again(self) -> End<Init> {
        let Self { qp, mut worker, pd, context, retry } = self;
        worker.fence(qp, soon()).unwrap();
        while worker.poll().unwrap().is_some() {}
        End { qp: queue_pair(&mut worker, &pd), worker, pd, context, retry }
    }

    pub fn region(&self, len: usize) -> Region {
        let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ;
        self.pd.alloc_region(len, access).unwrap()
    }

    /// Returns a buffer of `len` bytes of `fill`, to be sent.
    pub fn filled(&self, len: usize, fill: u8) -> Segment {
        if len == 0 {
            return Segment::Empty;
        }
        let mut buffer = self.pd.alloc_local(len).unwrap();
        buffer.fill(fill);
        buffer.into()
    }

    /// Posts one request, and waits until it is done.
    pub fn transfer(&mut self, work: Work) -> Option<LocalBuf> {
        self.worker.post(&self.qp, work).unwrap();
        let done = self.worker.wait(soon()).unwrap();
        done.result.unwrap();
        done.buffer
    }

    /// Returns the status of the oldest request.
    pub fn status(&mut self) -> CompletionStatus {
        let done = self.worker.wait(soon()).unwrap();
        done.result.map_or_else(|failure| failure.status, |_| CompletionStatus::SUCCESS)
    }
}

/// Creates a queue pair by which a peer may write and read.
pub fn queue_pair(worker: &mut Worker, pd: &ProtectionDomain) -> QueuePair<Init> {
    let created = worker.create_queue_pair(pd, &QueuePairOptions::default()).unwrap();
    let access = Access::REMOTE_WRITE | Access::REMOTE_READ;
    created.init(worker, &InitOptions { access, ..InitOptions::default() }).unwrap()
}

pub fn assert_holds(region: &Region, range: Range<usize>, fill: u8) {
    let mut bytes = vec![!fill; range.len()];
    region.copy_out(range.start, &mut bytes).unwrap();
    let differs = bytes.iter().position(|byte| *byte != fill);
    assert_eq!(differs, None, "a byte that is not {fill}");
}
