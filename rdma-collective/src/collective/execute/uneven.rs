//! How collectives begin whose ranks have parts of any length.

use std::time::Instant;

use rdma_core::{Deadline, Refused};

use super::{Borrowed, Job, Memory, Plan};
use crate::collective::CollectiveError;
use crate::collective::call::{Collective, Request};
use crate::collective::communicator::{Algorithm, Communicator, Pending, Reach};
use crate::collective::schedule::{Operation, Rounds};
use crate::collective::uneven::{Counts, Sides};
use crate::collective::{DataType, Element, Tensor};

impl Communicator {
    /// What this rank does with buffers of so many bytes.
    fn plan_uneven(
        &mut self,
        (request, counts): (Request, Counts<'_>),
        data_type: DataType,
        [input, output]: [usize; 2],
        memory: Memory,
    ) -> Result<Plan, CollectiveError> {
        let (rank, ranks, staging) = (self.rank(), self.size(), self.link_staging());
        let shares = Sides { rank, ranks, data_type, input, output }.shares(request, counts)?;
        // What all ranks know is told around the ring, and the rest from rank to rank.
        let count = if request.collective == Collective::AllGatherV { output / data_type.size() } else { 0 };
        let call = request.of(count, data_type);
        let steps = Rounds::uneven(Operation { rank, ranks, count: 0, data_type, staging }, shares.into())?;
        let way = self.by_links(call, (Algorithm::Pairs, steps, Reach::All), memory)?;
        self.chose((call.collective, input.max(output)), |_| way.name().to_owned());
        Ok(Plan::new(call, [rank, ranks], way))
    }

    /// Carries it out on slices of the caller's.
    pub(in crate::collective) fn call_uneven(
        &mut self,
        what: (Request, Counts<'_>),
        data_type: DataType,
        input: &[u8],
        output: &mut [u8],
        deadline: Deadline,
    ) -> Result<(), CollectiveError> {
        let started = Instant::now();
        let plan = self.plan_uneven(what, data_type, [input.len(), output.len()], Memory::Borrowed)?;
        self.carry_out((&plan, None), &mut Borrowed::out_of_place(input, output), started, deadline)
    }

    /// Begins it on a tensor, into another.
    #[expect(clippy::type_complexity, reason = "both tensors go in and come back")]
    pub(in crate::collective) fn start_uneven<T: Element>(
        &mut self,
        what: (Request, Counts<'_>),
        input: Tensor<T>,
        output: Tensor<T>,
        deadline: Deadline,
    ) -> Result<Pending<(Tensor<T>, Tensor<T>)>, Refused<(Tensor<T>, Tensor<T>), CollectiveError>> {
        let mut job = output.into_job(Some(input));
        let lengths = [job.input.as_deref().map_or(0, Job::len), job.len()];
        let plan = self.check_memory(&job);
        let plan = plan.and_then(|()| self.plan_uneven(what, T::DATA_TYPE, lengths, Memory::Owned));
        let started = match plan {
            Ok(plan) => {
                job.take_on(plan, None);
                self.start_job(job, deadline)
            }
            Err(error) => Err((job, error)),
        };
        started.map_err(|(job, error)| Refused { object: Tensor::both_from_job(job), error })
    }
}
