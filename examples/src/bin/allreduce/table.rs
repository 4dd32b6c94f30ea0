//! Every row that is asked for, in nccl-tests' order: types, of each the reductions, of each the sizes.

use crate::args::Args;
use crate::check::Element;
use crate::job::Job;
use crate::measure::Bench;
use crate::report::Report;
use anyhow::bail;
use examples::sizes::sweep::Sweep;
use half::{bf16, f16};
use rdma_collective::collective::DataType;

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
    let mut bench = Bench::<T>::new(job, args, sweep.last())?;
    for op in args.op.each() {
        bench.set_op(op);
        for bytes in sweep.sizes() {
            report.row(bench.row(bytes)?)?;
        }
    }
    Ok(())
}
