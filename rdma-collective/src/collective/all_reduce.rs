//! All-reduce as callers see it: in place and out of place, typed and by bytes.
//!
//! The steps are `schedule`'s, carrying them out is `run`'s.

mod buffers;
mod give_up;
mod job;
mod run;

use std::ops::Range;
use std::task::Poll;
use std::time::Instant;

use rdma_core::{Deadline, Refused, Region};

use self::buffers::{Arithmetic, Borrowed, Buffers};
pub(super) use self::job::{Job, from_any as job_from_any};
use self::run::{Run, With};
use super::schedule::{Operation, Schedule, Staging, Step};
use super::{DataType, Element, ReduceOp, Tensor};
use crate::comm::{Communicator, CommunicatorOptions, Core, Parts, Pending};
use crate::error::{CollectiveError, ReduceError};

/// The code of all-reduce in the header of an operation.
const ALL_REDUCE: u8 = 1;

impl Communicator {
    /// Reduces `data` over all ranks, and leaves the result on each of them in its place.
    ///
    /// All ranks call it with the same count, type and operation; the result is the same bytes on all of them. The slice
    /// is copied through memory of the library, so that nothing of it is in use when this returns, whatever happened.
    ///
    /// # Errors
    ///
    /// [`CollectiveError`]: a rank that is lost, late until `deadline` or calls something else, by its number. The data
    /// is then undefined, and the communicator has ended.
    ///
    /// ```
    /// use std::time::Duration;
    /// use rdma_collective::collective::ReduceOp;
    /// use rdma_core::Deadline;
    ///
    /// # use rdma_collective::comm::bootstrap::{Join, JobToken, StoreClient, StoreOptions, StoreServer};
    /// # use rdma_collective::comm::{Communicator, CommunicatorOptions, Engine, EngineOptions};
    /// # use rdma_core::{Device, SoftOptions};
    /// # let deadline = Deadline::after(Duration::from_secs(10));
    /// # let token = JobToken::random()?;
    /// # let server = StoreServer::bind("127.0.0.1:0".parse()?, StoreOptions::new(token, 1))?;
    /// # let join = Join { address: server.address(), token, rank: 0, world: 1 };
    /// # let mut store = StoreClient::connect(join, deadline)?;
    /// # let engine = Engine::new(&Device::soft(SoftOptions::default()).open()?, EngineOptions::default())?;
    /// # let mut comm = Communicator::new(&engine, &mut store, CommunicatorOptions::default(), deadline)?;
    /// let mut gradients = vec![1.0_f32; 1 << 20];
    /// comm.all_reduce(&mut gradients, ReduceOp::Sum, Deadline::after(Duration::from_secs(5)))?;
    /// assert!(gradients.iter().all(|sum| *sum == comm.size() as f32));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[doc(alias = "ncclAllReduce")]
    pub fn all_reduce<T: Element>(
        &mut self,
        data: &mut [T],
        op: ReduceOp,
        deadline: Deadline,
    ) -> Result<(), CollectiveError> {
        self.all_reduce_bytes(T::as_bytes_mut(data), T::DATA_TYPE, op, deadline)
    }

    /// Reduces `input` over all ranks into `output`, which is as long; otherwise as [`all_reduce`](Self::all_reduce).
    ///
    /// Ranks may mix the two.
    ///
    /// # Errors
    ///
    /// [`CollectiveError::LengthsDiffer`], and then nothing is lost; or as for [`all_reduce`](Self::all_reduce).
    #[doc(alias = "ncclAllReduce")]
    pub fn all_reduce_into<T: Element>(
        &mut self,
        input: &[T],
        output: &mut [T],
        op: ReduceOp,
        deadline: Deadline,
    ) -> Result<(), CollectiveError> {
        self.all_reduce_bytes_into(T::as_bytes(input), T::as_bytes_mut(output), T::DATA_TYPE, op, deadline)
    }

    /// [`all_reduce`](Self::all_reduce) for a type that is known at run time: the bytes of elements as in memory, at any
    /// alignment.
    ///
    /// # Errors
    ///
    /// [`CollectiveError::Reduce`] when the bytes end inside an element, and then nothing is lost; or as for
    /// [`all_reduce`](Self::all_reduce).
    pub fn all_reduce_bytes(
        &mut self,
        data: &mut [u8],
        data_type: DataType,
        op: ReduceOp,
        deadline: Deadline,
    ) -> Result<(), CollectiveError> {
        self.reduce_buffers(Borrowed::InPlace(data), data_type, op, deadline)
    }

    /// [`all_reduce_into`](Self::all_reduce_into) for a type that is known at run time.
    ///
    /// # Errors
    ///
    /// As for [`all_reduce_into`](Self::all_reduce_into) and [`all_reduce_bytes`](Self::all_reduce_bytes).
    pub fn all_reduce_bytes_into(
        &mut self,
        input: &[u8],
        output: &mut [u8],
        data_type: DataType,
        op: ReduceOp,
        deadline: Deadline,
    ) -> Result<(), CollectiveError> {
        if input.len() != output.len() {
            return Err(CollectiveError::LengthsDiffer { input: input.len(), output: output.len() });
        }
        self.reduce_buffers(Borrowed::OutOfPlace { input, output }, data_type, op, deadline)
    }

    /// Begins to reduce `tensor` over all ranks in its place, and returns at once; the tensor comes back with the result.
    ///
    /// Nothing is copied: it is sent from where it lies. It runs behind the operations that are pending. Ranks may mix
    /// this with the other calls.
    ///
    /// ```
    /// use std::time::Duration;
    /// use rdma_collective::collective::ReduceOp;
    /// use rdma_core::Deadline;
    ///
    /// # use rdma_collective::comm::bootstrap::{Join, JobToken, StoreClient, StoreOptions, StoreServer};
    /// # use rdma_collective::comm::{Communicator, CommunicatorOptions, Engine, EngineOptions};
    /// # use rdma_core::{Device, SoftOptions};
    /// # let deadline = Deadline::after(Duration::from_secs(10));
    /// # let token = JobToken::random()?;
    /// # let server = StoreServer::bind("127.0.0.1:0".parse()?, StoreOptions::new(token, 1))?;
    /// # let join = Join { address: server.address(), token, rank: 0, world: 1 };
    /// # let mut store = StoreClient::connect(join, deadline)?;
    /// # let engine = Engine::new(&Device::soft(SoftOptions::default()).open()?, EngineOptions::default())?;
    /// # let mut comm = Communicator::new(&engine, &mut store, CommunicatorOptions::default(), deadline)?;
    /// let mut gradients = comm.alloc::<f32>(1 << 20)?;
    /// gradients.fill(1.0);
    /// let pending = comm.start_all_reduce(gradients, ReduceOp::Sum, deadline)?;
    /// // … compute something else …
    /// let gradients = pending.wait(deadline)?;
    /// assert!(gradients.iter().all(|sum| *sum == comm.size() as f32));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The tensor comes back when it cannot begin: [`CollectiveError::ForeignMemory`] when it is of another engine,
    /// [`CollectiveError::TooManyOperations`], [`CollectiveError::Ended`]. Waiting tells of the others, as for
    /// [`all_reduce`](Self::all_reduce); the tensor is lost then.
    pub fn start_all_reduce<T: Element>(
        &mut self,
        tensor: Tensor<T>,
        op: ReduceOp,
        deadline: Deadline,
    ) -> Result<Pending<Tensor<T>>, Refused<Tensor<T>, CollectiveError>> {
        let bytes = tensor.len() * T::DATA_TYPE.size();
        let steps = match self.plan(bytes, T::DATA_TYPE) {
            Ok(steps) => steps,
            Err(error) => return Err(Refused { object: tensor, error }),
        };
        let job = tensor.into_job(None);
        self.start_job(job, steps, self.arithmetic(T::DATA_TYPE, op), deadline).map_err(|(job, error)| {
            let (_, object) = Tensor::pair_from_job(job);
            Refused { object, error }
        })
    }

    /// Begins to reduce `input` over all ranks into `output`, and returns at once; both come back. Otherwise as
    /// [`start_all_reduce`](Self::start_all_reduce).
    ///
    /// # Errors
    ///
    /// As for [`start_all_reduce`](Self::start_all_reduce), and [`CollectiveError::LengthsDiffer`].
    #[expect(clippy::type_complexity, reason = "both tensors go in and come back")]
    pub fn start_all_reduce_into<T: Element>(
        &mut self,
        input: Tensor<T>,
        output: Tensor<T>,
        op: ReduceOp,
        deadline: Deadline,
    ) -> Result<Pending<(Tensor<T>, Tensor<T>)>, Refused<(Tensor<T>, Tensor<T>), CollectiveError>> {
        let size = T::DATA_TYPE.size();
        let planned = if input.len() == output.len() {
            self.plan(output.len() * size, T::DATA_TYPE)
        } else {
            Err(CollectiveError::LengthsDiffer { input: input.len() * size, output: output.len() * size })
        };
        let steps = match planned {
            Ok(steps) => steps,
            Err(error) => return Err(Refused { object: (input, output), error }),
        };
        let job = output.into_job(Some(input));
        self.start_job(job, steps, self.arithmetic(T::DATA_TYPE, op), deadline).map_err(|(job, error)| {
            let (input, output) = Tensor::pair_from_job(job);
            match input {
                Some(input) => Refused { object: (input, output), error },
                None => unreachable!("the operation was given one"),
            }
        })
    }

    /// Begins to reduce `range` of a registered region over all ranks in its place, and returns at once.
    ///
    /// The region may be one that peers write, such as a KV pool's; nobody else may write the range meanwhile, or the
    /// result is undefined. The operation keeps a handle to it. Otherwise as [`start_all_reduce`](Self::start_all_reduce).
    ///
    /// # Errors
    ///
    /// As for [`start_all_reduce`](Self::start_all_reduce), [`CollectiveError::Range`] for bytes that are not there, and
    /// [`CollectiveError::ForeignMemory`] when it is not registered in the [engine's domain](crate::comm::Engine::register).
    pub fn start_all_reduce_region(
        &mut self,
        region: &Region,
        range: Range<usize>,
        data_type: DataType,
        op: ReduceOp,
        deadline: Deadline,
    ) -> Result<Pending<()>, CollectiveError> {
        if range.start > range.end || range.end > region.len() {
            let Range { start, end } = range;
            return Err(CollectiveError::Range { start, end, len: region.len() });
        }
        if !self.engine().lock().pd().owns(region) {
            return Err(CollectiveError::ForeignMemory);
        }
        let steps = self.plan(range.len(), data_type)?;
        let job = Job::of_region(self.engine().id(), region.clone(), range);
        let started = self.start_job(Box::new(job), steps, self.arithmetic(data_type, op), deadline);
        started.map_err(|(_, error)| error)
    }

    fn plan(&self, bytes: usize, data_type: DataType) -> Result<Schedule, CollectiveError> {
        if !bytes.is_multiple_of(data_type.size()) {
            return Err(ReduceError::PartialElement { bytes, data_type }.into());
        }
        let count = bytes / data_type.size();
        let (rank, ranks) = (self.rank(), self.size());
        let staging = staging(self.options());
        let operation = Operation { rank, ranks, count, data_type, staging };
        Ok(Schedule::all_reduce(operation, self.options().reproducible)?)
    }

    fn arithmetic(&self, data_type: DataType, op: ReduceOp) -> Arithmetic {
        Arithmetic { data_type, op, ranks: self.size() }
    }

    fn reduce_buffers(
        &mut self,
        mut buffers: Borrowed<'_>,
        data_type: DataType,
        op: ReduceOp,
        deadline: Deadline,
    ) -> Result<(), CollectiveError> {
        let bytes = buffers.len();
        let (steps, arithmetic) = (self.plan(bytes, data_type)?, self.arithmetic(data_type, op));
        let started = Instant::now();
        self.run(
            deadline,
            |parts, core, sequence| {
                let ring = parts.ring.as_deref()?;
                Run::watch(ring, core, started);
                Some(Run::new(ring, steps.clone(), arithmetic, bytes, (parts.rank, sequence), started))
            },
            |run, parts, core| advance(run.as_mut(), &steps, parts, core, &mut buffers),
            |run, parts, core| late(run.as_mut(), parts, core),
        )
    }
}

/// One look at an operation: its steps as far as they go, and its end.
fn advance<B: Buffers>(
    run: Option<&mut Run>,
    steps: &Schedule,
    parts: &mut Parts<'_>,
    core: &mut Core,
    buffers: &mut B,
) -> Poll<Result<(), CollectiveError>> {
    let (Some(run), Some(ring)) = (run, parts.ring.as_deref_mut()) else {
        // All that a rank does that is alone.
        for step in steps.clone() {
            if let Step::Copy { span } = step {
                buffers.copy(span);
            }
        }
        return Poll::Ready(Ok(()));
    };
    let outcome = run.advance(&mut With { ring, core, buffers, scratch: parts.scratch });
    outcome.map(|outcome| {
        ring.unwatch(core);
        outcome.map_err(|stop| run.give_up(ring, core, stop))
    })
}

/// The deadline has passed.
fn late(run: Option<&mut Run>, parts: &mut Parts<'_>, core: &mut Core) -> CollectiveError {
    match (run, parts.ring.as_deref_mut()) {
        (Some(run), Some(ring)) => {
            let error = run.give_up_late(ring, core);
            ring.unwatch(core);
            error
        }
        // A rank that is alone waits for nobody.
        _ => CollectiveError::Queued,
    }
}

/// What the schedule needs to know of the mailboxes.
fn staging(options: &CommunicatorOptions) -> Staging {
    Staging { slots: options.slots, slot_bytes: options.slot_bytes, chunk_bytes_min: options.chunk_bytes_min }
}

#[cfg(test)]
mod tests;
