//! Opening a lane: from its memory to a connected queue pair.
//!
//! All receives are posted before the lane's endpoint is handed to the peer. Otherwise a peer that connects first could
//! send into an empty receive queue.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use rdma_core::error::ConnectError;
use rdma_core::{
    Deadline, Endpoint, Init, InitOptions, LocalBuf, ProtectionDomain, QueuePair, QueuePairOptions, Refused,
    RemoteKey, RemoteMemory, State, Worker,
};

use super::{Connection, Lane, LaneOptions};
use crate::engine::SetupError;
use crate::link::LaneName;
use crate::link::blob::Blob;
use crate::link::credit::{Credits, RESERVED};
use crate::link::pulse::Pulse;

/// Buffers for control messages of this side: so many can be under way at once.
const CONTROL_SENDS: usize = 8;
/// The time that a queue pair which did not connect may take to end.
const END_WITHIN: Duration = Duration::from_secs(1);

/// A lane whose queue pair waits for its peer's address.
#[derive(Debug)]
pub(crate) struct OpeningLane {
    rail: usize,
    qp: QueuePair<Init>,
    endpoint: Endpoint,
    options: LaneOptions,
    control: Vec<LocalBuf>,
}

/// The buffers of a lane. Registering them takes long, so it is done before the engine is locked.
#[derive(Debug)]
pub(crate) struct LaneMemory {
    rail: usize,
    /// The receives, which this side only reads. They have memory of their own, so that pages in which a peer is
    /// stopped can be replaced: bytes that this side writes could be lost by that.
    receives: LocalBuf,
    /// The buffers for control messages.
    control: LocalBuf,
    options: LaneOptions,
}

impl LaneMemory {
    /// Allocates the buffers of a lane with `options`, and registers them in `pd`, the domain of that rail.
    pub(crate) fn alloc(
        (rail, pd): (usize, &ProtectionDomain),
        options: LaneOptions,
    ) -> Result<Self, SetupError> {
        let bytes = options.control_bytes_max as usize;
        let receives = pd.alloc_local((receives_of(&options) as usize).saturating_mul(bytes))?;
        let control = pd.alloc_local(CONTROL_SENDS * bytes)?;
        Ok(Self { rail, receives, control, options })
    }

    /// The rail of the lane.
    pub(crate) fn rail(&self) -> usize {
        self.rail
    }
}

impl OpeningLane {
    /// Creates the queue pair and posts its receives.
    pub(crate) fn new(
        worker: &mut Worker,
        pd: &ProtectionDomain,
        init: &InitOptions,
        gid_index: u32,
        memory: LaneMemory,
    ) -> Result<Self, SetupError> {
        let LaneMemory { rail, receives, control, options } = memory;
        let queues = QueuePairOptions {
            max_send_wr: options.max_send_wr,
            max_recv_wr: receives_of(&options),
            ..QueuePairOptions::default()
        };
        let qp = worker.create_queue_pair(pd, &queues)?;
        let qp = qp.init(worker, init).map_err(|refused| end(worker, refused))?;
        let bytes = options.control_bytes_max as usize;
        let post = |buffer| {
            let posted = worker.post_recv(&qp, buffer);
            posted.map(drop).map_err(|refused| SetupError::Post(refused.error))
        };
        let posted = split(receives, bytes, post).and_then(|()| {
            let mut buffers = Vec::with_capacity(CONTROL_SENDS);
            split(control, bytes, |buffer| {
                buffers.push(buffer);
                Ok(())
            })?;
            Ok((buffers, qp.endpoint(worker, gid_index)?))
        });
        match posted {
            Ok((control, endpoint)) => Ok(Self { rail, qp, endpoint, options, control }),
            Err(error) => {
                fence(worker, qp);
                Err(error)
            }
        }
    }

    /// The rail of the lane.
    pub(crate) fn rail(&self) -> usize {
        self.rail
    }

    /// The endpoint that the peer connects to.
    pub(crate) fn endpoint(&self) -> Endpoint {
        self.endpoint
    }

    pub(crate) fn options(&self) -> &LaneOptions {
        &self.options
    }

    /// The queue pair, to be fenced.
    pub(crate) fn into_qp(self) -> QueuePair<Init> {
        self.qp
    }

    /// Connects the lane to the end that `peer` describes. A queue pair that cannot be connected is ended.
    pub(crate) fn connect(
        self,
        worker: &mut Worker,
        peer: &Blob,
        connection: &Connection,
        now: Instant,
    ) -> Result<Lane, SetupError> {
        let Self { rail, qp, options, control, .. } = self;
        let name = LaneName { qp_num: qp.num(), epoch: options.epoch };
        let qp = qp
            .ready_to_receive(worker, &peer.endpoint, &connection.path)
            .map_err(|refused| end(worker, refused))?
            .ready_to_send(worker, &connection.retry)
            .map_err(|refused| end(worker, refused))?;
        let sends = options.max_send_wr as usize;
        let arrivals_max = options.credits as usize;
        Ok(Lane {
            name,
            peer_epoch: peer.epoch,
            rail,
            qp: Some(qp),
            slots: RemoteMemory { addr: 0, len: 0, rkey: RemoteKey(0) },
            max_send_wr: sends,
            control_bytes_max: options.control_bytes_max.min(peer.control_bytes_max) as usize,
            credits: Credits::new(peer.credits, options.credits),
            posted: VecDeque::with_capacity(sends),
            queued: Vec::with_capacity(sends),
            unsignalled: 0,
            idle: Vec::with_capacity(arrivals_max + RESERVED as usize),
            control,
            returned: Vec::new(),
            ranges_done: 0,
            arrivals: VecDeque::with_capacity(arrivals_max),
            arrivals_max,
            failure: None,
            closed: false,
            leaving: false,
            quiet: false,
            pulse: Pulse::new(now, peer.beats),
            gone: None,
            settled: false,
            is_one_of_many: false,
            failed: Vec::new(),
            unposted: Vec::new(),
        })
    }
}

/// The number of receives of a lane. A saturated number is more than any device offers, and the device refuses it with
/// an error.
fn receives_of(options: &LaneOptions) -> u32 {
    options.credits.saturating_add(RESERVED)
}

/// Splits `buffers` into buffers of `bytes` each, and does `each` with every one.
fn split(
    mut buffers: LocalBuf,
    bytes: usize,
    mut each: impl FnMut(LocalBuf) -> Result<(), SetupError>,
) -> Result<(), SetupError> {
    while buffers.capacity() > bytes {
        let (buffer, rest) = buffers.split_at(bytes)?;
        each(buffer)?;
        buffers = rest;
    }
    each(buffers)
}

/// Ends a queue pair whose transition was refused, and returns the reason.
fn end<S: State>(worker: &mut Worker, refused: Refused<QueuePair<S>, ConnectError>) -> SetupError {
    fence(worker, refused.object);
    refused.error.into()
}

fn fence<S: State>(worker: &mut Worker, qp: QueuePair<S>) {
    if let Err(Refused { error, .. }) = worker.fence(qp, Deadline::after(END_WITHIN)) {
        crate::log::warn!(%error, "cannot end a queue pair that did not connect: it stays until the engine is dropped");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rdma_core::{Device, SoftOptions, WorkerOptions};

    #[test]
    fn a_lane_registers_nothing_while_it_is_opened() {
        let context = Device::soft(SoftOptions::default()).open().unwrap();
        let mut worker = context.worker(WorkerOptions::default()).unwrap();
        let (pd, init) = (context.alloc_pd().unwrap(), InitOptions::default());
        let options = LaneOptions { epoch: 0, max_send_wr: 16, credits: 6, control_bytes_max: 64 };
        let memory = LaneMemory::alloc((0, &pd), options).unwrap();
        let start = memory.control.as_ptr();
        let gid = context.gids(init.port).unwrap()[0].index;
        let lane = OpeningLane::new(&mut worker, &pd, &init, gid, memory).unwrap();
        assert_eq!(lane.control.len(), CONTROL_SENDS);
        for (number, buffer) in lane.control.iter().enumerate() {
            assert_eq!(buffer.as_ptr(), start.wrapping_add(64 * number));
        }
    }
}
