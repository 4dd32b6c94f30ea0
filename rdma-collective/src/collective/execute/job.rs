//! The job: an operation that owns its memory, so that it can go on whatever becomes of its caller.
//!
//! The job moves its memory between the caller (who may look at it), and the engine (whose device may use it). `exec`
//! carries the operation out; the communicator queues jobs and hands them back.

use std::ops::Range;
use std::task::Poll;
use std::time::Instant;

use rdma_core::{Deadline, LocalBuf, Region};

use super::buffers::{Borrowed, Buffers, RegisteredBuffer, RegisteredBuffers};
use super::exec::{self, Exec};
use super::pipeline::ShmContext;
use super::plan::{ExecutionPlan, Participants, Plan};
use super::zero_copy::REVOKE_WITHIN;
use crate::collective::CollectiveError;
use crate::collective::call::{BARRIER_BYTES, Lengths, Origins};
use crate::collective::communicator::{CommContext, HostGroup, Operation, Scratch, Tallies};
use crate::engine::{Engine, EngineId, EngineState};

/// The time that a caller spends polling for messages before the engine takes over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Patience {
    /// A single poll.
    Once,
    /// The time that messages of running peers take, and not beyond the deadline.
    Until(Deadline),
}

/// The memory of a tensor, together with the operation that it is in.
///
/// A tensor and its operation pass the same box back and forth, so that starting an operation allocates nothing.
#[derive(Debug)]
pub(in crate::collective) struct Job {
    engine: EngineId,
    memory: JobMemory,
    /// The input of an operation out of place. It has a job of its own, and this job holds the output.
    pub(in crate::collective) input: Option<Box<Job>>,
    /// The selected bytes: the tensor shows them, and the operation is on them.
    range: Range<usize>,
    work: Option<Work>,
    /// The operation in the counts of its communicator.
    pub(in crate::collective) counted: Operation,
}

/// The operation of a job.
#[derive(Debug)]
struct Work {
    plan: Plan,
    /// The executor; absent before the operation begins, and in a communicator of one rank.
    running: Option<Exec>,
}

/// The memory of a job, by who may use it now.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "an operation on tensors allocates nothing")]
enum JobMemory {
    /// A buffer that this thread may read and write.
    Here(LocalBuf),
    /// Buffers that the device may use. No reference to their bytes may exist.
    Lent(RegisteredBuffers),
    /// A region to which others have handles. Its bytes are only copied, never borrowed.
    Shared(Region),
    /// The bytes of a barrier, which belong to no tensor and are never registered.
    Own([u8; BARRIER_BYTES]),
    /// No memory: the operation that this job is the input of has it, or a device did not let go of it.
    Gone,
}

impl Job {
    pub(in crate::collective) fn new(engine: EngineId, memory: LocalBuf, bytes: usize) -> Self {
        Self {
            engine,
            memory: JobMemory::Here(memory),
            input: None,
            range: 0..bytes,
            work: None,
            counted: Operation::default(),
        }
    }

    /// Makes a job on `range` of a region. The caller has checked that the region is that long.
    pub(in crate::collective) fn of_region(engine: EngineId, region: Region, range: Range<usize>) -> Self {
        Self {
            engine,
            memory: JobMemory::Shared(region),
            input: None,
            range,
            work: None,
            counted: Operation::default(),
        }
    }

    /// Makes the job of a barrier, which has no tensor.
    pub(in crate::collective) fn of_nothing(engine: EngineId) -> Self {
        // In the job itself, so that a barrier registers no memory.
        let memory = JobMemory::Own([0; BARRIER_BYTES]);
        Self {
            engine,
            memory,
            input: None,
            range: 0..BARRIER_BYTES,
            work: None,
            counted: Operation::default(),
        }
    }

    /// Makes a job of the same engine without memory.
    pub(in crate::collective) fn empty(&self) -> Box<Self> {
        Box::new(Self {
            engine: self.engine.clone(),
            memory: JobMemory::Gone,
            input: None,
            range: 0..0,
            work: None,
            counted: Operation::default(),
        })
    }

    /// Selects the bytes that the tensor shows and operations use; `false` if the memory is shorter.
    pub(in crate::collective) fn select(&mut self, range: Range<usize>) -> bool {
        // Memory that is lent cannot be selected from: an operation is on the present range.
        let fits = range.start <= range.end
            && matches!(&self.memory, JobMemory::Here(memory) if range.end <= memory.len());
        if fits {
            self.range = range;
        }
        fits
    }

    /// The selected bytes; empty while a device may use them.
    pub(in crate::collective) fn bytes(&self) -> &[u8] {
        match &self.memory {
            JobMemory::Here(memory) => memory.get(self.range.clone()).unwrap_or_default(),
            _ => &[],
        }
    }

    /// The selected bytes, mutable; empty while a device may use them.
    pub(in crate::collective) fn bytes_mut(&mut self) -> &mut [u8] {
        match &mut self.memory {
            JobMemory::Here(memory) => memory.get_mut(self.range.clone()).unwrap_or_default(),
            _ => &mut [],
        }
    }

    /// Whether the memory is registered with `engine`. No other engine's device can use it.
    pub(super) fn is_of(&self, engine: &Engine) -> bool {
        engine.is(&self.engine)
    }

    /// The number of selected bytes; those of the output if the operation is out of place.
    pub(super) fn len(&self) -> usize {
        self.range.len()
    }

    pub(super) fn lengths(&self) -> Lengths {
        let output = self.range.len();
        match &self.input {
            Some(input) => Lengths::OutOfPlace { input: input.range.len(), output },
            None => Lengths::InPlace(output),
        }
    }

    /// Whether the memory stays with the job during the operation, because no device or peer uses it.
    fn stays(&self) -> bool {
        // Exchanges through shared memory copy with the processor. A barrier's bytes are not registered, so every
        // executor has to copy them.
        let here = |job: &Self| matches!(job.memory, JobMemory::Here(_));
        let by_windows =
            self.work.as_ref().is_some_and(|work| matches!(work.plan.execution, ExecutionPlan::Shm(_)));
        let own = matches!(self.memory, JobMemory::Own(_));
        own || by_windows && here(self) && self.input.as_deref().is_none_or(here)
    }

    /// Gives the job its operation, and has it counted as one that began at `started`.
    #[inline]
    pub(super) fn take_on(
        &mut self,
        plan: Plan,
        running: Option<Exec>,
        tallies: &mut Tallies,
        started: impl FnOnce() -> Instant,
    ) {
        self.counted = plan.counted(tallies, [self.lengths()], started);
        self.work = Some(Work { plan, running });
    }

    /// The memory as borrowed buffers, for an operation that lends none of it to the device.
    #[inline]
    pub(super) fn at_hand(&mut self, origins: Origins) -> Option<Borrowed<'_>> {
        let Self { memory, input, range, .. } = self;
        at_hand(memory, input.as_deref(), range.clone(), origins)
    }

    /// The operation with its memory, if the memory [stays](Self::stays).
    fn work_at_hand(&mut self) -> Option<(&mut Work, Borrowed<'_>)> {
        let Self { memory, input, range, work: Some(work), .. } = self else { return None };
        let buffers = at_hand(memory, input.as_deref(), range.clone(), work.plan.origins)?;
        Some((work, buffers))
    }

    /// Lends the memory to the engine's device. The memory holds the bytes of the operation from `origin` on.
    fn lend(&mut self, core: &mut EngineState, origin: usize) -> Option<RegisteredBuffer> {
        // `into_region` consumes the buffer. From here on nobody can borrow the bytes, until `take_back` returns them.
        let (region, shared) = match std::mem::replace(&mut self.memory, JobMemory::Gone) {
            JobMemory::Here(memory) => match memory.into_region() {
                Ok(region) => (region, false),
                // Refused: the memory stays with the job, and `advance` reports the failure.
                Err(memory) => {
                    self.memory = JobMemory::Here(memory);
                    return None;
                }
            },
            JobMemory::Shared(region) => (region, true),
            other => {
                self.memory = other;
                return None;
            }
        };
        let attached = core.attach(&region);
        Some(RegisteredBuffer { region, attached, offset: self.range.start, origin, shared, exported: None })
    }

    /// Takes the memory back from the engine's device; `false` if the memory is lost because requests still use it.
    fn take_back(&mut self, place: RegisteredBuffer, core: &mut EngineState) -> bool {
        let RegisteredBuffer { region, attached, shared, exported, .. } = place;
        // An export that could not be revoked holds on to the region, so `into_local` below fails. The memory must not
        // come back then, because a peer may still write to it.
        drop(exported);
        if !core.detach(attached) {
            return false;
        }
        // A region with handles never becomes local again, because `into_local` needs the only one.
        if shared {
            self.memory = JobMemory::Shared(region);
            return true;
        }
        match region.into_local() {
            Ok(memory) => {
                self.memory = JobMemory::Here(memory);
                true
            }
            Err(_) => false,
        }
    }
}

/// The memory of a job and of its `input` as borrowed buffers; `None` if either is lent.
#[inline]
fn at_hand<'a>(
    memory: &'a mut JobMemory,
    input: Option<&'a Job>,
    range: Range<usize>,
    origins: Origins,
) -> Option<Borrowed<'a>> {
    let memory = match memory {
        JobMemory::Here(memory) => &mut **memory,
        JobMemory::Own(bytes) => bytes,
        _ => return None,
    };
    let output = memory.get_mut(range).unwrap_or_default();
    match input {
        None => Some(Borrowed::InPlace(output)),
        Some(input) if matches!(input.memory, JobMemory::Here(_)) => {
            Some(Borrowed::OutOfPlace { input: input.bytes(), output, origins })
        }
        Some(_) => None,
    }
}

impl Job {
    /// The participants of the operation.
    pub(in crate::collective) fn among(&self) -> Participants {
        self.work.as_ref().map_or(Participants::All, |work| work.plan.execution.participants())
    }

    /// Begins the operation, as number `sequence` of its communicator.
    pub(in crate::collective) fn begin(
        &mut self,
        parts: &mut CommContext<'_>,
        core: &mut EngineState,
        sequence: u64,
        now: Instant,
    ) {
        if !self.stays() {
            let origins = match &self.work {
                Some(work) if self.input.is_some() => work.plan.origins,
                _ => Origins::default(),
            };
            // The input is lent first, because `RegisteredBuffers` takes both. Memory that cannot be lent makes
            // `advance` fail with `ForeignMemory`.
            let input = self.input.as_mut().and_then(|input| input.lend(core, origins.input));
            if let Some(output) = self.lend(core, origins.output) {
                self.memory = JobMemory::Lent(RegisteredBuffers::new(input, output));
            }
        }
        // The peers' silence counts from now on, before the first message: a peer may be gone already.
        if let Some(work) = &mut self.work {
            exec::watch(parts, core, now);
            work.running = Exec::begin(&work.plan, parts, sequence, now);
        }
    }

    /// Polls for the peers' messages in the caller's thread, and returns whether the operation is done.
    ///
    /// Only an exchange through shared memory can end here: it needs no completion of the device.
    pub(in crate::collective) fn try_finish(
        &mut self,
        host: &HostGroup,
        scratch: &mut Scratch,
        looks: Patience,
    ) -> bool {
        let Some((Work { running: Some(Exec::Shm(exchange)), .. }, mut buffers)) = self.work_at_hand() else {
            return false;
        };
        let mut at = ShmContext { host, buffers: &mut buffers, scratch };
        let come = match looks {
            Patience::Once => exchange.has_arrived(&mut at),
            Patience::Until(until) => exchange.spin_until_arrived(&mut at, until, || true),
        };
        // A failure is not reported from here. The engine polls the same executor again, finds it, and tells the
        // peers.
        if !come || exchange.finish(host, &mut buffers, scratch).is_err() {
            return false;
        }
        self.work = None;
        // Peers may reuse the slots of this round from now on, so the output must have been made before.
        host.end_round();
        true
    }

    /// Whether the waiting caller should drive the operation itself.
    ///
    /// No completion wakes the engine for a zero-copy operation, because peers are heard only by polling shared
    /// memory. A short operation over links is over by the time that the engine's thread has woken.
    pub(in crate::collective) fn suits_caller(&self) -> bool {
        match self.work.as_ref().and_then(|work| work.running.as_ref()) {
            Some(Exec::ZeroCopy(_)) => true,
            Some(Exec::Links(exec)) => exec.is_short(),
            _ => false,
        }
    }

    /// Advances the operation as far as it can go now. After `Ready` it must not be called again.
    pub(in crate::collective) fn advance(
        &mut self,
        parts: &mut CommContext<'_>,
        core: &mut EngineState,
    ) -> Poll<Result<(), CollectiveError>> {
        let outcome = if self.stays()
            && let Some((Work { plan, running }, mut buffers)) = self.work_at_hand()
        {
            exec::advance(running.as_mut(), plan, parts, core, (&mut buffers, &mut []))
        } else if let (Some(Work { plan, running }), JobMemory::Lent(buffers)) =
            (&mut self.work, &mut self.memory)
        {
            exec::advance(running.as_mut(), plan, parts, core, (buffers, &mut []))
        } else {
            return Poll::Ready(Err(CollectiveError::ForeignMemory));
        };
        // The memory comes back if the operation succeeded or never began. After any other failure requests may still
        // be under way; the engine releases the memory once it has fenced the lanes.
        let unused = |error: &CollectiveError| error.is_refusal();
        if let Poll::Ready(ended) = &outcome
            && ended.as_ref().err().is_none_or(unused)
        {
            self.release(core);
        }
        outcome
    }

    /// Ends the operation because its deadline has passed: tells the other ranks, and returns which rank was late.
    pub(in crate::collective) fn give_up_late(
        &mut self,
        parts: &mut CommContext<'_>,
        core: &mut EngineState,
    ) -> CollectiveError {
        exec::late(self.work.as_mut().and_then(|work| work.running.as_mut()), parts, core)
    }

    /// Takes the peers' rights to the memory away, because the operation has ended.
    pub(in crate::collective) fn revoke(&mut self) {
        if let JobMemory::Lent(buffers) = &mut self.memory {
            buffers.revoke(Deadline::after(REVOKE_WITHIN));
        }
    }

    /// Takes the memory back from the engine; `false` if the device still uses some of it.
    pub(in crate::collective) fn release(&mut self, core: &mut EngineState) -> bool {
        // Revoked first: a peer that still had a right could write into memory that the caller looks at.
        self.revoke();
        self.work = None;
        match std::mem::replace(&mut self.memory, JobMemory::Gone) {
            JobMemory::Lent(buffers) => {
                let (input, output) = buffers.into_places();
                // Both halves are tried, even if one is lost: the other can still go back to the caller.
                let input_back = match (&mut self.input, input) {
                    (Some(job), Some(place)) => job.take_back(place, core),
                    _ => true,
                };
                self.take_back(output, core) && input_back
            }
            other => {
                self.memory = other;
                true
            }
        }
    }
}
