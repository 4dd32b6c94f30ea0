//! Planning: which algorithm and protocol a call takes. It depends on the tuning table and on what the ranks can do.
//!
//! `plan` holds the result as data, and `tuning` owns the table. All ranks must come to compatible plans without a
//! message, so planning looks only at the call and at what all ranks have in common; ownership is the one exception.

use super::pipeline::PipelinePlan;
use super::plan::{
    CachedPlan, ExecutionPlan, Fallback, LinkPlan, LinkSetup, Ownership, ShmPlan, ShmProtocol,
};
use super::zero_copy::piece_bytes;
use crate::collective::call::{Call, staging};
use crate::collective::communicator::{
    Algorithm, Communicator, Reach, VERDICT_BYTES, ZERO_COPY_PIECE_BYTES, word_bytes,
};
use crate::collective::eager_plan::EagerPlan;
use crate::collective::schedule::{Operation, P2pSchedule, Schedule, Staging};
use crate::collective::tuning::Class;
use crate::collective::zero_copy_plan::ZeroCopyPlan;
use crate::collective::{CollectiveError, DataType, ScheduleError};

impl Communicator {
    /// The algorithms that the call may take, in the order of the tuning table.
    pub(super) fn class(&self, call: Call) -> Class {
        let find = |collective| self.orders().find(collective, call.bytes() as u64);
        call.collective.tuned().map(find).unwrap_or_default()
    }

    /// Logs the algorithm of the call, once for each class of sizes.
    pub(super) fn announce_plan(&mut self, call: Call, class: Class, (taken, name): (Algorithm, &str)) {
        self.chose(call.class(), |orders| match call.collective.tuned() {
            Some(_) => format!("{name} {}", orders.said(class, taken)),
            None => name.to_owned(),
        });
    }

    /// The plan of a call that does not go through the windows: zero-copy, around the ring, or else over links to any
    /// ranks.
    pub(super) fn plan_execution(
        &mut self,
        call: Call,
        class: Class,
        ownership: Ownership,
    ) -> Result<ExecutionPlan, CollectiveError> {
        let (ranks, options) = (self.rank_of(), self.options());
        let staging = staging(options);
        let around =
            || call.schedule(ranks, staging, options.reproducible).map(|steps| steps.map(LinkPlan::around));
        // `plan_shm` has tried the algorithms through windows before.
        let mut algorithms = class.ways().filter(|by| !matches!(by, Algorithm::Flat | Algorithm::Pieces));
        let by = loop {
            let execution = match algorithms.next() {
                Some(Algorithm::Direct) => match self.pipeline_instead(call, class) {
                    Some(pieces) => Some(self.plan_zero_copy(call, Fallback::Pipelined(pieces))?),
                    None => around()?
                        .map(|around| self.plan_zero_copy(call, Fallback::Ring(around)))
                        .transpose()?,
                },
                Some(Algorithm::Ring) => around()?.map(ExecutionPlan::Links),
                by => break by.unwrap_or(Algorithm::Pairs),
            };
            if let Some(execution) = execution {
                return Ok(execution);
            }
        };
        let reach = by.reach();
        let steps = call.rounds(ranks, self.link_staging(reach), (by, self.hosts()))?;
        self.plan_p2p(call, (by, steps, reach), ownership)
    }

    /// The zero-copy plan, with the fallback for the case that some rank has borrowed buffers.
    fn plan_zero_copy(&self, call: Call, elsewhere: Fallback) -> Result<ExecutionPlan, ScheduleError> {
        let (ranks, options) = (self.rank_of(), self.options());
        let order = call.order(ranks, staging(options), options.reproducible)?;
        let piece = piece_bytes(call, ranks.size, ZERO_COPY_PIECE_BYTES);
        Ok(ExecutionPlan::ZeroCopy(ZeroCopyPlan::new(call, ranks, order, piece), elsewhere))
    }

    /// The plan in rounds over links of the given reach. Opens the links unless they are connected.
    pub(super) fn plan_p2p(
        &mut self,
        call: Call,
        (algorithm, steps, reach): (Algorithm, P2pSchedule, Reach),
        ownership: Ownership,
    ) -> Result<ExecutionPlan, CollectiveError> {
        let steps = Schedule::P2p(steps);
        if self.is_linked(reach) {
            return Ok(ExecutionPlan::Links(LinkPlan { algorithm, steps, reach, connect: None }));
        }
        let (ranks, staging) = (self.rank_of(), staging(self.options()));
        let words = |bytes| self.words(bytes, staging);
        let words = [words(word_bytes(reach, self.size(), self.lanes_of_link()))?, words(VERDICT_BYTES)?];
        let instead = call.schedule(ranks, staging, self.options().reproducible)?.map(LinkPlan::around);
        let connect = Some(Box::new(LinkSetup { words, instead }));
        if ownership == Ownership::Owned {
            // Check the queue before opening links. If the operation were refused afterwards, nothing would ever
            // connect them.
            self.check_queue()?;
        }
        self.open_links(reach);
        Ok(ExecutionPlan::Links(LinkPlan { algorithm, steps, reach, connect }))
    }

    /// The all-gather that brings `count` bytes of each rank to all others.
    fn words(&self, count: usize, staging: Staging) -> Result<LinkPlan, ScheduleError> {
        let (rank, ranks) = (self.rank(), self.size());
        let operation = Operation { rank, ranks, count, data_type: DataType::U8, staging };
        Schedule::all_gather(operation).map(LinkPlan::around)
    }

    /// The plan of a call through the windows of a host, kept for a call that is equal; `None` if the call goes
    /// elsewhere.
    #[inline(never)]
    pub(super) fn plan_shm(&mut self, call: Call, ownership: Ownership) -> Option<ShmPlan> {
        let class = self.class(call);
        let protocol = self.shm_protocol(call, class, ownership)?;
        let plan = ShmPlan::new(call, self.rank_of(), protocol);
        self.announce_plan(call, class, (plan.algorithm(), plan.algorithm().name()));
        self.tallies.turn_to((call.collective, plan.algorithm()));
        self.cached_plan = Some(CachedPlan { call, ownership, plan });
        Some(plan)
    }

    fn shm_protocol(&self, call: Call, class: Class, ownership: Ownership) -> Option<ShmProtocol> {
        if !self.has_host_group() {
            return None;
        }
        for algorithm in class.ways() {
            match algorithm {
                Algorithm::Flat => {
                    if let Some(plan) = EagerPlan::new(call, self.rank_of(), self.options()) {
                        return Some(ShmProtocol::Eager(plan));
                    }
                }
                Algorithm::Pieces => {
                    if let Some(plan) = PipelinePlan::new(call, self.rank_of(), self.options()) {
                        return Some(ShmProtocol::Pipelined(plan));
                    }
                }
                // This rank's buffers are borrowed, so zero-copy cannot happen. Take its fallback at once: peers with
                // registered buffers learn of it from the first messages.
                Algorithm::Direct if ownership == Ownership::Borrowed => {
                    return self.pipeline_instead(call, class).map(ShmProtocol::Pipelined);
                }
                _ => return None,
            }
        }
        None
    }

    /// The pipelined fallback of a zero-copy call. `None` if the ring comes first in the table, since a ring can always
    /// take over; and if the options ask for an algorithm over links and not for pieces.
    fn pipeline_instead(&self, call: Call, class: Class) -> Option<PipelinePlan> {
        let mut behind = class.ways().skip_while(|by| *by != Algorithm::Direct);
        let asked = |by: &Algorithm| {
            let algorithms = self.options().algorithms;
            !by.needs_mapped() && call.collective.tuned().is_some_and(|of| algorithms.allow(of, *by))
        };
        match behind.find(|by| matches!(by, Algorithm::Pieces | Algorithm::Ring)) {
            Some(Algorithm::Ring) => return None,
            None if class.ways().any(|by| asked(&by)) => return None,
            _ => {}
        }
        PipelinePlan::new(call, self.rank_of(), self.options())
    }
}
