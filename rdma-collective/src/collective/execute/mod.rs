//! Carries an operation out, whatever it is: over the links of a ring or by messages between all ranks of a host, on memory that
//! is borrowed or registered.
//!
//! The steps are `schedule`'s and `exchange`'s; what is called, and where its buffers lie, is `call`'s.

mod buffers;
mod flat;
mod give_up;
mod hurry;
mod job;
mod run;
mod running;
mod stage;

use std::time::Instant;

use rdma_core::{Deadline, Refused};

pub(super) use self::buffers::{Arithmetic, Borrowed};
use self::flat::Flat;
pub(super) use self::job::{Job, from_any as job_from_any};
use self::running::Running;
use self::stage::At;
use super::call::{Call, Collective};
use super::exchange::Exchange;
use super::schedule::{Schedule, Staging};
use super::{DataType, Element, Tensor};
use crate::comm::{Communicator, CommunicatorOptions, Driver, Pending};
use crate::error::CollectiveError;

/// Bytes of a rank up to which an operation is done at once on an engine that nobody drives meanwhile.
const AT_ONCE_BYTES_MAX: usize = 1 << 20;

/// An operation that can begin.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    call: Call,
    arithmetic: Arithmetic,
    way: Way,
}

/// Which way an operation takes; the same on all ranks.
#[derive(Clone, Debug)]
#[expect(clippy::large_enum_variant, reason = "a schedule is iterated where it is, without an allocation")]
enum Way {
    Ring(Schedule),
    Flat(Exchange),
}

impl Communicator {
    /// What this rank does in `call`.
    fn plan(&self, call: Call) -> Result<Plan, CollectiveError> {
        let (ranks, options) = ([self.rank(), self.size()], self.options());
        let way = match self.exchange(call) {
            Some(exchange) => Way::Flat(exchange),
            None => Way::Ring(call.schedule(ranks, staging(options), options.reproducible)?),
        };
        Ok(Plan { call, arithmetic: call.arithmetic(self.size()), way })
    }

    /// What is told to whom, when that is the way to take.
    fn exchange(&self, call: Call) -> Option<Exchange> {
        let ranks = [self.rank(), self.size()];
        if self.has_host_group() { Exchange::new(call, ranks, self.options()) } else { None }
    }

    /// Carries a collective out on slices of the caller's.
    pub(super) fn call(
        &mut self,
        collective: Collective,
        data_type: DataType,
        mut buffers: Borrowed<'_>,
        deadline: Deadline,
    ) -> Result<(), CollectiveError> {
        let call = Call::new(collective, data_type, buffers.lengths(), [self.rank(), self.size()])?;
        buffers.lie_at(call.origins(self.rank()));
        let started = Instant::now();
        let mut flat = None;
        if let Some(exchange) = self.exchange(call) {
            match self.call_at_once(exchange, &mut buffers, started, deadline) {
                AtOnce::Done => {
                    self.drive_now_and_then(started);
                    return Ok(());
                }
                AtOnce::Left(begun) => flat = begun,
            }
        }
        let (plan, told) = (self.plan(call)?, flat.is_some());
        self.run(
            deadline,
            told,
            |parts, core, sequence| {
                let told = flat.take().map(Running::Flat);
                told.or_else(|| Running::begin(&plan, parts, sequence, started))
                    .inspect(|_| running::watch(parts, core, started))
            },
            |running, parts, core| running::advance(running.as_mut(), &plan, parts, core, &mut buffers),
            |running, parts, core| running::late(running.as_mut(), parts, core),
        )
    }

    /// The same in the thread of the caller, while nothing else is under way and the others are there.
    fn call_at_once(
        &mut self,
        exchange: Exchange,
        buffers: &mut Borrowed<'_>,
        started: Instant,
        deadline: Deadline,
    ) -> AtOnce {
        // What else there is on an engine that the caller drives does not wait for so long.
        let long = exchange.pieces.is_some() && exchange.call.bytes() > AT_ONCE_BYTES_MAX;
        let driven = self.engine().options().driver == Driver::Thread || !long;
        let Some(now) = self.at_once().filter(|_| driven && !deadline.expired_at(started)) else {
            return AtOnce::Left(None);
        };
        let mut flat = Flat::new(exchange, now.sequence, started);
        if flat.tell(now.host, buffers, now.scratch).is_err() {
            // It is refused with its reason there.
            return AtOnce::Left(None);
        }
        let mut at = At { host: now.host, buffers: &mut *buffers, scratch: &mut *now.scratch };
        if flat.hurry(&mut at, deadline, || now.turn.is_open())
            && flat.finish(now.host, buffers, now.scratch).is_ok()
        {
            now.done();
            return AtOnce::Done;
        }
        AtOnce::Left(Some(flat))
    }

    /// Begins a collective on a tensor, in its place.
    pub(super) fn start_in_place<T: Element>(
        &mut self,
        collective: Collective,
        tensor: Tensor<T>,
        deadline: Deadline,
    ) -> Result<Pending<Tensor<T>>, Refused<Tensor<T>, CollectiveError>> {
        self.start_call(collective, T::DATA_TYPE, tensor.into_job(None), deadline).map_err(|(job, error)| {
            let (_, object) = Tensor::pair_from_job(job);
            Refused { object, error }
        })
    }

    /// Begins a collective on a tensor, into another.
    #[expect(clippy::type_complexity, reason = "both tensors go in and come back")]
    pub(super) fn start_out_of_place<T: Element>(
        &mut self,
        collective: Collective,
        input: Tensor<T>,
        output: Tensor<T>,
        deadline: Deadline,
    ) -> Result<Pending<(Tensor<T>, Tensor<T>)>, Refused<(Tensor<T>, Tensor<T>), CollectiveError>> {
        let job = output.into_job(Some(input));
        self.start_call(collective, T::DATA_TYPE, job, deadline).map_err(|(job, error)| {
            let (input, output) = Tensor::pair_from_job(job);
            match input {
                Some(input) => Refused { object: (input, output), error },
                None => unreachable!("the operation was given one"),
            }
        })
    }

    /// Begins a collective on the memory of a job, or gives it back.
    pub(super) fn start_call<T: crate::comm::Output>(
        &mut self,
        collective: Collective,
        data_type: DataType,
        job: Box<Job>,
        deadline: Deadline,
    ) -> Result<Pending<T>, (Box<Job>, CollectiveError)> {
        let call = Call::new(collective, data_type, job.lengths(), [self.rank(), self.size()]);
        match call.and_then(|call| self.plan(call)) {
            Ok(plan) => self.start_job(job, plan, deadline),
            Err(error) => Err((job, error)),
        }
    }
}

/// What came of an attempt.
enum AtOnce {
    Done,
    /// It has begun, or it has not.
    Left(Option<Flat>),
}

/// What the schedule needs to know of the mailboxes.
fn staging(options: &CommunicatorOptions) -> Staging {
    Staging { slots: options.slots, slot_bytes: options.slot_bytes, chunk_bytes_min: options.chunk_bytes_min }
}

#[cfg(test)]
mod tests;
