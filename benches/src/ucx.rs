//! UCX's own benchmark, over its shared memory transport (`posix`).

use std::error::Error;
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::Command;

use crate::peers;

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

/// `ucx_perftest`, if it is installed.
#[must_use]
pub fn program() -> Option<PathBuf> {
    let peers = std::env::var_os("PEERS").map(|peers| PathBuf::from(peers).join("bin"));
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = peers.into_iter().chain(std::env::split_paths(&path));
    folders.map(|folder| folder.join("ucx_perftest")).find(|program| program.exists())
}

/// Seconds of one message of `bytes`, the median that `ucx_perftest` tells of its last 2048; one way, where it measures
/// round trips. Tests whose names begin with `ucp` or `tag` are those of UCX's upper layer, the others those of the
/// transport itself.
///
/// # Errors
///
/// The program fails, or prints no figure.
pub fn median(program: &PathBuf, test: &str, bytes: usize, iterations: usize) -> Result<f64> {
    let port = TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port();
    let command = || {
        let mut command = Command::new(program);
        command.env("UCX_TLS", "posix").env("UCX_WARN_UNUSED_ENV_VARS", "n").args(["-p", &port.to_string()]);
        command
    };
    let mut client = command();
    client.args(["127.0.0.1", "-f", "-v", "-t", test, "-s", &bytes.to_string()]);
    client.args(["-n", &iterations.to_string(), "-w", &(iterations / 4).to_string()]);
    if !test.starts_with("uc") && !test.starts_with("tag") {
        client.args(["-d", "memory", "-x", "posix", "-D", "short"]);
    }
    figure(&peers::serve_and_run(command(), client, port)?)
}

/// The median in the table that `ucx_perftest -f -v` prints: microseconds, in the second column of its last row.
fn figure(printed: &str) -> Result<f64> {
    let row =
        printed.lines().rev().find(|line| line.trim_start().starts_with(|it: char| it.is_ascii_digit()));
    let word =
        row.and_then(|row| row.split(',').nth(1)).ok_or_else(|| format!("no figure in:\n{printed}"))?;
    Ok(word.trim().parse::<f64>()? / 1e6)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_the_last_row() {
        let printed = "iterations,50.0_percentile_lat,avg_lat,overall_lat,avg_bw,overall_bw,avg_mr,overall_mr\n\
                       1000000,0.050,0.304,0.806,25.10,9.47,3290253,1241132\n";
        assert!((figure(printed).unwrap() - 50e-9).abs() < 1e-15);
        assert!(figure("iterations,50.0_percentile_lat\n").is_err());
    }
}
