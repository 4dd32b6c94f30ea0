//! Whether this process is one rank of a launcher's, or starts all ranks itself.

use super::args::{Args, RANKS_MAX};
use anyhow::ensure;
use rdma_collective::env::{Environment, Launch, Launcher};
use std::net::SocketAddr;

/// The rank that this process is; `None` when it is to start them.
///
/// # Errors
///
/// `--ranks` and a launcher that want different things, or more ranks than the check is exact for.
pub fn rank(environment: Environment, args: &Args) -> anyhow::Result<Option<Launch>> {
    let Some(launch) = environment.launch else { return Ok(None) };
    let Launch { launcher, world, by: [rank, _], .. } = &launch;
    ensure!(
        i64::from(*world) <= RANKS_MAX,
        "{launcher} started {world} ranks, and there are at most {RANKS_MAX}: start fewer"
    );
    match args.ranks.map(u32::from) {
        Some(ranks) if *launcher != Launcher::LocalRanks && ranks != *world => {
            ensure!(
                *world == 1,
                "--ranks {ranks} starts ranks on this host, and {rank} says that {launcher} started {world}: drop \
                 --ranks, or unset {}",
                rank.name
            );
            Ok(None)
        }
        _ => Ok(Some(launch)),
    }
}

/// Returns the variables for a rank on this host, besides those that are handed down to any process.
pub fn variables(rank: usize, ranks: usize, store: SocketAddr) -> [(&'static str, String); 6] {
    let (own, all) = (rank.to_string(), ranks.to_string());
    [
        ("RANK", own.clone()),
        ("LOCAL_RANK", own),
        ("WORLD_SIZE", all.clone()),
        ("LOCAL_WORLD_SIZE", all),
        ("MASTER_ADDR", store.ip().to_string()),
        ("MASTER_PORT", store.port().to_string()),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;
    use rdma_collective::env::Variables;

    fn place(variables: &[(&str, String)], line: &str) -> anyhow::Result<Option<(u32, u32)>> {
        let variables: Variables = variables.iter().cloned().collect();
        let args = Args::parse_from(line.split(' '));
        let launch = rank(Environment::read(&variables)?, &args)?;
        Ok(launch.map(|launch| (launch.rank, launch.world)))
    }

    fn started(rank: usize, ranks: usize) -> Vec<(&'static str, String)> {
        variables(rank, ranks, SocketAddr::from(([127, 0, 0, 1], 29500))).to_vec()
    }

    #[test]
    fn a_launchers_rank_is_one_and_no_launcher_is_none() {
        assert_eq!(place(&[], "allreduce").unwrap(), None);
        assert_eq!(place(&[], "allreduce --ranks 3").unwrap(), None);
        assert_eq!(place(&started(1, 2), "allreduce").unwrap(), Some((1, 2)));
        assert_eq!(place(&started(1, 2), "allreduce --ranks 2").unwrap(), Some((1, 2)));
    }

    #[test]
    fn ranks_beside_a_launcher_are_its_own_number_or_of_a_launcher_of_one() {
        assert_eq!(place(&started(0, 1), "allreduce --ranks 4").unwrap(), None);
        let error = place(&started(1, 2), "allreduce --ranks 4").unwrap_err().to_string();
        assert!(
            error.contains("--ranks 4") && error.contains("RANK=1") && error.contains("started 2"),
            "{error}"
        );
        let own = [&started(1, 2)[..], &[("RDMA_PARENT_PID", "4711".to_owned())]].concat();
        assert_eq!(place(&own, "allreduce --ranks 2").unwrap(), Some((1, 2)));
    }

    #[test]
    fn more_ranks_than_the_check_is_exact_for_are_refused() {
        assert!(place(&started(1, 257), "allreduce").unwrap_err().to_string().contains("at most 256"));
        assert_eq!(place(&started(1, 256), "allreduce").unwrap(), Some((1, 256)));
    }
}
