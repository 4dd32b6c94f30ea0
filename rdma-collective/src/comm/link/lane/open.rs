//! From nothing to a connected lane: receives are posted before the peer can send.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use rdma_core::error::ConnectError;
use rdma_core::{
    Deadline, Endpoint, Init, InitOptions, LocalBuf, ProtectionDomain, QueuePair, QueuePairOptions, Refused,
    State, Worker,
};

use super::{Connection, Lane, LaneOptions};
use crate::comm::link::blob::Blob;
use crate::comm::link::credit::{Credits, RESERVED};
use crate::error::{LaneName, SetupError};

/// Control messages under way from this side.
const CONTROL_SENDS: usize = 8;
/// How long a queue pair that did not connect may take to end.
const END_WITHIN: Duration = Duration::from_secs(1);

/// A lane whose queue pair waits for its peer's address.
#[derive(Debug)]
pub(crate) struct OpeningLane {
    qp: QueuePair<Init>,
    endpoint: Endpoint,
    options: LaneOptions,
    control: Vec<LocalBuf>,
}

impl OpeningLane {
    /// Creates the queue pair and posts its receives.
    pub(crate) fn new(
        worker: &mut Worker,
        pd: &ProtectionDomain,
        init: &InitOptions,
        gid_index: u32,
        options: LaneOptions,
    ) -> Result<Self, SetupError> {
        let queues = QueuePairOptions {
            max_send_wr: options.max_send_wr,
            // Saturated, it is more than any device has, which says so.
            max_recv_wr: options.credits.saturating_add(RESERVED),
            ..QueuePairOptions::default()
        };
        let qp = worker.create_queue_pair(pd, &queues)?;
        let qp = qp.init(worker, init).map_err(|refused| end(worker, refused))?;
        let receives = queues.max_recv_wr as usize;
        let control = post_receives(worker, pd, &qp, receives, options.control_bytes_max as usize);
        match control.and_then(|control| Ok((control, qp.endpoint(worker, gid_index)?))) {
            Ok((control, endpoint)) => Ok(Self { qp, endpoint, options, control }),
            Err(error) => {
                fence(worker, qp);
                Err(error)
            }
        }
    }

    /// What the peer connects to.
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

    /// Connects it to the end that `peer` describes; a queue pair that cannot be is ended.
    pub(crate) fn connect(
        self,
        worker: &mut Worker,
        peer: &Blob,
        connection: &Connection,
        now: Instant,
    ) -> Result<Lane, SetupError> {
        let Self { qp, options, control, .. } = self;
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
            qp,
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
            heard: now,
            watchers: 0,
        })
    }
}

/// Posts `receives` buffers of `bytes`, and gives those for control messages that are sent.
fn post_receives(
    worker: &mut Worker,
    pd: &ProtectionDomain,
    qp: &QueuePair<Init>,
    receives: usize,
    bytes: usize,
) -> Result<Vec<LocalBuf>, SetupError> {
    let mut rest = pd.alloc_local(receives.saturating_add(CONTROL_SENDS).saturating_mul(bytes))?;
    for _ in 0..receives {
        let (buffer, tail) = rest.split_at(bytes)?;
        worker.post_recv(qp, buffer).map_err(|refused| SetupError::Post(refused.error))?;
        rest = tail;
    }
    let mut control = Vec::with_capacity(CONTROL_SENDS);
    for _ in 1..CONTROL_SENDS {
        let (buffer, tail) = rest.split_at(bytes)?;
        control.push(buffer);
        rest = tail;
    }
    control.push(rest);
    Ok(control)
}

fn end<S: State>(worker: &mut Worker, refused: Refused<QueuePair<S>, ConnectError>) -> SetupError {
    fence(worker, refused.object);
    refused.error.into()
}

fn fence<S: State>(worker: &mut Worker, qp: QueuePair<S>) {
    if let Err(Refused { error, .. }) = worker.fence(qp, Deadline::after(END_WITHIN)) {
        tracing::warn!(%error, "a queue pair that did not connect stays until the engine goes");
    }
}
