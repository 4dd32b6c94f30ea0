//! One size, timed and checked, out of place and in place.

use crate::args::Args;
use crate::check::{Element, Inputs};
use crate::job::Job;
use anyhow::Context;
use examples::columns::{Measured, Row};
use rdma_collective::collective::{Element as Reducible, ReduceOp};
use std::time::{Duration, Instant};

/// Whether an operation's result takes the place of its input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Out,
    In,
}

/// The buffers of a rank, as long as the largest size, and what they are used for.
pub struct Bench<'a, T> {
    job: &'a mut Job,
    args: &'a Args,
    name: &'static str,
    input: Vec<T>,
    output: Vec<T>,
    round: u64,
}

impl<'a, T: Element + Reducible> Bench<'a, T> {
    /// Takes the memory: two buffers of `bytes_max`.
    pub fn new(job: &'a mut Job, args: &'a Args, name: &'static str, bytes_max: u64) -> anyhow::Result<Self> {
        let count = usize::try_from(bytes_max)? / size_of::<T>();
        let (input, output) = (vec![T::whole(0); count], vec![T::whole(0); count]);
        Ok(Self { job, args, name, input, output, round: 0 })
    }

    /// The row of one size; the size that counts is whole elements.
    ///
    /// # Errors
    ///
    /// A rank that is lost or late, by its number. Wrong elements are no error: they are in the row.
    pub fn row(&mut self, bytes: u64) -> anyhow::Result<Row> {
        let count = usize::try_from(bytes)? / size_of::<T>();
        let bytes = (count * size_of::<T>()) as u64;
        let out_of_place =
            self.measure(count, Place::Out).with_context(|| format!("{bytes} bytes out of place"))?;
        let in_place = self.measure(count, Place::In).with_context(|| format!("{bytes} bytes in place"))?;
        Ok(Row {
            bytes,
            count: count as u64,
            dtype: self.name.to_owned(),
            redop: self.args.op.name().to_owned(),
            root: -1,
            out_of_place,
            in_place,
        })
    }

    fn measure(&mut self, count: usize, place: Place) -> anyhow::Result<Measured> {
        let bytes = (count * size_of::<T>()) as u64;
        self.fill(count, place);
        for _ in 0..self.args.warmup_iters {
            self.reduce(count, place)?;
        }
        let seconds = self.time(count, place)?;
        let wrong = if self.args.check > 0 { Some(self.check(count, place)?) } else { None };
        Ok(Measured::all_reduce(bytes, self.job.ranks(), seconds, wrong))
    }

    /// Seconds of one operation, the mean over all of them and over the ranks.
    fn time(&mut self, count: usize, place: Place) -> anyhow::Result<f64> {
        let _ = self.job.gather(0)?;
        let begin = Instant::now();
        for _ in 0..self.args.iters {
            self.reduce(count, place)?;
        }
        let own = u64::try_from(begin.elapsed().as_nanos()).unwrap_or(u64::MAX);
        let all = self.job.gather(own)?;
        let mean = all.iter().map(|&nanoseconds| nanoseconds as f64).sum::<f64>() / all.len() as f64;
        Ok(Duration::from_nanos(mean as u64).as_secs_f64() / f64::from(self.args.iters))
    }

    /// Elements that are not the exact sum, over all ranks, in the first of the checks that has some.
    fn check(&mut self, count: usize, place: Place) -> anyhow::Result<u64> {
        for _ in 0..self.args.check {
            let inputs = self.fill(count, place);
            if let (Some(fault), Some(plan)) = (self.args.fault, &self.job.faults) {
                fault.arm(plan);
            }
            self.reduce(count, place)?;
            let own = inputs.wrong(&self.output[..count]);
            let wrong = self.job.gather(own)?.iter().sum();
            if wrong > 0 {
                return Ok(wrong);
            }
        }
        Ok(0)
    }

    /// New inputs, which no result that is still in a buffer goes with.
    fn fill(&mut self, count: usize, place: Place) -> Inputs {
        self.round += 1;
        let inputs = Inputs { ranks: self.job.ranks(), round: self.round };
        let rank = self.job.comm.rank() as usize;
        match place {
            Place::Out => inputs.fill(rank, &mut self.input[..count]),
            Place::In => inputs.fill(rank, &mut self.output[..count]),
        }
        inputs
    }

    fn reduce(&mut self, count: usize, place: Place) -> anyhow::Result<()> {
        let (deadline, output) = (self.job.deadline(), &mut self.output[..count]);
        let op = match self.args.op {
            crate::args::Op::Sum => ReduceOp::Sum,
        };
        match place {
            Place::Out => self.job.comm.all_reduce_into(&self.input[..count], output, op, deadline)?,
            Place::In => self.job.comm.all_reduce(output, op, deadline)?,
        }
        Ok(())
    }
}
