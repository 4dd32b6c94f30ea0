//! One size, timed and checked, out of place and in place.

use crate::args::Args;
use crate::check::{Element, Inputs};
use crate::job::Job;
use anyhow::{Context, ensure};
use examples::columns::{Measured, Row};
use rdma_collective::collective::{ReduceOp, Tensor};
use rdma_collective::comm::Pending;
use std::ops::Range;
use std::time::{Duration, Instant};

/// Whether an operation's result takes the place of its input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Out,
    In,
}

/// What one operation works on, longer than the largest size by what `-u` shifts it; absent while the operation has it.
struct Buffers<T> {
    input: Option<Tensor<T>>,
    output: Option<Tensor<T>>,
}

/// An operation under way.
enum Started<T: Element> {
    Out(Pending<(Tensor<T>, Tensor<T>)>),
    In(Pending<Tensor<T>>),
}

/// The buffers of a rank, as long as the largest size, and what they are used for.
pub struct Bench<'a, T: Element> {
    job: &'a mut Job,
    args: &'a Args,
    op: ReduceOp,
    /// Of each operation of an iteration.
    buffers: Vec<Buffers<T>>,
    /// Those of them that are under way.
    started: Vec<Started<T>>,
    round: u64,
}

impl<'a, T: Element> Bench<'a, T> {
    /// Takes the memory: two buffers of `bytes_max` for each operation of an iteration.
    pub fn new(job: &'a mut Job, args: &'a Args, bytes_max: u64) -> anyhow::Result<Self> {
        let count = usize::try_from(bytes_max)? / size_of::<T>() + args.unalign as usize;
        let mut buffers = Vec::new();
        for _ in 0..args.agg_iters {
            let (input, output) = (Some(job.comm.alloc(count)?), Some(job.comm.alloc(count)?));
            buffers.push(Buffers { input, output });
        }
        let started = Vec::with_capacity(buffers.len());
        Ok(Self { job, args, op: ReduceOp::Sum, buffers, started, round: 0 })
    }

    /// From now on measures this reduction.
    pub fn set_op(&mut self, op: ReduceOp) {
        self.op = op;
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
            dtype: T::DATA_TYPE.to_string(),
            redop: self.op.to_string(),
            root: -1,
            out_of_place,
            in_place,
        })
    }

    fn measure(&mut self, count: usize, place: Place) -> anyhow::Result<Measured> {
        let bytes = (count * size_of::<T>()) as u64;
        self.fill(count, place, false)?;
        for _ in 0..self.args.warmup_iters {
            self.iteration(count, place)?;
        }
        let seconds = self.time(count, place)?;
        let wrong = if self.args.check > 0 { Some(self.check(count, place)?) } else { None };
        Ok(Measured::all_reduce(bytes, self.job.ranks(), seconds, wrong))
    }

    /// Seconds of one operation, the mean over all of them and, over the ranks, what `-a` asks for.
    fn time(&mut self, count: usize, place: Place) -> anyhow::Result<f64> {
        let _ = self.job.gather(0)?;
        let begin = Instant::now();
        let mut met = Duration::ZERO;
        for _ in 0..self.args.iters {
            self.iteration(count, place)?;
            if matches!(self.args.blocking, 1 | 3) {
                let meeting = Instant::now();
                let _ = self.job.gather(0)?;
                met += meeting.elapsed();
            }
        }
        let mut own = begin.elapsed();
        if self.args.blocking == 3 {
            own -= met;
        }
        let all = self.job.gather(u64::try_from(own.as_nanos()).unwrap_or(u64::MAX))?;
        let operations = f64::from(self.args.iters) * f64::from(self.args.agg_iters);
        Ok(over_ranks(&all, self.args.average) / 1e9 / operations)
    }

    /// Elements that are not the exact result, over all ranks, in the first of the checks that has some.
    fn check(&mut self, count: usize, place: Place) -> anyhow::Result<u64> {
        for _ in 0..self.args.check {
            let inputs = self.fill(count, place, true)?;
            if let (Some(fault), Some(plan)) = (self.args.fault, &self.job.faults) {
                fault.arm(plan);
            }
            self.iteration(count, place)?;
            let range = self.range(count);
            let mut own = 0;
            for buffers in &mut self.buffers {
                own += inputs.wrong(view(&mut buffers.output, range.clone())?);
            }
            let wrong = self.job.gather(own)?.iter().sum();
            if wrong > 0 {
                return Ok(wrong);
            }
        }
        Ok(0)
    }

    /// New inputs, which no result that is still in a buffer goes with; only exact ones can be checked.
    fn fill(&mut self, count: usize, place: Place, exact: bool) -> anyhow::Result<Inputs> {
        self.round += 1;
        let inputs = Inputs { ranks: self.job.ranks(), op: self.op, round: self.round, exact };
        let range = self.range(count);
        let rank = self.job.comm.rank() as usize;
        for buffers in &mut self.buffers {
            let buffer = match place {
                Place::Out => &mut buffers.input,
                Place::In => &mut buffers.output,
            };
            inputs.fill(rank, view(buffer, range.clone())?);
        }
        Ok(inputs)
    }

    /// As many operations as `-m` says, all of them under way before the first is waited for.
    fn iteration(&mut self, count: usize, place: Place) -> anyhow::Result<()> {
        let (deadline, range, op) = (self.job.deadline(), self.range(count), self.op);
        let comm = &mut self.job.comm;
        for buffers in &mut self.buffers {
            view(&mut buffers.output, range.clone())?;
            let output = buffers.output.take().context(LOST)?;
            self.started.push(match place {
                Place::In => Started::In(comm.start_all_reduce(output, op, deadline)?),
                Place::Out => {
                    view(&mut buffers.input, range.clone())?;
                    let input = buffers.input.take().context(LOST)?;
                    Started::Out(comm.start_all_reduce_into(input, output, op, deadline)?)
                }
            });
        }
        for (buffers, started) in self.buffers.iter_mut().zip(self.started.drain(..)) {
            match started {
                Started::In(output) => buffers.output = Some(output.wait(deadline)?),
                Started::Out(both) => {
                    let (input, output) = both.wait(deadline)?;
                    *buffers = Buffers { input: Some(input), output: Some(output) };
                }
            }
        }
        Ok(())
    }

    /// The elements that count.
    fn range(&self, count: usize) -> Range<usize> {
        let start = self.args.unalign as usize;
        start..start + count
    }
}

/// An operation that fails keeps its buffers.
const LOST: &str = "the buffer went with an operation that failed";

/// The elements of a buffer that count.
fn view<T: Element>(buffer: &mut Option<Tensor<T>>, range: Range<usize>) -> anyhow::Result<&mut Tensor<T>> {
    let tensor = buffer.as_mut().context(LOST)?;
    ensure!(tensor.select(range), "a size beyond the largest");
    Ok(tensor)
}

/// The time in the table, of those of all ranks: `-a`.
fn over_ranks(nanoseconds: &[u64], average: u8) -> f64 {
    let all = nanoseconds.iter().map(|&one| one as f64);
    match average {
        0 => nanoseconds.first().map_or(0.0, |&first| first as f64),
        2 => all.fold(f64::INFINITY, f64::min),
        3 => all.fold(0.0, f64::max),
        _ => all.sum::<f64>() / nanoseconds.len().max(1) as f64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_is_of_the_ranks_asked_for() {
        let times = [3, 9, 1, 7];
        assert_eq!([0, 1, 2, 3].map(|average| over_ranks(&times, average)), [3.0, 5.0, 1.0, 9.0]);
    }
}
