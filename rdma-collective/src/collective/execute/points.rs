//! How sends and receives begin: on slices, and on memory that the operation owns.

use std::time::Instant;

use rdma_core::Deadline;

use super::flows::{Flows, Lent, Memory, Slices};
use super::running::{self, Running};
use super::{Borrowed, Job, Plan, Way, staging};
use crate::collective::CollectiveError;
use crate::collective::DataType;
use crate::collective::call::{Call, Collective, Request};
use crate::collective::communicator::{Among, Communicator, Output, Pending, link_geometry};
use crate::collective::points::Points;
use crate::collective::schedule::Staging;
use crate::link::mailbox::Geometry;

impl Communicator {
    /// Carries sends and receives out on slices, one for each of `calls`.
    pub(in crate::collective) fn call_points(
        &mut self,
        calls: &[Call],
        mut slices: Slices<'_>,
        deadline: Deadline,
    ) -> Result<(), CollectiveError> {
        let points = Points::new(calls, [self.rank(), self.size()], &self.link_staging())?;
        self.run_points(&points, &mut slices, deadline)
    }

    /// Sends a slice and receives as much in its place.
    pub(in crate::collective) fn call_in_place(
        &mut self,
        calls: [Call; 2],
        data: &mut [u8],
        deadline: Deadline,
    ) -> Result<(), CollectiveError> {
        let points = Points::in_place(calls, [self.rank(), self.size()], &self.link_staging())?;
        self.run_points(&points, &mut Lent(&mut Borrowed::InPlace(data)), deadline)
    }

    fn run_points<M: Memory>(
        &mut self,
        points: &Points,
        memory: &mut M,
        deadline: Deadline,
    ) -> Result<(), CollectiveError> {
        self.check_points(points)?;
        let started = Instant::now();
        self.run(
            deadline,
            Among::Some,
            |parts, core, sequence| {
                running::watch(parts, core, started);
                parts
                    .ring
                    .is_some()
                    .then(|| Running::Points(Flows::new(points, (parts.rank, sequence), started)))
            },
            |running, parts, core| running::advance_points(running.as_mut(), points, parts, core, memory),
            |running, parts, core| running::late(running.as_mut(), parts, core),
        )
    }

    /// Begins to send the input of a job, or to receive its output, or both; or gives it back.
    pub(in crate::collective) fn start_points<T: Output>(
        &mut self,
        mut job: Box<Job>,
        requests: &[Request],
        data_type: DataType,
        deadline: Deadline,
    ) -> Result<Pending<T>, (Box<Job>, CollectiveError)> {
        let calls = requests.iter().map(|request| {
            let sent = job.input.as_deref().filter(|_| request.collective == Collective::Send);
            Call::point(*request, data_type, sent.unwrap_or(&job).len())
        });
        let calls = match calls.collect::<Result<Vec<_>, _>>() {
            Ok(calls) => calls,
            Err(error) => return Err((job, error.into())),
        };
        let (ranks, staging) = ([self.rank(), self.size()], self.link_staging());
        let points = match calls[..] {
            [send, receive] if job.input.is_none() => Points::in_place([send, receive], ranks, &staging),
            _ => Points::new(&calls, ranks, &staging),
        };
        let plan = points.and_then(|points| {
            self.check_points(&points)?;
            let call = points.all[0].call;
            self.check_memory(&job)?;
            Ok(Plan::new(call, [self.rank(), self.size()], Way::Points(points)))
        });
        match plan {
            Ok(plan) => {
                job.take_on(plan, None);
                self.start_job(job, deadline)
            }
            Err(error) => Err((job, error)),
        }
    }

    /// What the cut of messages between two ranks follows from.
    pub(super) fn link_staging(&self) -> Staging {
        let Geometry { slots, slot_bytes } = link_geometry(self.options(), self.size());
        Staging { slots, slot_bytes, ..staging(self.options()) }
    }

    /// That there are links to the ranks.
    fn check_points(&self, points: &Points) -> Result<(), CollectiveError> {
        let mut others = points.all.iter().map(|point| point.peer);
        let other = others.find(|peer| *peer != self.rank());
        other.map_or(Ok(()), |peer| self.check_links(peer))
    }
}
