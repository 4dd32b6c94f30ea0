//! The times of every way: each is a communicator that may take no other.

use super::args::TuneArgs;
use super::tunable::Tunable;
use crate::collectives::args::Args;
use crate::collectives::call::Call;
use crate::collectives::job::Job;
use crate::collectives::measure::Bench;
use anyhow::ensure;
use rdma_collective::collective::ReduceOp;
use rdma_collective::collective::{Algorithm, Algorithms, tuning};
use std::collections::HashMap;
use std::time::Instant;

/// The owner of the memory that operations work on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Memory {
    /// Tensors.
    Owned,
    /// Slices.
    Borrowed,
}

/// Microseconds of an operation, out of place and in place by halves: the best of all that was measured.
#[derive(Debug, Default)]
pub struct Times(HashMap<(Tunable, u64, Algorithm, Memory), f64>);

impl Times {
    /// Returns the time of one operation; `None` where it was not measured, since it cannot be.
    pub fn of(&self, collective: Tunable, bytes: u64, way: Algorithm, memory: Memory) -> Option<f64> {
        self.0.get(&(collective, bytes, way, memory)).copied()
    }

    /// Takes it when it is the best.
    pub fn add(&mut self, key: (Tunable, u64, Algorithm, Memory), time_us: f64) {
        let best = self.0.entry(key).or_insert(time_us);
        *best = best.min(time_us);
    }

    /// Measures all of them.
    ///
    /// # Errors
    ///
    /// The communicator's error, or the number of wrong elements.
    pub fn measure(&mut self, job: &mut Job, args: &TuneArgs, sizes: &[u64]) -> anyhow::Result<()> {
        let comm = &job.comm;
        let (peers, asked) = (comm.peers(), comm.options().algorithms);
        for _ in 0..args.repeats {
            for way in Algorithm::ALL.iter().copied() {
                if !job.comm.can(way) {
                    continue;
                }
                job.renew(way)?;
                self.runs(job, args, (way, Memory::Owned), asked, sizes)?;
                // Ring and pieces replace the ways that need memory of the library, so they are timed on slices, too.
                if matches!(way, Algorithm::Ring | Algorithm::Pieces) && peers == tuning::Peers::Mapped {
                    self.runs(job, args, (way, Memory::Borrowed), asked, sizes)?;
                }
            }
        }
        Ok(())
    }

    fn runs(
        &mut self,
        job: &mut Job,
        args: &TuneArgs,
        (way, memory): (Algorithm, Memory),
        asked: Algorithms,
        sizes: &[u64],
    ) -> anyhow::Result<()> {
        let ranks = job.ranks() as u64;
        let each = Args { plain: memory == Memory::Borrowed, ..args.each() };
        let may = |of: tuning::Collective| of.ways().any(|one| one == way) && asked.allow(of, way);
        let tunable = || args.collectives().filter(|of| of.tuned().is_some_and(may));
        // A barrier has no memory that anybody could own, so one of the two kinds of memory stands for both.
        if memory == Memory::Owned && tunable().any(|of| of == Tunable::Barrier) {
            let time_us = barrier(job, args)?;
            self.add((Tunable::Barrier, u64::MAX, way, memory), time_us);
        }
        let longest = sizes.last().copied().unwrap_or(0);
        let mut bench = Bench::<f32>::new(job, &each, longest.saturating_mul(ranks))?;
        let between = u32::try_from(ranks).unwrap_or(u32::MAX);
        let fits = |size: &&u64| way.bytes_max(between).is_none_or(|bytes_max| **size <= bytes_max as u64);
        for tunable in tunable() {
            let Tunable::Program(collective) = tunable else { continue };
            let op = if collective.reduces() { ReduceOp::Sum } else { ReduceOp::Max };
            let parts = if collective.has_parts() { ranks } else { 1 };
            for size in sizes.iter().filter(fits) {
                let row = bench.row(Call { collective, op, root: 0 }, size * parts)?;
                let name = collective.name();
                let halves = [row.out_of_place, row.in_place];
                ensure!(
                    !halves.iter().any(|half| half.failed()),
                    "{name} of {size} bytes by {way} has wrong elements: this is a defect, tell us of it"
                );
                let time_us = halves.iter().map(|half| half.time_us).sum::<f64>() / 2.0;
                self.add((tunable, *size, way, memory), time_us);
            }
        }
        Ok(())
    }
}

/// Microseconds of one, the mean of all ranks'.
fn barrier(job: &mut Job, args: &TuneArgs) -> anyhow::Result<f64> {
    let meet = |job: &mut Job, count: u32| {
        (0..count).try_for_each(|_| {
            let deadline = job.deadline();
            anyhow::Ok(job.comm.barrier(deadline)?)
        })
    };
    meet(job, args.warmup_iters)?;
    let _ = job.gather(0)?;
    let begin = Instant::now();
    meet(job, args.iters)?;
    let own = u64::try_from(begin.elapsed().as_nanos()).unwrap_or(u64::MAX);
    let all = job.gather(own)?;
    let mean = all.iter().map(|one| *one as f64).sum::<f64>() / all.len().max(1) as f64;
    Ok(mean / 1e3 / f64::from(args.iters))
}
