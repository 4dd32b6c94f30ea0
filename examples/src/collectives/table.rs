//! Every row that is asked for, in nccl-tests' order: types, of each the reductions, of each the roots, of each the
//! sizes.

use super::args::{Args, Choice, Roots};
use super::call::Call;
use super::check::Element;
use super::job::Job;
use super::measure::Bench;
use super::report::Report;
use crate::sizes::sweep::Sweep;
use anyhow::bail;
use half::{bf16, f16};
use rdma_collective::collective::{DataType, ReduceOp};

/// Measures all of them.
///
/// # Errors
///
/// The first that fails.
pub fn run(job: &mut Job, args: &Args, sweep: &Sweep, report: &mut Report) -> anyhow::Result<()> {
    for data_type in args.dtype.each() {
        match data_type {
            DataType::I8 => rows::<i8>(job, args, sweep, report),
            DataType::U8 => rows::<u8>(job, args, sweep, report),
            DataType::I16 => rows::<i16>(job, args, sweep, report),
            DataType::U16 => rows::<u16>(job, args, sweep, report),
            DataType::I32 => rows::<i32>(job, args, sweep, report),
            DataType::U32 => rows::<u32>(job, args, sweep, report),
            DataType::I64 => rows::<i64>(job, args, sweep, report),
            DataType::U64 => rows::<u64>(job, args, sweep, report),
            DataType::F16 => rows::<f16>(job, args, sweep, report),
            DataType::F32 => rows::<f32>(job, args, sweep, report),
            DataType::F64 => rows::<f64>(job, args, sweep, report),
            DataType::Bf16 => rows::<bf16>(job, args, sweep, report),
            other => bail!("{other} cannot be measured by this release; choose another -d"),
        }?;
    }
    Ok(())
}

fn rows<T: Element>(job: &mut Job, args: &Args, sweep: &Sweep, report: &mut Report) -> anyhow::Result<()> {
    let ranks = job.comm.size();
    let mut bench = Bench::<T>::new(job, args, sweep.last())?;
    for call in calls(args, ranks) {
        for bytes in sweep.sizes() {
            report.row(bench.row(call, bytes)?)?;
        }
    }
    Ok(())
}

/// Reductions and roots, where there are such. What is only copied has inputs as for `max`, which have all digits.
fn calls(args: &Args, ranks: u32) -> impl Iterator<Item = Call> {
    let collective = args.collective;
    let ops = if collective.reduces() { args.op } else { Choice::One(ReduceOp::Max) };
    let roots = if collective.is_rooted() { args.root } else { Roots::One(0) };
    ops.each().flat_map(move |op| roots.each(ranks).map(move |root| Call { collective, op, root }))
}
