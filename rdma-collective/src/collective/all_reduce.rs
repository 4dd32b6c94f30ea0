//! All-reduce as callers see it: in place and out of place, typed and by bytes.
//!
//! The steps are `schedule`'s, carrying them out is `run`'s.

mod give_up;
mod run;

use std::time::Instant;

use rdma_core::Deadline;

use self::run::Run;
use super::schedule::{Operation, Ring, Source, Span, Staging, Step};
use super::{DataType, Element, ReduceOp};
use crate::comm::{Communicator, CommunicatorOptions, Parts};
use crate::error::{CollectiveError, ReduceError};

/// The code of all-reduce in the header of an operation.
const ALL_REDUCE: u8 = 1;

/// Where elements are read and where results go.
pub(super) enum Buffers<'a> {
    InPlace(&'a mut [u8]),
    OutOfPlace { input: &'a [u8], output: &'a mut [u8] },
}

impl Buffers<'_> {
    fn len(&self) -> usize {
        match self {
            Self::InPlace(buffer) => buffer.len(),
            Self::OutOfPlace { output, .. } => output.len(),
        }
    }

    fn source(&self, source: Source, span: Span) -> &[u8] {
        match (self, source) {
            (Self::OutOfPlace { input, .. }, Source::Input) => &input[span.range()],
            (Self::OutOfPlace { output, .. }, Source::Output) => &output[span.range()],
            (Self::InPlace(buffer), _) => &buffer[span.range()],
        }
    }

    fn output(&mut self, span: Span) -> &mut [u8] {
        match self {
            Self::InPlace(buffer) => &mut buffer[span.range()],
            Self::OutOfPlace { output, .. } => &mut output[span.range()],
        }
    }
}

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
        self.reduce_buffers(Buffers::InPlace(data), data_type, op, deadline)
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
        self.reduce_buffers(Buffers::OutOfPlace { input, output }, data_type, op, deadline)
    }

    fn reduce_buffers(
        &mut self,
        buffers: Buffers<'_>,
        data_type: DataType,
        op: ReduceOp,
        deadline: Deadline,
    ) -> Result<(), CollectiveError> {
        let bytes = buffers.len();
        if !bytes.is_multiple_of(data_type.size()) {
            return Err(ReduceError::PartialElement { bytes, data_type }.into());
        }
        let count = bytes / data_type.size();
        let (rank, ranks) = (self.rank(), self.size());
        let staging = staging(self.options());
        let steps = Ring::all_reduce(Operation { rank, ranks, count, data_type, staging })?;
        let parts = self.begin()?;
        let outcome = carry_out(parts, steps, buffers, (data_type, op), deadline);
        if let Err(error) = &outcome {
            self.end(error);
        }
        outcome
    }
}

/// The code of a type in the header of an operation.
fn data_type_code(data_type: DataType) -> u8 {
    match data_type {
        DataType::F32 => 1,
        DataType::F16 => 2,
    }
}

/// The code of a reduction in the header of an operation.
fn reduction_code(op: ReduceOp) -> u8 {
    match op {
        ReduceOp::Sum => 1,
    }
}

/// What the schedule needs to know of the mailboxes.
fn staging(options: &CommunicatorOptions) -> Staging {
    Staging { slots: options.slots, slot_bytes: options.slot_bytes, chunk_bytes_min: options.chunk_bytes_min }
}

fn carry_out(
    parts: Parts<'_>,
    steps: Ring,
    buffers: Buffers<'_>,
    of: (DataType, ReduceOp),
    deadline: Deadline,
) -> Result<(), CollectiveError> {
    let started = Instant::now();
    match parts.ring {
        None => {
            copy(steps, buffers);
            Ok(())
        }
        Some(ring) => {
            let mut run =
                Run::new(ring, steps, buffers, of, parts.scratch, (parts.rank, parts.sequence), started);
            parts.engine.lock_with(|core| run.watch(core, started));
            let outcome = parts.engine.wait_for(deadline, |core, _| run.advance(core));
            parts.engine.lock_with(|core| {
                run.unwatch(core);
                match outcome {
                    Some(Ok(())) => Ok(()),
                    Some(Err(stop)) => Err(run.give_up(core, stop)),
                    None => Err(run.give_up_late(core)),
                }
            })
        }
    }
}

/// All that a rank does that is alone.
fn copy(steps: Ring, buffers: Buffers<'_>) {
    if let Buffers::OutOfPlace { input, output } = buffers {
        for step in steps {
            if let Step::Copy { span } = step {
                output[span.range()].copy_from_slice(&input[span.range()]);
            }
        }
    }
}

#[cfg(test)]
mod tests;
