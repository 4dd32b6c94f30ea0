//! Measures every way that each collective can take, size by size, and writes which was the fastest: the table that
//! `RDMA_TUNING_FILE` names. It is started as the collectives' programs are.

mod args;
mod choose;
mod measure;
mod table;
mod tunable;

use super::job::Job;
use super::lanes::Plan;
use super::{launch, memory_for, start_ranks};
use crate::{debug, output};
use anyhow::{Context, bail, ensure};
use args::TuneArgs;
use choose::rows;
use measure::Times;
use rdma_collective::collective::tuning::{Collective, Peers, Row, Tuning};
use rdma_collective::env::{Environment, Launch, Launcher, NcclOptions};
use std::path::Path;
use std::process::ExitCode;
use table::Table;

const NAME: &str = "tune";

/// Runs one rank of the program, or starts all of them.
pub fn main() -> ExitCode {
    let args = manual::parse::<TuneArgs>();
    output::end(place(&args).context(NAME), args.each().timeout())
}

/// Is the rank that the environment tells of, or starts all ranks; returns the exit status.
fn place(args: &TuneArgs) -> anyhow::Result<u8> {
    args.check()?;
    let environment = Environment::of_process()?;
    let nccl = environment.nccl.clone();
    debug::say_what_happens(nccl.debug, environment.launch.as_ref().map(|launch| launch.rank));
    debug::say_which_variables_won(nccl.debug, &environment.report());
    let each = args.each();
    match launch::rank(environment, &each)? {
        None => {
            let cores = std::thread::available_parallelism().map_or(2, usize::from);
            let ranks = each.ranks(cores);
            fits(args, ranks, ranks)?;
            start_ranks(NAME, ranks)
        }
        Some(launch) => {
            args.metrics.serve(launch.local_rank.unwrap_or(0))?;
            run(&launch, &nccl, args).with_context(|| format!("rank {}", launch.rank))?;
            Ok(0)
        }
    }
}

/// Checks that the buffers of `here` of so many ranks fit this machine.
fn fits(args: &TuneArgs, ranks: usize, here: usize) -> anyhow::Result<()> {
    let each = args.buffer_bytes(ranks);
    memory_for(&format!("buffers of {each} bytes on each of {here} ranks"), each, here, "lower -e or --ranks")
}

/// Is one rank; rank 0 prints and writes.
fn run(launch: &Launch, nccl: &NcclOptions, args: &TuneArgs) -> anyhow::Result<()> {
    if launch.launcher != Launcher::LocalRanks {
        fits(args, launch.world as usize, launch.local_world.unwrap_or(1) as usize)?;
    }
    // An obstacle to writing the file is known before anything is measured.
    let there = match &args.output {
        Some(path) if launch.rank == 0 => there(path)?,
        _ => Vec::new(),
    };
    let each = args.each();
    let mut job = Job::join(launch, nccl, &each, &Plan::of(&each, nccl))?;
    let among = (job.comm.size(), job.comm.peers());
    let measured: Vec<Collective> = args.collectives().filter_map(|of| of.tuned()).collect();
    let kept =
        kept(there, &measured, among).context("-o is there already, and is kept: name another file")?;
    let sizes = args.sizes();
    let mut times = Times::default();
    times.measure(&mut job, args, &sizes)?;
    let prints = job.prints();
    // The job is over before the file is written, so that a full disk here is no loss to the other ranks.
    job.close()?;
    if prints {
        let (ranks, peers) = among;
        let table = Table { times: &times, sizes: &sizes };
        output::say(format_args!("# {NAME}: {ranks} ranks, peers {peers}, microseconds\n"))?;
        let mut all = kept;
        for collective in args.collectives() {
            let chosen = choose::ways(&times, collective, collective.sizes(&sizes));
            output::say(table.of(collective, &chosen))?;
            all.extend(rows(collective, (ranks, peers), &chosen));
        }
        let tuning = Tuning::new(all)?;
        match &args.output {
            Some(path) => {
                std::fs::write(path, tuning.to_string()).with_context(|| path.display().to_string())?;
                output::say(format_args!("# written to {}: RDMA_TUNING_FILE names it\n", path.display()))?;
            }
            None => output::say(&tuning)?,
        }
    }
    Ok(())
}

/// The rows of a file that is there already.
fn there(path: &Path) -> anyhow::Result<Vec<Row>> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    ensure!(folder.is_dir(), "-o {}: there is no folder {}; make it", path.display(), folder.display());
    if !path.exists() {
        return Ok(Vec::new());
    }
    let there = Tuning::read(path).context("-o is there already, and is kept: name another file")?;
    Ok(there.rows().to_vec())
}

/// Returns the rows that stay: measured ones replace their like, and no row may cover only some of its ranks.
fn kept(
    mut rows: Vec<Row>,
    measured: &[Collective],
    (ranks, peers): (u32, Peers),
) -> anyhow::Result<Vec<Row>> {
    rows.retain(|row| {
        (row.ranks != (ranks..=ranks) || row.peers != peers) || !measured.contains(&row.collective)
    });
    let in_the_way = rows
        .iter()
        .find(|row| measured.contains(&row.collective) && row.peers == peers && row.ranks.contains(&ranks));
    match in_the_way {
        None => Ok(rows),
        Some(Row { collective, ranks: those, .. }) => bail!(
            "its {collective} of {}-{} ranks is of {ranks} as well, which are measured; write ranks that are not",
            those.start(),
            those.end()
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_measured_takes_the_place_of_its_like_alone() {
        let text = "rdma-collective tuning 1\nall-reduce 2 mapped any flat,ring\nall-reduce 2 links any ring\n\
                    broadcast 2 mapped any ring\nall-reduce 3-8 mapped any ring\nend\n";
        let rows = text.parse::<Tuning>().unwrap().rows().to_vec();
        let left = kept(rows.clone(), &[rows[0].collective], (2, Peers::Mapped)).unwrap();
        assert_eq!(left, rows[1..]);
        let error = kept(rows.clone(), &[rows[0].collective], (4, Peers::Mapped)).unwrap_err().to_string();
        assert!(error.contains("3-8") && error.contains('4'), "{error}");
        assert_eq!(kept(rows.clone(), &[rows[2].collective], (4, Peers::Mapped)).unwrap(), rows);
    }
}
