//! A size, timed and checked, out of place and in place.

use super::args::Args;
use super::buffer::Buffer;
use super::call::{Call, Place};
use super::check::{Element, Expected, Inputs};
use super::job::Job;
use super::kind::Shape;
use crate::columns::{Measured, Row};
use anyhow::{Context, ensure};
use rdma_collective::collective::Pending;
use rdma_collective::collective::Tensor;
use std::time::{Duration, Instant};

/// Buffers of one operation, longer than the largest size by the shift of `-u`; absent while the operation has them.
struct Buffers<T> {
    input: Option<Buffer<T>>,
    output: Option<Buffer<T>>,
}

/// The operation of one half of a row.
#[derive(Debug, Clone, Copy)]
struct Case {
    call: Call,
    shape: Shape,
    place: Place,
}

impl Case {
    /// Elements of the output.
    fn output(self) -> usize {
        match self.place {
            Place::Out => self.shape.output,
            Place::In => self.shape.whole,
        }
    }
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
    /// Buffers of each operation of an iteration.
    buffers: Vec<Buffers<T>>,
    /// Operations that are under way.
    started: Vec<Started<T>>,
    round: u64,
}

impl<'a, T: Element> Bench<'a, T> {
    /// Takes the memory: two buffers of `bytes_max` for each operation of an iteration.
    pub fn new(job: &'a mut Job, args: &'a Args, bytes_max: u64) -> anyhow::Result<Self> {
        let count = usize::try_from(bytes_max)? / size_of::<T>() + args.unalign as usize;
        let mut buffers = Vec::new();
        for _ in 0..args.agg_iters {
            let (input, output) = (Buffer::new(job, args, count)?, Buffer::new(job, args, count)?);
            buffers.push(Buffers { input: Some(input), output: Some(output) });
        }
        let started = Vec::with_capacity(buffers.len());
        Ok(Self { job, args, buffers, started, round: 0 })
    }

    /// The row of one size; the size that counts is whole elements, and as many of them for each rank where there are
    /// parts.
    ///
    /// # Errors
    ///
    /// A rank that is lost or late, by its number. Wrong elements are no error: they are in the row.
    pub fn row(&mut self, call: Call, bytes: u64) -> anyhow::Result<Row> {
        let elements = usize::try_from(bytes)? / size_of::<T>();
        let shape = call.collective.shape(elements, self.job.ranks());
        let bytes = (shape.whole * size_of::<T>()) as u64;
        let mut measure = |place, how| {
            let measured = self.measure(Case { call, shape, place });
            measured.with_context(|| format!("{bytes} bytes {how}"))
        };
        let (out_of_place, in_place) =
            (measure(Place::Out, "out of place")?, measure(Place::In, "in place")?);
        Ok(Row {
            bytes,
            count: shape.count as u64,
            dtype: T::DATA_TYPE.to_string(),
            redop: call.redop(),
            root: call.root_column(),
            out_of_place,
            in_place,
        })
    }

    fn measure(&mut self, case: Case) -> anyhow::Result<Measured> {
        let bytes = (case.shape.whole * size_of::<T>()) as u64;
        self.fill(case, false)?;
        for _ in 0..self.args.warmup_iters {
            self.iteration(case)?;
        }
        let seconds = self.time(case)?;
        let wrong = if self.args.check > 0 { Some(self.check(case)?) } else { None };
        Ok(Measured::new(bytes, case.call.collective.bus_factor(self.job.ranks()), seconds, wrong))
    }

    /// Seconds of one operation, the mean over all of them and, over the ranks, what `-a` asks for.
    fn time(&mut self, case: Case) -> anyhow::Result<f64> {
        let _ = self.job.gather(0)?;
        let begin = Instant::now();
        let mut met = Duration::ZERO;
        for _ in 0..self.args.iters {
            self.iteration(case)?;
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
    fn check(&mut self, case: Case) -> anyhow::Result<u64> {
        let Case { call, shape, place } = case;
        for _ in 0..self.args.check {
            let inputs = self.fill(case, true)?;
            if let (Some(fault), Some(plan)) = (self.args.fault, &self.job.faults) {
                fault.arm(plan);
            }
            self.iteration(case)?;
            let rank = self.job.comm.rank() as usize;
            let expected = Expected { inputs, call, place, rank, count: shape.count };
            let mut own = 0;
            for buffers in &mut self.buffers {
                own += expected.wrong(view(&mut buffers.output, self.args, case.output())?);
            }
            let wrong = self.job.gather(own)?.iter().sum();
            if wrong > 0 {
                return Ok(wrong);
            }
        }
        Ok(0)
    }

    /// New inputs, which no result that is still in a buffer goes with; only exact ones can be checked.
    fn fill(&mut self, case: Case, exact: bool) -> anyhow::Result<Inputs> {
        self.round += 1;
        let Case { call, shape, place } = case;
        let inputs = Inputs { ranks: self.job.ranks(), op: call.op, round: self.round, exact };
        let rank = self.job.comm.rank() as usize;
        for buffers in &mut self.buffers {
            let output: &mut [T] = view(&mut buffers.output, self.args, case.output())?;
            if place == Place::In {
                inputs.fill(rank, 0, output);
                continue;
            }
            output.fill(T::default());
            let first = if shape.input < shape.whole { rank * shape.count } else { 0 };
            inputs.fill(rank, first, view(&mut buffers.input, self.args, shape.input)?);
        }
        Ok(inputs)
    }

    /// As many operations as `-m` says, all of them under way before the first is waited for.
    fn iteration(&mut self, case: Case) -> anyhow::Result<()> {
        let (deadline, Case { call, shape, place }) = (self.job.deadline(), case);
        let comm = &mut self.job.comm;
        for buffers in &mut self.buffers {
            view(&mut buffers.output, self.args, case.output())?;
            if place == Place::Out {
                view(&mut buffers.input, self.args, shape.input)?;
            }
            match (place, &buffers.input, &mut buffers.output) {
                (Place::In, _, Some(Buffer::Plain(output))) => {
                    call.run(comm, output.chosen_mut(), deadline)?
                }
                (Place::Out, Some(Buffer::Plain(input)), Some(Buffer::Plain(output))) => {
                    call.run_into(comm, input.chosen(), output.chosen_mut(), deadline)?;
                }
                (Place::In, ..) => {
                    let output = buffers.output.take().and_then(Buffer::owned).context(LOST)?;
                    self.started.push(Started::In(call.start(comm, output, deadline)?));
                }
                (Place::Out, ..) => {
                    let input = buffers.input.take().and_then(Buffer::owned).context(LOST)?;
                    let output = buffers.output.take().and_then(Buffer::owned).context(LOST)?;
                    let started = call.start_into(comm, input, output, deadline)?;
                    self.started.push(Started::Out(started));
                }
            }
        }
        for (buffers, started) in self.buffers.iter_mut().zip(self.started.drain(..)) {
            match started {
                Started::In(output) => buffers.output = Some(Buffer::Owned(output.wait(deadline)?)),
                Started::Out(both) => {
                    let (input, output) = both.wait(deadline)?;
                    let (input, output) = (Buffer::Owned(input), Buffer::Owned(output));
                    *buffers = Buffers { input: Some(input), output: Some(output) };
                }
            }
        }
        Ok(())
    }
}

/// An operation that fails keeps its buffers.
const LOST: &str = "the buffer went with an operation that failed";

/// So many elements of a buffer, from where `-u` has them begin.
fn view<'b, T: Element>(
    buffer: &'b mut Option<Buffer<T>>,
    args: &Args,
    count: usize,
) -> anyhow::Result<&'b mut Buffer<T>> {
    let elements = buffer.as_mut().context(LOST)?;
    let start = args.unalign as usize;
    ensure!(elements.select(start..start + count), "a size beyond the largest");
    Ok(elements)
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
