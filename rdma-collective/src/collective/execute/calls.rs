//! The beginning of every call: on borrowed slices and on registered buffers, with even and with uneven parts, among
//! all ranks and between two.
//!
//! An eager or pipelined call begins in the caller's thread, without the engine. The engine carries out every other
//! call, and those that the caller's thread could not finish at once. `planning` chooses the algorithm and protocol;
//! `exec` and `job` drive the operation from then on.

use std::iter;
use std::time::{Duration, Instant};

use rdma_core::{Deadline, Refused};

use super::buffers::Borrowed;
use super::eager::ShmExec;
use super::exec::{self, Exec};
use super::job::Job;
use super::pipeline::ShmContext;
use super::plan::{ExecutionPlan, Ownership, Participants, Plan, ShmPlan, ShmProtocol};
use crate::collective::CollectiveError;
use crate::collective::call::{Call, Collective, Origins, Request, staging};
use crate::collective::communicator::{
    Algorithm, Communicator, Pending, Reach, handover_within, link_geometry,
};
use crate::collective::rank_of::RankOf;
use crate::collective::schedule::{Operation, P2pSchedule, Staging};
use crate::collective::send_recv_set::SendRecvSet;
use crate::collective::uneven::{Counts, Sides};
use crate::collective::{DataType, Element, Tensor};
use crate::link::mailbox::Geometry;

/// Calls on borrowed slices.
impl Communicator {
    /// Carries a collective out on borrowed slices. Returns when it has ended.
    pub(in crate::collective) fn call(
        &mut self,
        request: Request,
        data_type: DataType,
        mut buffers: Borrowed<'_>,
        deadline: Deadline,
    ) -> Result<(), CollectiveError> {
        self.engine().check_process()?;
        let ranks = self.rank_of();
        let call = Call::new(request, data_type, buffers.lengths(), ranks)?;
        if let Borrowed::OutOfPlace { origins, .. } = &mut buffers {
            *origins = call.origins(ranks.rank);
        }
        let Some(shm) = self.shm_plan(call, Ownership::Borrowed) else {
            let class = self.class(call);
            let execution = self.plan_execution(call, class, Ownership::Borrowed)?;
            self.announce_plan(call, class, (execution.algorithm(), execution.name()));
            let plan = Plan::new(call, ranks, execution);
            return self.carry_out((&plan, None), (&mut buffers, &mut []), Instant::now(), deadline);
        };
        // The fast path runs the operation in the caller's thread, if no other operation is under way and the peers
        // answer soon. It reads no clock before this rank's messages are sent, because the peers wait for them.
        let (begun, started) = match self.fast_path(deadline, |_| Duration::ZERO) {
            None => (None, Instant::now()),
            Some(mut fast) => {
                // A stand-in for the start, because the clock is not read yet; `begun_at` sets it below.
                let mut exec = ShmExec::new(&shm, fast.sequence, deadline.instant());
                let refused = exec.begin(fast.host, &buffers, fast.scratch).is_err();
                exec.begun_at(Instant::now());
                let mut with =
                    ShmContext { host: fast.host, buffers: &mut buffers, scratch: &mut *fast.scratch };
                let goes_on = || {
                    fast.drives.now_and_then(Instant::now);
                    // The engine must take over once a failure is known, because it knows the reason.
                    !fast.gate.has_failed()
                };
                let done = !refused && exec.spin_until_arrived(&mut with, deadline, goes_on);
                if done && exec.finish(fast.host, &mut buffers, fast.scratch).is_ok() {
                    fast.done(Instant::now);
                    self.tallies.quick(buffers.lengths().longest(), || exec.started());
                    return Ok(());
                }
                // The engine must continue this operation and may not begin another, because the messages may be sent.
                // After a refusal nothing was sent, and the engine meets the same refusal and reports it.
                let started = exec.started();
                ((!refused).then_some(exec), started)
            }
        };
        let plan = Plan::new(call, ranks, ExecutionPlan::Shm(shm));
        self.carry_out((&plan, begun), (&mut buffers, &mut []), started, deadline)
    }

    /// The plan of a call through the windows of a host; `None` if the call goes elsewhere. Reuses the last plan if the
    /// call is equal.
    #[inline]
    fn shm_plan(&mut self, call: Call, ownership: Ownership) -> Option<ShmPlan> {
        match &self.cached_plan {
            Some(cached) if cached.call == call && cached.ownership == ownership => Some(cached.plan),
            _ => self.plan_shm(call, ownership),
        }
    }

    /// Slow path of [`call`](Self::call): runs the operation on the engine. `begun` is the fast-path attempt, if it
    /// already sent this rank's messages.
    #[inline(never)]
    fn carry_out<'b>(
        &mut self,
        (plan, mut begun): (&Plan, Option<ShmExec>),
        (buffers, more): (&mut Borrowed<'b>, &mut [Borrowed<'b>]),
        started: Instant,
        deadline: Deadline,
    ) -> Result<(), CollectiveError> {
        let lengths = iter::once(&*buffers).chain(&*more).map(Borrowed::lengths);
        let mut counted = plan.counted(&mut self.tallies, lengths, || started);
        let participants = plan.execution.participants();
        let among = if begun.is_some() { Participants::AllHeadersSent } else { participants };
        let outcome = self.run(
            deadline,
            among,
            |parts, core, sequence| {
                let begun = begun.take().map(Exec::Shm);
                begun
                    .or_else(|| Exec::begin(plan, parts, sequence, started))
                    .inspect(|_| exec::watch(parts, core, started))
            },
            |running, parts, core| exec::advance(running.as_mut(), plan, parts, core, (buffers, more)),
            |running, parts, core| exec::late(running.as_mut(), parts, core),
        );
        counted.end(outcome.as_ref().copied());
        outcome
    }
}

/// Calls on registered buffers, which the operation owns until it ends.
impl Communicator {
    /// Begins a collective on a tensor, in place.
    pub(in crate::collective) fn start_in_place<T: Element>(
        &mut self,
        request: Request,
        tensor: Tensor<T>,
        deadline: Deadline,
    ) -> Result<Pending<Tensor<T>>, Refused<Tensor<T>, CollectiveError>> {
        self.start_call(request, T::DATA_TYPE, tensor.into_job(None), deadline, Tensor::from_job)
    }

    /// Begins a collective on a tensor, into another.
    #[expect(clippy::type_complexity, reason = "both tensors go in and come back")]
    pub(in crate::collective) fn start_out_of_place<T: Element>(
        &mut self,
        request: Request,
        input: Tensor<T>,
        output: Tensor<T>,
        deadline: Deadline,
    ) -> Result<Pending<(Tensor<T>, Tensor<T>)>, Refused<(Tensor<T>, Tensor<T>), CollectiveError>> {
        let job = output.into_job(Some(input));
        self.start_call(request, T::DATA_TYPE, job, deadline, Tensor::both_from_job)
    }

    /// Begins a collective on the buffers of a job. If that fails, the buffers go back to the caller with the error.
    pub(in crate::collective) fn start_call<T>(
        &mut self,
        request: Request,
        data_type: DataType,
        mut job: Box<Job>,
        deadline: Deadline,
        give_back: fn(Box<Job>) -> T,
    ) -> Result<Pending<T>, Refused<T, CollectiveError>> {
        let ranks = self.rank_of();
        let call = self.check_job(&job);
        let call = match call.and_then(|()| Call::new(request, data_type, job.lengths(), ranks)) {
            Ok(call) => call,
            Err(error) => return Err(Refused { object: give_back(job), error }),
        };
        let Some(shm) = self.shm_plan(call, Ownership::Owned) else {
            let class = self.class(call);
            let plan = self.plan_execution(call, class, Ownership::Owned).map(|execution| {
                self.announce_plan(call, class, (execution.algorithm(), execution.name()));
                Plan::new(call, ranks, execution)
            });
            return self.start_planned(job, plan, deadline, give_back);
        };
        let began = match shm.protocol {
            ShmProtocol::Eager(_) => {
                self.try_start_fast((&shm, call.origins(ranks.rank)), &mut job, deadline)
            }
            // The peers need this rank's part of every round. The engine makes it while no caller waits here.
            ShmProtocol::Pipelined(_) => StartOutcome::Not,
        };
        match began {
            StartOutcome::Done(started) => {
                self.tallies.quick(job.lengths().longest(), || started);
                Ok(Pending::done(job, give_back))
            }
            // The job keeps the executor with its plan, because whoever waits or drives first continues it.
            StartOutcome::Left(exec, started) => {
                let plan = Plan::new(call, ranks, ExecutionPlan::Shm(shm));
                job.take_on(plan, Some(Exec::Shm(exec)), &mut self.tallies, || started);
                let pending = self.defer(job, (started, deadline), give_back);
                self.drives().now_and_then(|| started);
                Ok(pending)
            }
            StartOutcome::Not => self.start_planned(
                job,
                Ok(Plan::new(call, ranks, ExecutionPlan::Shm(shm))),
                deadline,
                give_back,
            ),
        }
    }

    /// Sends the messages of a job without the engine, and computes its result if the peers' messages are there. Only
    /// if no other operation is under way, and no buffer has to be lent to a device.
    ///
    /// Reads no clock before the messages are sent, because the peers wait for them. Takes no lock before the peers'
    /// messages are polled for: a store to a window is slow to leave this core, and a lock would wait for it.
    #[inline]
    fn try_start_fast(
        &mut self,
        (shm, origins): (&ShmPlan, Origins),
        job: &mut Job,
        deadline: Deadline,
    ) -> StartOutcome {
        let Some(fast) = self.fast_path(deadline, handover_within) else { return StartOutcome::Not };
        let Some(mut buffers) = job.at_hand(origins) else { return StartOutcome::Not };
        let mut exec = ShmExec::new(shm, fast.sequence, deadline.instant());
        if !exec.begin_soon(fast.host, &buffers, fast.scratch) {
            return StartOutcome::Not;
        }
        let started = Instant::now();
        exec.begun_at(started);
        let mut with = ShmContext { host: fast.host, buffers: &mut buffers, scratch: &mut *fast.scratch };
        let come = exec.has_arrived_soon(&mut with);
        // If the result cannot be computed, the engine tries again and reports the error.
        if come && exec.finish(fast.host, &mut buffers, fast.scratch).is_ok() {
            fast.done(|| started);
            return StartOutcome::Done(started);
        }
        StartOutcome::Left(exec, started)
    }

    /// Checks that this process has the engine, and that the buffers of a job were allocated on it: another engine's
    /// device has not registered them.
    fn check_job(&self, job: &Job) -> Result<(), CollectiveError> {
        self.engine().check_process()?;
        let is_own = |job: &Job| job.is_of(self.engine());
        if is_own(job) && job.input.as_deref().is_none_or(is_own) {
            Ok(())
        } else {
            Err(CollectiveError::ForeignMemory)
        }
    }

    /// Queues a job with its plan. If there is none, the buffers go back to the caller with the error.
    fn start_planned<T>(
        &mut self,
        mut job: Box<Job>,
        plan: Result<Plan, CollectiveError>,
        deadline: Deadline,
        give_back: fn(Box<Job>) -> T,
    ) -> Result<Pending<T>, Refused<T, CollectiveError>> {
        let started = match plan {
            Ok(plan) => {
                job.take_on(plan, None, &mut self.tallies, Instant::now);
                self.start(job, deadline, give_back)
            }
            Err(error) => Err((job, error)),
        };
        started.map_err(|(mut job, error)| {
            job.counted.end(Err(&error));
            Refused { object: give_back(job), error }
        })
    }
}

/// Calls with uneven parts.
impl Communicator {
    /// The plan of an uneven call whose buffers have these lengths in bytes.
    fn plan_uneven(
        &mut self,
        (request, counts): (Request, Counts<'_>),
        data_type: DataType,
        [input, output]: [usize; 2],
        ownership: Ownership,
    ) -> Result<Plan, CollectiveError> {
        let (rank, ranks, staging) = (self.rank(), self.size(), self.link_staging(Reach::All));
        let shares = Sides { rank, ranks, data_type, input, output }.shares(request, counts)?;
        // Only an all-gather has a count that all ranks know, so only there can the header be compared. The other
        // counts are checked by each pair of ranks.
        let count = if request.collective == Collective::AllGatherV { output / data_type.size() } else { 0 };
        let call = request.of(count, data_type);
        let steps =
            P2pSchedule::uneven(Operation { rank, ranks, count: 0, data_type, staging }, shares.into())?;
        let execution = self.plan_p2p(call, (Algorithm::Pairs, steps, Reach::All), ownership)?;
        self.chose((call.collective, input.max(output)), |_| execution.name().to_owned());
        Ok(Plan::new(call, RankOf { rank, size: ranks }, execution))
    }

    /// Carries an uneven collective out on borrowed slices.
    pub(in crate::collective) fn call_uneven(
        &mut self,
        requested: (Request, Counts<'_>),
        data_type: DataType,
        input: &[u8],
        output: &mut [u8],
        deadline: Deadline,
    ) -> Result<(), CollectiveError> {
        self.engine().check_process()?;
        let started = Instant::now();
        let plan =
            self.plan_uneven(requested, data_type, [input.len(), output.len()], Ownership::Borrowed)?;
        let mut buffers = Borrowed::out_of_place(input, output);
        self.carry_out((&plan, None), (&mut buffers, &mut []), started, deadline)
    }

    /// Begins an uneven collective on a tensor, into another.
    #[expect(clippy::type_complexity, reason = "both tensors go in and come back")]
    pub(in crate::collective) fn start_uneven<T: Element>(
        &mut self,
        requested: (Request, Counts<'_>),
        input: Tensor<T>,
        output: Tensor<T>,
        deadline: Deadline,
    ) -> Result<Pending<(Tensor<T>, Tensor<T>)>, Refused<(Tensor<T>, Tensor<T>), CollectiveError>> {
        let job = output.into_job(Some(input));
        let lengths = [job.input.as_deref().map_or(0, Job::len), job.len()];
        let plan = self.check_job(&job);
        let plan = plan.and_then(|()| self.plan_uneven(requested, T::DATA_TYPE, lengths, Ownership::Owned));
        self.start_planned(job, plan, deadline, Tensor::both_from_job)
    }
}

/// Sends and receives.
impl Communicator {
    /// Carries sends and receives out on borrowed slices, one for each of `calls`. A send has its slice as the input,
    /// and a receive has its slice in place.
    pub(in crate::collective) fn call_points<'b>(
        &mut self,
        calls: &[Call],
        mut buffers: Vec<Borrowed<'b>>,
        deadline: Deadline,
    ) -> Result<(), CollectiveError> {
        let set = SendRecvSet::new(calls, self.rank_of(), &self.link_staging(Reach::All))?;
        for at in set.own.iter().copied() {
            // A send of this rank to itself copies from one slice to the other.
            let both = buffers.get_disjoint_mut(at);
            if let Ok([Borrowed::OutOfPlace { output, .. }, Borrowed::InPlace(received)]) = both {
                *output = std::mem::take(received);
            }
        }
        self.run_points(calls, set, &mut buffers, deadline)
    }

    /// Sends a slice and receives as many bytes in place.
    pub(in crate::collective) fn call_in_place(
        &mut self,
        calls: [Call; 2],
        data: &mut [u8],
        deadline: Deadline,
    ) -> Result<(), CollectiveError> {
        let set = SendRecvSet::in_place(calls, self.rank_of(), &self.link_staging(Reach::All))?;
        self.run_points(&calls, set, &mut [Borrowed::InPlace(data)], deadline)
    }

    fn run_points<'b>(
        &mut self,
        calls: &[Call],
        set: SendRecvSet,
        buffers: &mut [Borrowed<'b>],
        deadline: Deadline,
    ) -> Result<(), CollectiveError> {
        self.engine().check_process()?;
        let plan = self.plan_points(calls, set)?;
        let mut nothing = Borrowed::InPlace(&mut []);
        let buffers = buffers.split_first_mut().unwrap_or((&mut nothing, &mut []));
        self.carry_out((&plan, None), buffers, Instant::now(), deadline)
    }

    /// The plan of sends and receives. Links to the peers must exist.
    fn plan_points(&self, calls: &[Call], set: SendRecvSet) -> Result<Plan, CollectiveError> {
        set.peer().map_or(Ok(()), |peer| self.check_links(peer))?;
        // The call is of no meaning beside the calls of the set; a group may have none.
        let call = calls.first().copied().unwrap_or(Collective::Send.at(self.rank()).of(0, DataType::U8));
        Ok(Plan::new(call, self.rank_of(), ExecutionPlan::SendRecv(set)))
    }

    /// Begins to send the input of a job, to receive its output, or both. If that fails, the buffers go back to the
    /// caller with the error.
    pub(in crate::collective) fn start_points<T>(
        &mut self,
        job: Box<Job>,
        requests: &[Request],
        data_type: DataType,
        deadline: Deadline,
        give_back: fn(Box<Job>) -> T,
    ) -> Result<Pending<T>, Refused<T, CollectiveError>> {
        let calls = requests.iter().map(|request| {
            let sent = job.input.as_deref().filter(|_| request.collective == Collective::Send);
            Call::point(*request, data_type, sent.unwrap_or(&job).len())
        });
        let calls = match calls.collect::<Result<Vec<_>, _>>() {
            Ok(calls) => calls,
            Err(error) => return Err(Refused { object: give_back(job), error: error.into() }),
        };
        let (ranks, staging) = (self.rank_of(), self.link_staging(Reach::All));
        let points = match calls[..] {
            [send, receive] if job.input.is_none() => SendRecvSet::in_place([send, receive], ranks, &staging),
            _ => SendRecvSet::new(&calls, ranks, &staging),
        };
        let plan = points.and_then(|set| {
            self.check_job(&job)?;
            self.plan_points(&calls, set)
        });
        self.start_planned(job, plan, deadline, give_back)
    }

    /// The slots of the mailboxes of a reach, from which the cut of messages between two ranks follows.
    pub(super) fn link_staging(&self, reach: Reach) -> Staging {
        // Both ends must cut alike, so this depends only on options that all ranks have in common.
        let Geometry { slots, slot_bytes } = link_geometry(self.options(), self.size(), reach);
        Staging { slots, slot_bytes, ..staging(self.options()) }
    }
}

/// The result of a `start_…` call on the fast path.
#[expect(clippy::large_enum_variant, reason = "it goes where the operation goes on, without an allocation")]
enum StartOutcome {
    /// The operation, begun at that time, is complete.
    Done(Instant),
    /// The messages were sent at that time; the operation becomes a deferred one.
    Left(ShmExec, Instant),
    /// Nothing was sent.
    Not,
}
