//! Execution of operations over rails: a small one over all rails, of which the first result counts; a large one in
//! pieces.
//!
//! `stripe` decides about pieces and repetition; `rail` owns one rail.

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

/// The time to wait for one rail while others are under way, too: waiting drives the engine of one rail only.
const TURN: Duration = Duration::from_micros(200);

/// An operation under way, with the number of its rail.
type Flight = (usize, Pending<Tensor<u8>>);

/// An operation over rails: the call, the layout of its buffers and its deadline.
#[derive(Clone, Copy)]
struct Task {
    call: (Request, DataType),
    shape: Shape,
    deadline: Deadline,
}

impl Rails {
    /// Runs a collective and leaves its result in `buffers`.
    pub(super) fn carry_out(
        &mut self,
        request: Request,
        data_type: DataType,
        buffers: &mut Buffers<'_>,
        deadline: Deadline,
    ) -> Result<(), CollectiveError> {
        if let Some(rail) = self.rails.first() {
            rail.comm().engine().check_process()?;
        }
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

    /// Runs an operation over every rail at once and takes the first result. Other ranks may take theirs from another
    /// rail; the results are the same.
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

    /// Runs an operation in pieces, one for each rail, and repeats the pieces of failed rails on the rest.
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

    /// Starts an operation on one rail; `None` if the rail fails. Refusals of the call are returned, because every rail
    /// would refuse it.
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

    /// Waits for an operation: its result, `None` if its rail fails, or the operation if it is still under way at
    /// `until`.
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

    /// Waits for all operations and returns the results of rails that do not fail. Each ends by its own deadline.
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

    /// Tells all ranks which results this rank has and which rails it has lost; returns what all ranks together have.
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

    /// Marks a rail as failed and keeps the error that tells most.
    fn fail(&mut self, number: usize, error: CollectiveError) {
        // These errors only follow from the failure of another rail, so they must not hide its cause.
        let follows = matches!(
            error,
            CollectiveError::Queued | CollectiveError::Ended { .. } | CollectiveError::RailLost { .. }
        );
        if self.rails[number].fail(number, &error) && !(follows && self.failure.is_some()) {
            self.failure = Some(error);
        }
    }

    /// The error for an operation that no rail can carry: that of the rail that failed last.
    fn failure(&self) -> CollectiveError {
        self.failure.clone().unwrap_or(CollectiveError::RailLost { rail: 0 })
    }
}
