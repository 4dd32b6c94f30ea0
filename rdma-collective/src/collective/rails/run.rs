//! Carries operations out over rails: one that is small over all of them, of which the first to be done counts, and a large
//! one in pieces.

use std::ops::Range;
use std::time::{Duration, Instant};

use rdma_core::Deadline;

use super::Rails;
use super::buffers::{Buffers, Shape};
use super::stripe::{STATEMENT_BYTES, Statement, Stripes, pieces};
use crate::collective::CollectiveError;
use crate::collective::call::{Call, Collective, Request};
use crate::collective::communicator::{Pending, StillPending, WaitError};
use crate::collective::rank_of::RankOf;
use crate::collective::{DataType, Tensor};

/// How long one rail is waited for while others are under way too: their engines may have nobody else to drive them.
const TURN: Duration = Duration::from_micros(200);

/// An operation under way, on the rail of that number.
type Flight = (usize, Pending<Tensor<u8>>);

/// What is done over rails.
#[derive(Clone, Copy)]
struct Task {
    call: (Request, DataType),
    shape: Shape,
    deadline: Deadline,
}

impl Rails {
    /// Carries a collective out, and leaves its result in `buffers`.
    pub(super) fn carry_out(
        &mut self,
        request: Request,
        data_type: DataType,
        buffers: &mut Buffers<'_>,
        deadline: Deadline,
    ) -> Result<(), CollectiveError> {
        let ranks = RankOf { rank: self.rank(), size: self.size() };
        let call = Call::new(request, data_type, buffers.lengths(), ranks)?;
        let shape = Shape::new(request, ranks, call.bytes());
        let task = Task { call: (request, data_type), shape, deadline };
        if shape.parts() * call.bytes() >= self.options.stripe_bytes_min {
            self.striped(task, call.count, buffers)
        } else {
            self.everywhere(task, 0..call.bytes(), buffers)
        }
    }

    /// Over every rail at once: the first result is everybody's, since others have theirs by that rail or by another.
    fn everywhere(
        &mut self,
        task: Task,
        bytes: Range<usize>,
        buffers: &mut Buffers<'_>,
    ) -> Result<(), CollectiveError> {
        let mut under_way = Vec::new();
        for number in 0..self.rails.len() {
            if let Err(error) = self.rails[number].catch_up(number, task.deadline) {
                self.fail(number, error);
            }
            under_way.extend(self.start(number, task, bytes.clone(), buffers)?);
        }
        loop {
            let mut left = Vec::new();
            let mut done = None;
            let alone = under_way.len() == 1;
            for (number, pending) in under_way {
                let until = match done {
                    None if alone => task.deadline,
                    None => Deadline::after(TURN),
                    Some(_) => Deadline::at(Instant::now()),
                };
                match self.wait(number, pending, until) {
                    Ok(Some(tensor)) => done = Some((number, tensor)),
                    Ok(None) => {}
                    Err(pending) => left.push((number, pending)),
                }
            }
            if let Some((number, tensor)) = done {
                task.shape.give_back(&tensor, buffers, bytes);
                self.rails[number].take_back(tensor);
                for (number, pending) in left {
                    self.rails[number].leave_behind(pending);
                }
                return Ok(());
            }
            if left.is_empty() {
                return Err(self.failure());
            }
            under_way = left;
        }
    }

    /// In pieces, each on its rail, and what a rail has not done again on those that are left.
    fn striped(
        &mut self,
        task: Task,
        elements: usize,
        buffers: &mut Buffers<'_>,
    ) -> Result<(), CollectiveError> {
        let size = task.call.1.size();
        let bytes = |piece: &Range<usize>| piece.start * size..piece.end * size;
        let piece_max = self.options.piece_bytes / (size * task.shape.parts());
        let mut stripes = Stripes::new(elements, piece_max, self.live);
        while let Some(range) = stripes.next_round() {
            let mut under_way = Vec::new();
            for (number, piece) in pieces(range.clone(), stripes.live) {
                under_way.extend(self.start(number, task, bytes(&piece), buffers)?);
            }
            let mut results = self.wait_for_all(under_way);
            let all = self.state(task.deadline, &results)?;
            let live = stripes.live;
            for (number, piece) in stripes.decide(range, all) {
                if let Some(at) = results.iter().position(|(rail, _)| *rail == number) {
                    let (_, tensor) = results.swap_remove(at);
                    task.shape.give_back(&tensor, buffers, bytes(&piece));
                    self.rails[number].take_back(tensor);
                }
            }
            for (number, tensor) in results {
                self.rails[number].take_back(tensor);
            }
            for number in live.iter().filter(|number| all.lost.contains(*number)) {
                self.fail(number, CollectiveError::RailLost { rail: number });
            }
            self.live = stripes.live;
        }
        if stripes.is_done() { Ok(()) } else { Err(self.failure()) }
    }

    /// Begins an operation on one rail, if it can; what is wrong with the call is told.
    fn start(
        &mut self,
        number: usize,
        Task { call, shape, deadline }: Task,
        bytes: Range<usize>,
        buffers: &Buffers<'_>,
    ) -> Result<Option<Flight>, CollectiveError> {
        let len = shape.parts() * bytes.len();
        let fill = |memory: &mut [u8]| shape.fill(memory, buffers, bytes);
        match self.rails[number].start(call, len, fill, deadline) {
            Ok(pending) => Ok(Some((number, pending))),
            Err(error @ (CollectiveError::Schedule(_) | CollectiveError::Reduce(_))) => Err(error),
            Err(error) => {
                self.fail(number, error);
                Ok(None)
            }
        }
    }

    /// The result of an operation, if its rail has not failed; or the operation, when it is under way `until` then.
    fn wait(
        &mut self,
        number: usize,
        pending: Pending<Tensor<u8>>,
        until: Deadline,
    ) -> Result<Option<Tensor<u8>>, Pending<Tensor<u8>>> {
        match pending.wait(until) {
            Ok(tensor) => Ok(Some(tensor)),
            Err(WaitError::StillPending(StillPending(pending))) => Err(pending),
            Err(WaitError::Failed(error)) => {
                self.fail(number, error);
                Ok(None)
            }
        }
    }

    /// The results of those whose rails do not fail. Each ends at its own deadline at the latest.
    fn wait_for_all(&mut self, mut under_way: Vec<Flight>) -> Vec<(usize, Tensor<u8>)> {
        let mut results = Vec::new();
        while !under_way.is_empty() {
            for (number, pending) in std::mem::take(&mut under_way) {
                match self.wait(number, pending, Deadline::after(TURN)) {
                    Ok(tensor) => results.extend(tensor.map(|tensor| (number, tensor))),
                    Err(pending) => under_way.push((number, pending)),
                }
            }
        }
        results
    }

    /// Tells all ranks what this one has come to; what they all have.
    fn state(
        &mut self,
        deadline: Deadline,
        results: &[(usize, Tensor<u8>)],
    ) -> Result<Statement, CollectiveError> {
        let lost = (0..self.rails.len()).filter(|number| self.rails[*number].has_failed()).collect();
        let own = Statement { done: results.iter().map(|(number, _)| *number).collect(), lost };
        let ranks = RankOf { rank: self.rank(), size: self.size() };
        let mut statements = vec![0; STATEMENT_BYTES * self.size() as usize];
        let at = STATEMENT_BYTES * self.rank() as usize;
        statements[at..at + STATEMENT_BYTES].copy_from_slice(&own.encode());
        let request = Request::from(Collective::AllGather);
        let shape = Shape::new(request, ranks, STATEMENT_BYTES);
        let task = Task { call: (request, DataType::U8), shape, deadline };
        self.everywhere(task, 0..STATEMENT_BYTES, &mut Buffers::InPlace(&mut statements))?;
        Ok(Statement::of_all(&statements))
    }

    /// Nothing goes over a rail any more.
    fn fail(&mut self, number: usize, error: CollectiveError) {
        // What comes only since another rail has failed before says nothing of why.
        let follows = matches!(
            error,
            CollectiveError::Queued | CollectiveError::Ended { .. } | CollectiveError::RailLost { .. }
        );
        if self.rails[number].fail(number, &error) && !(follows && self.failure.is_some()) {
            self.failure = Some(error);
        }
    }

    /// Why nothing goes over any rail: what the last one failed with.
    fn failure(&self) -> CollectiveError {
        self.failure.clone().unwrap_or(CollectiveError::RailLost { rail: 0 })
    }
}
