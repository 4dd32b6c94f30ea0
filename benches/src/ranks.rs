//! This program once more as ranks, each of which says one figure.

use std::ffi::OsString;
use std::io::{BufRead, BufReader};
use std::process::Command;
use std::time::Duration;

use rdma_collective::bootstrap::LocalRanks;
use rdma_core::Deadline;

use crate::soft::Outcome;

/// The figure of each rank, in their order; a rank says its own by [`say`].
///
/// # Errors
///
/// A rank fails, says nothing, or takes longer than `limit`.
pub fn figures(ranks: u32, arguments: &[OsString], limit: Duration) -> Outcome<Vec<f64>> {
    let this = std::env::current_exe()?;
    let (said, say) = std::io::pipe()?;
    let outputs = (0..ranks).map(|_| say.try_clone()).collect::<Result<Vec<_>, _>>()?;
    drop(say);
    let mut outputs = outputs.into_iter();
    let spawned = LocalRanks::spawn(ranks, |_| {
        let mut command = Command::new(&this);
        command.args(arguments);
        if let Some(output) = outputs.next() {
            command.stdout(output);
        }
        command
    })?;
    spawned.wait(Deadline::after(limit))?;
    let mut figures = vec![None; ranks as usize];
    for line in BufReader::new(said).lines() {
        let line = line?;
        let (rank, figure) = line.split_once(' ').ok_or_else(|| format!("not a rank's figure: {line}"))?;
        let slot = figures.get_mut(rank.parse::<usize>()?).ok_or_else(|| format!("no such rank: {line}"))?;
        *slot = Some(figure.parse()?);
    }
    figures.into_iter().collect::<Option<_>>().ok_or_else(|| "a rank said no figure".into())
}

/// Inside a rank: says its figure to [`figures`].
pub fn say(rank: u32, figure: f64) {
    println!("{rank} {figure}");
}
