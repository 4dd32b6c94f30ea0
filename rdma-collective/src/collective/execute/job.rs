//! An operation that owns its memory, so that it goes on whatever becomes of its caller.

use std::ops::Range;
use std::task::Poll;
use std::time::Instant;

use rdma_core::{Deadline, LocalBuf, Region};

use super::buffers::{Borrowed, Buffers, RegisteredBuffer, RegisteredBuffers};
use super::exec::{self, Exec};
use super::pipeline::ShmContext;
use super::plan::{ExecutionPlan, Plan};
use super::zero_copy::REVOKE_WITHIN;
use crate::collective::CollectiveError;
use crate::collective::call::{BARRIER_BYTES, Lengths, Origins};
use crate::collective::communicator::{CommContext, HostGroup, Scratch};
use crate::engine::{Engine, EngineId, EngineState};

/// Participants whom an operation is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Participants {
    /// It has a number, the same on all ranks.
    All,
    /// The same, and was begun in the caller's thread: it cannot be too late to begin.
    AllHeadersSent,
    /// It has none, and lies before the next of all ranks.
    Pair,
}

/// For how long messages are looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Patience {
    Once,
    /// As long as those take that come at once, at most until then.
    Until(Deadline),
}

/// The memory of a tensor, and of the operation that it is in. It is one allocation, which goes from one to the other.
#[derive(Debug)]
pub(in crate::collective) struct Job {
    engine: EngineId,
    memory: JobMemory,
    /// Of an operation out of place, which has a job of its own: this one's is the output.
    pub(in crate::collective) input: Option<Box<Job>>,
    /// What is looked at and operated on.
    range: Range<usize>,
    work: Option<Work>,
}

/// What it does.
#[derive(Debug)]
struct Work {
    plan: Plan,
    /// Absent before it begins, and when the rank is alone.
    running: Option<Exec>,
}

#[derive(Debug)]
enum JobMemory {
    /// It can be looked at.
    Here(LocalBuf),
    /// The device may use it.
    Lent(RegisteredBuffers),
    /// A region, of which others have handles.
    Shared(Region),
    /// Bytes of no tensor, which no device uses.
    Own([u8; BARRIER_BYTES]),
    /// In the operation that this is the input of, or lost to a device that did not let go of it.
    Gone,
}

impl Job {
    pub(in crate::collective) fn new(engine: EngineId, memory: LocalBuf, bytes: usize) -> Self {
        Self { engine, memory: JobMemory::Here(memory), input: None, range: 0..bytes, work: None }
    }

    /// Of bytes that the region has.
    pub(in crate::collective) fn of_region(engine: EngineId, region: Region, range: Range<usize>) -> Self {
        Self { engine, memory: JobMemory::Shared(region), input: None, range, work: None }
    }

    /// Of what goes around in a barrier.
    pub(in crate::collective) fn of_nothing(engine: EngineId) -> Self {
        let memory = JobMemory::Own([0; BARRIER_BYTES]);
        Self { engine, memory, input: None, range: 0..BARRIER_BYTES, work: None }
    }

    /// A job of the same engine that has no memory.
    pub(in crate::collective) fn empty(&self) -> Box<Self> {
        Box::new(Self {
            engine: self.engine.clone(),
            memory: JobMemory::Gone,
            input: None,
            range: 0..0,
            work: None,
        })
    }

    /// Changes what is looked at and operated on; `false` when there is less.
    pub(in crate::collective) fn select(&mut self, range: Range<usize>) -> bool {
        let fits = range.start <= range.end
            && matches!(&self.memory, JobMemory::Here(memory) if range.end <= memory.len());
        if fits {
            self.range = range;
        }
        fits
    }

    /// Bytes of the memory that can be looked at.
    pub(in crate::collective) fn room(&self) -> usize {
        match &self.memory {
            JobMemory::Here(memory) => memory.len(),
            _ => 0,
        }
    }

    /// The bytes, while no device uses them.
    pub(in crate::collective) fn bytes(&self) -> &[u8] {
        match &self.memory {
            JobMemory::Here(memory) => memory.get(self.range.clone()).unwrap_or_default(),
            _ => &[],
        }
    }

    /// The same, to be changed.
    pub(in crate::collective) fn bytes_mut(&mut self) -> &mut [u8] {
        match &mut self.memory {
            JobMemory::Here(memory) => memory.get_mut(self.range.clone()).unwrap_or_default(),
            _ => &mut [],
        }
    }

    /// Whether its memory is registered with that engine.
    pub(super) fn is_of(&self, engine: &Engine) -> bool {
        engine.is(&self.engine)
    }

    /// Bytes of what is operated on, which is the output where there are two.
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

    /// Whether the operation needs none of its memory lent to the device, and has it.
    fn stays(&self) -> bool {
        let here = |job: &Self| matches!(job.memory, JobMemory::Here(_));
        let flat =
            self.work.as_ref().is_some_and(|work| matches!(work.plan.execution, ExecutionPlan::Shm(_)));
        let own = matches!(self.memory, JobMemory::Own(_));
        own || flat && here(self) && self.input.as_deref().is_none_or(here)
    }

    /// What it does from now on.
    #[inline]
    pub(super) fn take_on(&mut self, plan: Plan, running: Option<Exec>) {
        self.work = Some(Work { plan, running });
    }

    /// The memory, for what needs none of it lent to the device.
    #[inline]
    pub(super) fn at_hand(&mut self, origins: Origins) -> Option<Borrowed<'_>> {
        let Self { memory, input, range, .. } = self;
        at_hand(memory, input.as_deref(), range.clone(), origins)
    }

    /// The operation, and the memory if that [stays](Self::stays).
    fn work_at_hand(&mut self) -> Option<(&mut Work, Borrowed<'_>)> {
        let Self { memory, input, range, work: Some(work), .. } = self else { return None };
        let buffers = at_hand(memory, input.as_deref(), range.clone(), work.plan.origins)?;
        Some((work, buffers))
    }

    /// Hands the memory to the engine's worker; it has the elements of the operation from `origin` on.
    fn lend(&mut self, core: &mut EngineState, origin: usize) -> Option<RegisteredBuffer> {
        let (region, shared) = match std::mem::replace(&mut self.memory, JobMemory::Gone) {
            JobMemory::Here(memory) => match memory.into_region() {
                Ok(region) => (region, false),
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

    /// Takes the memory back from the engine's worker, unless requests still use it.
    fn take_back(&mut self, place: RegisteredBuffer, core: &mut EngineState) -> bool {
        let RegisteredBuffer { region, attached, shared, exported, .. } = place;
        // One that could not be revoked keeps the memory.
        drop(exported);
        if !core.detach(attached) {
            return false;
        }
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

/// The memory of a job of an `input` and of `range` of its own, if it is here.
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
    /// Participants whom it is.
    pub(in crate::collective) fn among(&self) -> Participants {
        let points = |work: &Work| matches!(work.plan.execution, ExecutionPlan::SendRecv(_));
        if self.work.as_ref().is_some_and(points) { Participants::Pair } else { Participants::All }
    }

    /// Starts it as number `sequence` of its communicator.
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
            let input = self.input.as_mut().and_then(|input| input.lend(core, origins.input));
            if let Some(output) = self.lend(core, origins.output) {
                self.memory = JobMemory::Lent(RegisteredBuffers::new(input, output));
            }
        }
        if let Some(work) = &mut self.work {
            exec::watch(parts, core, now);
            work.running = Exec::begin(&work.plan, parts, sequence, now);
        }
    }

    /// Patience for the others' messages; whether it is done.
    pub(in crate::collective) fn try_finish(
        &mut self,
        host: &HostGroup,
        scratch: &mut Scratch,
        looks: Patience,
    ) -> bool {
        let Some((Work { running: Some(Exec::Shm(flat)), .. }, mut buffers)) = self.work_at_hand() else {
            return false;
        };
        let mut at = ShmContext { host, buffers: &mut buffers, scratch };
        let come = match looks {
            Patience::Once => flat.has_all(&mut at),
            Patience::Until(until) => flat.hurry(&mut at, until, || true),
        };
        // If not, the engine goes on, or says why.
        if !come || flat.finish(host, &mut buffers, scratch).is_err() {
            return false;
        }
        self.work = None;
        host.end_round();
        true
    }

    /// Whether it goes on by nothing but being driven, since no completion tells of what it waits for: then whoever waits for it
    /// does that best.
    pub(in crate::collective) fn suits_caller(&self) -> bool {
        self.work.as_ref().is_some_and(|work| matches!(work.running, Some(Exec::ZeroCopy(_))))
    }

    /// Goes on as far as it can; after `Ready` it is not called again.
    pub(in crate::collective) fn advance(
        &mut self,
        parts: &mut CommContext<'_>,
        core: &mut EngineState,
    ) -> Poll<Result<(), CollectiveError>> {
        let outcome = if self.stays()
            && let Some((Work { plan, running }, mut buffers)) = self.work_at_hand()
        {
            exec::advance(running.as_mut(), plan, parts, core, &mut buffers)
        } else if let (Some(Work { plan, running }), JobMemory::Lent(buffers)) =
            (&mut self.work, &mut self.memory)
        {
            exec::advance(running.as_mut(), plan, parts, core, buffers)
        } else {
            return Poll::Ready(Err(CollectiveError::ForeignMemory));
        };
        let unused = |error: &CollectiveError| error.is_refusal();
        if let Poll::Ready(ended) = &outcome
            && ended.as_ref().err().is_none_or(unused)
        {
            self.release(core);
        }
        outcome
    }

    /// The deadline has passed: tells the other ranks and says what was waited for.
    pub(in crate::collective) fn give_up_late(
        &mut self,
        parts: &mut CommContext<'_>,
        core: &mut EngineState,
    ) -> CollectiveError {
        exec::late(self.work.as_mut().and_then(|work| work.running.as_mut()), parts, core)
    }

    /// It has failed: no other rank has a right to what it owns any more.
    pub(in crate::collective) fn revoke(&mut self) {
        if let JobMemory::Lent(buffers) = &mut self.memory {
            buffers.revoke(Deadline::after(REVOKE_WITHIN));
        }
    }

    /// Takes back what the engine holds of it; `false` while the device still uses some.
    pub(in crate::collective) fn release(&mut self, core: &mut EngineState) -> bool {
        self.revoke();
        self.work = None;
        match std::mem::replace(&mut self.memory, JobMemory::Gone) {
            JobMemory::Lent(buffers) => {
                let (input, output) = buffers.into_places();
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
