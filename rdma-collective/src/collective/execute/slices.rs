//! How collectives are carried out on slices of the caller's: in its thread while that is quick, and with the engine from then on.

use std::time::Instant;

use rdma_core::Deadline;

use super::flat::Flat;
use super::running::{self, Running};
use super::stage::At;
use super::{Borrowed, InWindows, Memory, Plan, Way};
use crate::collective::CollectiveError;
use crate::collective::DataType;
use crate::collective::call::{Call, Request};
use crate::collective::communicator::{Among, Communicator};

impl Communicator {
    /// Carries a collective out on slices of the caller's.
    pub(in crate::collective) fn call(
        &mut self,
        request: Request,
        data_type: DataType,
        mut buffers: Borrowed<'_>,
        deadline: Deadline,
    ) -> Result<(), CollectiveError> {
        let ranks = [self.rank(), self.size()];
        let call = Call::new(request, data_type, buffers.lengths(), ranks)?;
        buffers.lie_at(call.origins(ranks[0]));
        let Some(what) = self.near(call, Memory::Borrowed) else {
            let class = self.class(call);
            let way = self.way(call, class, Memory::Borrowed)?;
            self.say_way(call, class, (way.taken(), way.name()));
            let plan = Plan::new(call, ranks, way);
            return self.carry_out((&plan, None), &mut buffers, Instant::now(), deadline);
        };
        match self.call_at_once(&what, &mut buffers, deadline) {
            AtOnce::Done => {
                self.drives().now_and_then(Instant::now);
                Ok(())
            }
            AtOnce::Left(flat, started) => {
                let plan = Plan::new(call, ranks, Way::Flat(what));
                self.carry_out((&plan, flat), &mut buffers, started, deadline)
            }
        }
    }

    /// The same in the thread of the caller, while nothing else is under way and the others are there.
    ///
    /// No exact clock is read before this rank's messages are left: others wait for them.
    #[inline]
    fn call_at_once(&mut self, what: &InWindows, buffers: &mut Borrowed<'_>, deadline: Deadline) -> AtOnce {
        let Some(mut now) = self.at_once(deadline) else { return AtOnce::Left(None, Instant::now()) };
        let mut flat = Flat::new(what, now.sequence, deadline.instant());
        let refused = flat.begin(now.host, buffers, now.scratch).is_err();
        let started = Instant::now();
        if refused {
            // With its reason there.
            return AtOnce::Left(None, started);
        }
        flat.begun_at(started);
        let mut at = At { host: now.host, buffers: &mut *buffers, scratch: &mut *now.scratch };
        let come = flat.hurry(&mut at, deadline, || {
            now.drives.now_and_then(Instant::now);
            now.turn.is_open()
        });
        if come && flat.finish(now.host, buffers, now.scratch).is_ok() {
            now.done();
            return AtOnce::Done;
        }
        AtOnce::Left(Some(flat), started)
    }

    /// The same with the engine at hand, from what has begun already on.
    #[inline(never)]
    pub(super) fn carry_out(
        &mut self,
        (plan, mut begun): (&Plan, Option<Flat>),
        buffers: &mut Borrowed<'_>,
        started: Instant,
        deadline: Deadline,
    ) -> Result<(), CollectiveError> {
        let among = if begun.is_some() { Among::AllTold } else { Among::All };
        self.run(
            deadline,
            among,
            |parts, core, sequence| {
                let told = begun.take().map(Running::Flat);
                told.or_else(|| Running::begin(plan, parts, sequence, started))
                    .inspect(|_| running::watch(parts, core, started))
            },
            |running, parts, core| running::advance(running.as_mut(), plan, parts, core, buffers),
            |running, parts, core| running::late(running.as_mut(), parts, core),
        )
    }
}

/// What came of an attempt.
#[expect(clippy::large_enum_variant, reason = "it goes where the operation goes on, without an allocation")]
enum AtOnce {
    Done,
    /// It has begun, or it has not, by then.
    Left(Option<Flat>, Instant),
}
