//! How sends and receives begin: on slices, and on memory that the operation owns.

use std::time::Instant;

use rdma_core::Deadline;

use super::flows::{Flows, Slices};
use super::running::{self, Running};
use super::{Job, Plan, Way, staging};
use crate::collective::DataType;
use crate::collective::call::{Call, Collective};
use crate::collective::points::Points;
use crate::collective::schedule::Staging;
use crate::comm::link::mailbox::Geometry;
use crate::comm::{Among, Communicator, Output, Pending, link_geometry};
use crate::error::CollectiveError;

impl Communicator {
    /// Carries sends and receives out on slices, one for each of `calls`.
    pub(in crate::collective) fn call_points(
        &mut self,
        calls: &[Call],
        mut slices: Slices<'_>,
        deadline: Deadline,
    ) -> Result<(), CollectiveError> {
        let points = self.points(calls)?;
        let started = Instant::now();
        self.run(
            deadline,
            Among::Some,
            |parts, core, sequence| {
                running::watch(parts, core, started);
                parts
                    .ring
                    .is_some()
                    .then(|| Running::Points(Flows::new(&points, (parts.rank, sequence), started)))
            },
            |running, parts, core| {
                running::advance_points(running.as_mut(), &points, parts, core, &mut slices)
            },
            |running, parts, core| running::late(running.as_mut(), parts, core),
        )
    }

    /// Begins to send the input of a job, or to receive its output, or both; or gives it back.
    pub(in crate::collective) fn start_points<T: Output>(
        &mut self,
        job: Box<Job>,
        collectives: &[Collective],
        data_type: DataType,
        deadline: Deadline,
    ) -> Result<Pending<T>, (Box<Job>, CollectiveError)> {
        let calls = collectives.iter().map(|collective| {
            let sent = job.input.as_deref().filter(|_| matches!(collective, Collective::Send { .. }));
            Call::point(*collective, data_type, sent.unwrap_or(&job).len())
        });
        let calls = match calls.collect::<Result<Vec<_>, _>>() {
            Ok(calls) => calls,
            Err(error) => return Err((job, error.into())),
        };
        let plan = self.points(&calls).map(|points| {
            let call = points.all[0].call;
            Plan { call, arithmetic: call.arithmetic(self.size()), way: Way::Points(points) }
        });
        match plan {
            Ok(plan) => self.start_job(job, plan, deadline),
            Err(error) => Err((job, error)),
        }
    }

    /// What this rank does in `calls`, to and from ranks that it has links to.
    fn points(&self, calls: &[Call]) -> Result<Points, CollectiveError> {
        let Geometry { slots, slot_bytes } = link_geometry(self.options(), self.size());
        let staging = Staging { slots, slot_bytes, ..staging(self.options()) };
        let points = Points::new(calls, [self.rank(), self.size()], &staging)?;
        let mut others = points.all.iter().map(|point| point.peer);
        let other = others.find(|peer| *peer != self.rank());
        other.map_or(Ok(()), |peer| self.check_links(peer))?;
        Ok(points)
    }
}
