//! Planning: which algorithm and protocol a call takes, by the tuning table and by what the ranks can.

use super::pipeline::PipelinePlan;
use super::plan::{CachedPlan, ExecutionPlan, Fallback, LinkSetup, Ownership, P2pPlan, ShmPlan, ShmProtocol};
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
    /// The ways that it may take, as the table has them.
    pub(super) fn class(&self, call: Call) -> Class {
        let find = |collective| self.orders().find(collective, call.bytes() as u64);
        call.collective.tuned().map(find).unwrap_or_default()
    }

    /// Says which it takes, once for each size.
    pub(super) fn announce_plan(&mut self, call: Call, class: Class, (taken, name): (Algorithm, &str)) {
        self.chose(call.class(), |orders| match call.collective.tuned() {
            Some(_) => format!("{name} {}", orders.said(class, taken)),
            None => name.to_owned(),
        });
    }

    /// Where the memory of all lies, around the ring, or else by links that it opens.
    pub(super) fn plan_execution(
        &mut self,
        call: Call,
        class: Class,
        ownership: Ownership,
    ) -> Result<ExecutionPlan, CollectiveError> {
        let (ranks, options) = (self.rank_of(), self.options());
        let staging = staging(options);
        let around = || call.schedule(ranks, staging, options.reproducible);
        // Whatever goes in windows was asked before.
        let mut ways = class.ways().filter(|way| !matches!(way, Algorithm::Flat | Algorithm::Pieces));
        let by = loop {
            let way = match ways.next() {
                Some(Algorithm::Direct) => match self.pipeline_instead(call, class) {
                    Some(pieces) => Some(self.plan_zero_copy(call, Fallback::Pipelined(pieces))?),
                    None => {
                        around()?.map(|steps| self.plan_zero_copy(call, Fallback::Ring(steps))).transpose()?
                    }
                },
                Some(Algorithm::Ring) => around()?.map(ExecutionPlan::Ring),
                by => break by.unwrap_or(Algorithm::Pairs),
            };
            if let Some(way) = way {
                return Ok(way);
            }
        };
        let (steps, reach) = call.rounds(ranks, self.link_staging(), (by, self.hosts()))?;
        self.plan_p2p(call, (by, steps, reach), ownership)
    }

    /// Where the memory of all lies, or elsewhere if not all own theirs.
    fn plan_zero_copy(&self, call: Call, elsewhere: Fallback) -> Result<ExecutionPlan, ScheduleError> {
        let (ranks, options) = (self.rank_of(), self.options());
        let order = call.order(ranks, staging(options), options.reproducible)?;
        let piece = piece_bytes(call, ranks.size, ZERO_COPY_PIECE_BYTES);
        Ok(ExecutionPlan::ZeroCopy(ZeroCopyPlan::new(call, ranks, order, piece), elsewhere))
    }

    /// In rounds, by links of that reach: they are opened for it unless there are some.
    pub(super) fn plan_p2p(
        &mut self,
        call: Call,
        (algorithm, steps, reach): (Algorithm, P2pSchedule, Reach),
        ownership: Ownership,
    ) -> Result<ExecutionPlan, CollectiveError> {
        if self.is_linked(reach) {
            return Ok(ExecutionPlan::P2p(P2pPlan { algorithm, steps, reach, connect: None }));
        }
        let (ranks, staging) = (self.rank_of(), staging(self.options()));
        let words = |bytes| self.words(bytes, staging);
        let words = [words(word_bytes(reach, self.size()))?, words(VERDICT_BYTES)?];
        let instead = call.schedule(ranks, staging, self.options().reproducible)?;
        let connect = Some(Box::new(LinkSetup { words, instead }));
        if ownership == Ownership::Owned {
            // Links that are opened for an operation which is refused would be connected by none.
            self.check_queue()?;
        }
        self.open_links(reach);
        Ok(ExecutionPlan::P2p(P2pPlan { algorithm, steps, reach, connect }))
    }

    /// How words of so many bytes come from each rank to all others.
    fn words(&self, count: usize, staging: Staging) -> Result<Schedule, ScheduleError> {
        let (rank, ranks) = (self.rank(), self.size());
        Schedule::all_gather(Operation { rank, ranks, count, data_type: DataType::U8, staging })
    }

    /// The plan of a call through the windows of a host, where the call goes that way: the last one again, if the call is the same.
    #[inline]
    pub(super) fn shm_plan(&mut self, call: Call, ownership: Ownership) -> Option<ShmPlan> {
        match &self.cached_plan {
            Some(cached) if cached.call == call && cached.ownership == ownership => Some(cached.plan),
            _ => self.plan_shm(call, ownership),
        }
    }

    #[inline(never)]
    fn plan_shm(&mut self, call: Call, ownership: Ownership) -> Option<ShmPlan> {
        let class = self.class(call);
        let protocol = self.shm_protocol(call, class, ownership)?;
        let plan = ShmPlan::new(call, self.rank_of(), protocol);
        self.announce_plan(call, class, (plan.algorithm(), plan.algorithm().name()));
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
                // A rank that knows its own buffers to be borrowed need not ask where those of the others are.
                Algorithm::Direct if ownership == Ownership::Borrowed => {
                    return self.pipeline_instead(call, class).map(ShmProtocol::Pipelined);
                }
                _ => return None,
            }
        }
        None
    }

    /// The pieces that take the place of what needs memory of all ranks' own. Not where the ring does, which always can if there is one,
    /// nor where what goes by links is asked for and pieces are not.
    fn pipeline_instead(&self, call: Call, class: Class) -> Option<PipelinePlan> {
        let mut behind = class.ways().skip_while(|way| *way != Algorithm::Direct);
        let asked = |way: &Algorithm| {
            let algorithms = self.options().algorithms;
            !way.needs_mapped() && call.collective.tuned().is_some_and(|of| algorithms.allow(of, *way))
        };
        match behind.find(|way| matches!(way, Algorithm::Pieces | Algorithm::Ring)) {
            Some(Algorithm::Ring) => return None,
            None if class.ways().any(|way| asked(&way)) => return None,
            _ => {}
        }
        PipelinePlan::new(call, self.rank_of(), self.options())
    }
}
