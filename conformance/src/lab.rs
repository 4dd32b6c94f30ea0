//! The lab: an open device, and connected pairs of queue pairs on it, for a case to work with.

use std::time::Duration;

use rdma_core::{
    Access, AckTimeout, Completion, CompletionStatus, Context, Deadline, Device, Endpoint, GidEntry, Init,
    InitOptions, PathOptions, PortNum, ProtectionDomain, QueuePair, QueuePairOptions, ReadyToSend,
    RetryOptions, Success, Worker, WorkerOptions, gid,
};

use crate::CaseResult;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// The device under test.
pub struct Lab {
    /// The device, for cases that open it again.
    pub device: Device,
    /// The open device.
    pub context: Context,
    /// The port that queue pairs use.
    pub port: PortNum,
    /// The GID that queue pairs send from.
    pub gid: GidEntry,
    /// The longest wait for anything, before the case fails.
    pub patience: Duration,
    /// The acknowledgement timeout of connections: long enough for an emulated machine.
    pub ack_timeout: AckTimeout,
    /// `HOST:PORT` of a peer process, for the cases across two processes.
    pub peer: Option<String>,
}

/// An end of a connection: a worker with a queue pair of its own.
pub struct End {
    /// The worker of the queue pair.
    pub worker: Worker,
    /// The protection domain of its memory.
    pub pd: ProtectionDomain,
    /// The queue pair, connected to the other end.
    pub qp: QueuePair<ReadyToSend>,
}

/// Options of a pair.
#[derive(Clone)]
pub struct PairOptions {
    /// The rights that each queue pair grants its peer.
    pub access: Access,
    /// Queue depths and inline data.
    pub queues: QueuePairOptions,
    /// Retries and timers of the connections.
    pub retry: RetryOptions,
    /// Options of the two workers.
    pub worker: WorkerOptions,
}

/// The two ends of a connection.
pub type Both = (End, End);

impl Lab {
    /// Opens `device` and chooses a GID of port 1, or the one at `gid_index`.
    ///
    /// # Errors
    ///
    /// The device does not open, or has no such port or GID.
    pub fn open(device: &Device, gid_index: Option<u32>) -> Result<Self> {
        let context = device.open()?;
        let port = context.port(PortNum(1))?;
        let table = context.gids(port.port)?;
        let gid = match gid_index {
            None => gid::choose(port.port, &table, &gid::Preference::new(port.link_layer))?.entry,
            Some(index) => match table.iter().find(|entry| entry.index == index) {
                Some(entry) => entry.clone(),
                None => return Err(format!("no GID at index {index}").into()),
            },
        };
        Ok(Self {
            device: device.clone(),
            context,
            port: port.port,
            gid,
            patience: Duration::from_secs(60),
            ack_timeout: AckTimeout::new(18),
            peer: None,
        })
    }

    /// Returns the deadline of a step that begins now.
    #[must_use]
    pub fn soon(&self) -> Deadline {
        Deadline::after(self.patience)
    }

    /// Returns options with all remote rights and the timers of this lab.
    #[must_use]
    pub fn options(&self) -> PairOptions {
        PairOptions {
            access: Access::REMOTE_WRITE | Access::REMOTE_READ,
            queues: QueuePairOptions { max_inline_data: 64, ..QueuePairOptions::default() },
            retry: RetryOptions { ack_timeout: self.ack_timeout, ..RetryOptions::default() },
            worker: WorkerOptions::default(),
        }
    }

    /// Makes two connected ends in one protection domain, with the default [`options`](Self::options).
    ///
    /// # Errors
    ///
    /// The device refuses to create or connect the queue pairs.
    pub fn pair(&self) -> Result<Both> {
        self.pair_with(&self.options())
    }

    /// Makes two connected ends in one protection domain.
    ///
    /// # Errors
    ///
    /// The device refuses to create or connect the queue pairs.
    pub fn pair_with(&self, options: &PairOptions) -> Result<Both> {
        let pd = self.context.alloc_pd()?;
        let (mut left, left_qp) = self.half(&pd, options)?;
        let (mut right, right_qp) = self.half(&pd, options)?;
        let (to_left, to_right) = (self.endpoint(&left, &left_qp)?, self.endpoint(&right, &right_qp)?);
        let right_qp = self.connect(&mut right, right_qp, &to_left, options)?;
        let left_qp = self.connect(&mut left, left_qp, &to_right, options)?;
        Ok((End { worker: left, pd: pd.clone(), qp: left_qp }, End { worker: right, pd, qp: right_qp }))
    }

    /// Makes a worker with a queue pair in INIT.
    ///
    /// # Errors
    ///
    /// The device refuses to create either.
    pub fn half(&self, pd: &ProtectionDomain, options: &PairOptions) -> Result<(Worker, QueuePair<Init>)> {
        let mut worker = self.context.worker(options.worker.clone())?;
        let qp = worker.create_queue_pair(pd, &options.queues)?;
        let init = InitOptions { port: self.port, access: options.access, ..InitOptions::default() };
        let qp = qp.init(&mut worker, &init)?;
        Ok((worker, qp))
    }

    /// Returns the endpoint by which a peer reaches `qp`.
    ///
    /// # Errors
    ///
    /// The port does not answer, or has no such GID.
    pub fn endpoint(&self, worker: &Worker, qp: &QueuePair<Init>) -> Result<Endpoint> {
        Ok(qp.endpoint(worker, self.gid.index)?)
    }

    /// Moves a queue pair from INIT to RTS, connected to `peer`.
    ///
    /// # Errors
    ///
    /// The device refuses a step.
    pub fn connect(
        &self,
        worker: &mut Worker,
        qp: QueuePair<Init>,
        peer: &Endpoint,
        options: &PairOptions,
    ) -> Result<QueuePair<ReadyToSend>> {
        let path = PathOptions { gid_index: self.gid.index, ..PathOptions::default() };
        Ok(qp.connect(worker, peer, &path, &options.retry)?)
    }
}

impl End {
    /// Waits for the next completion.
    ///
    /// # Errors
    ///
    /// No completion came in time.
    pub fn wait(&mut self, lab: &Lab) -> Result<Completion> {
        Ok(self.worker.wait(lab.soon())?)
    }

    /// Waits for the next completion, which must be a success.
    ///
    /// # Errors
    ///
    /// The completion is a failure, or none came in time.
    pub fn done(&mut self, lab: &Lab) -> Result<Success> {
        Ok(self.wait(lab)?.result?)
    }

    /// Waits for the next completion, which must have failed with `status`.
    ///
    /// # Errors
    ///
    /// The completion differs, or none came in time.
    pub fn fails_with(&mut self, lab: &Lab, status: CompletionStatus) -> CaseResult {
        match self.wait(lab)?.result {
            Err(failure) if failure.status == status => Ok(()),
            other => Err(format!("expected {status}, got {other:?}").into()),
        }
    }

    /// Checks that no completion comes for 50 ms.
    ///
    /// # Errors
    ///
    /// A completion came.
    pub fn stays_silent(&mut self) -> CaseResult {
        match self.worker.wait(Deadline::after(Duration::from_millis(50))) {
            Err(rdma_core::error::PollError::DeadlineExceeded { .. }) => Ok(()),
            other => Err(format!("expected no completion, got {other:?}").into()),
        }
    }
}
