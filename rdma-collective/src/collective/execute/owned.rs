//! How collectives begin on memory of the library's: where ranks leave each other messages, in the thread of the caller, and may be
//! done when they have begun; else by the engine.

use std::time::Instant;

use rdma_core::{Deadline, Refused};

use super::flat::Flat;
use super::running::Running;
use super::stage::At;
use super::{InWindows, Job, Memory, Plan, Way};
use crate::collective::CollectiveError;
use crate::collective::call::{Call, Request};
use crate::collective::communicator::{Communicator, Output, Pending};
use crate::collective::{DataType, Element, Tensor};

impl Communicator {
    /// Begins a collective on a tensor, in its place.
    pub(in crate::collective) fn start_in_place<T: Element>(
        &mut self,
        request: Request,
        tensor: Tensor<T>,
        deadline: Deadline,
    ) -> Result<Pending<Tensor<T>>, Refused<Tensor<T>, CollectiveError>> {
        self.start_call(request, T::DATA_TYPE, tensor.into_job(None), deadline).map_err(|(job, error)| {
            let (_, object) = Tensor::pair_from_job(job);
            Refused { object, error }
        })
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
        self.start_call(request, T::DATA_TYPE, job, deadline)
            .map_err(|(job, error)| Refused { object: Tensor::both_from_job(job), error })
    }

    /// Begins a collective on the memory of a job, or gives it back.
    pub(in crate::collective) fn start_call<T: Output>(
        &mut self,
        request: Request,
        data_type: DataType,
        mut job: Box<Job>,
        deadline: Deadline,
    ) -> Result<Pending<T>, (Box<Job>, CollectiveError)> {
        let ranks = [self.rank(), self.size()];
        let call = Call::new(request, data_type, job.lengths(), ranks);
        let call = match call.and_then(|call| self.check_memory(&job).map(|()| call)) {
            Ok(call) => call,
            Err(error) => return Err((job, error)),
        };
        let Some(what) = self.near(call, Memory::Owned) else {
            let class = self.class(call);
            let plan = self.way(call, class, Memory::Owned).map(|way| {
                self.say_way(call, class, (way.taken(), way.name()));
                Plan::new(call, ranks, way)
            });
            return match plan {
                Ok(plan) => {
                    job.take_on(plan, None);
                    self.start_job(job, deadline)
                }
                Err(error) => Err((job, error)),
            };
        };
        let began = match what {
            InWindows::Messages(_) => self.leave_at_once(&what, &mut job, deadline),
            // Others wait for what this rank makes of pieces: the engine sees to that while nobody waits here.
            InWindows::Pieces(_) => Began::Not,
        };
        match began {
            Began::Done(started) => {
                self.drives().now_and_then(|| started);
                Ok(Pending::done(job))
            }
            Began::Left(flat, started) => {
                job.take_on(Plan::new(call, ranks, Way::Flat(what)), Some(Running::Flat(flat)));
                let pending = self.set_apart(job, deadline, started);
                self.drives().now_and_then(|| started);
                Ok(pending)
            }
            Began::Not => {
                job.take_on(Plan::new(call, ranks, Way::Flat(what)), None);
                self.start_job(job, deadline)
            }
        }
    }

    /// Leaves the messages of a job without the engine, if nothing else is under way and nothing of its memory has to be lent to a
    /// device for it, and makes its result if those of the others are there.
    ///
    /// No lock is taken before they are looked for, which would wait until this rank's have arrived, and no exact clock is read before
    /// those are left: others wait for them.
    #[inline]
    fn leave_at_once(&mut self, what: &InWindows, job: &mut Job, deadline: Deadline) -> Began {
        let origins = what.call().origins(self.rank());
        let Some(now) = self.at_once_or_apart(deadline) else { return Began::Not };
        let Some(mut buffers) = job.at_hand(origins) else { return Began::Not };
        let mut flat = Flat::new(what, now.sequence, deadline.instant());
        if !flat.begin_soon(now.host, &buffers, now.scratch) {
            return Began::Not;
        }
        let started = Instant::now();
        flat.begun_at(started);
        let mut at = At { host: now.host, buffers: &mut buffers, scratch: &mut *now.scratch };
        let come = flat.has_all_soon(&mut at);
        // If it cannot be made, the engine says why.
        if come && flat.finish(now.host, &mut buffers, now.scratch).is_ok() {
            now.done();
            return Began::Done(started);
        }
        Began::Left(flat, started)
    }
}

/// How far an operation has come when it begins.
#[expect(clippy::large_enum_variant, reason = "it goes where the operation goes on, without an allocation")]
enum Began {
    /// It is done, and began then.
    Done(Instant),
    /// Its messages are left, since then.
    Left(Flat, Instant),
    Not,
}
