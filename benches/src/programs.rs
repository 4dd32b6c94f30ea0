//! Our own programs, run for their figures.

use std::error::Error;
use std::path::PathBuf;
use std::process::{Command, Output};

use serde_json::Value;

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

/// Where a program is that was built with this one.
///
/// # Errors
///
/// The program was not built.
pub fn beside(program: &str) -> Result<PathBuf> {
    let path = std::env::current_exe()?.with_file_name(program);
    if path.exists() { Ok(path) } else { Err(format!("{} is not built", path.display()).into()) }
}

/// The output of a program; its messages when it fails.
///
/// # Errors
///
/// The program cannot be started, or fails.
pub fn output(command: &mut Command) -> Result<Output> {
    let output = command.output().map_err(|error| format!("{command:?}: {error}"))?;
    if output.status.success() {
        return Ok(output);
    }
    Err(format!("{command:?}: {}\n{}", output.status, String::from_utf8_lossy(&output.stderr)).into())
}

/// Bus bandwidth in GB/s of an all-reduce in place over `ranks` processes: the mean over `iterations`.
///
/// # Errors
///
/// The program fails, or prints no figure.
pub fn all_reduce(arguments: &[String], ranks: u32, bytes: u64, iterations: u32) -> Result<f64> {
    let times = all_reduce_times(arguments, ranks, (bytes, bytes), iterations)?;
    let (_, microseconds) = times[0];
    Ok(bus_bandwidth(bytes, microseconds, f64::from(ranks)))
}

/// GB/s as nccl-tests counts them for an all-reduce: each byte crosses the bus twice, but for a rank's own share.
#[must_use]
pub fn bus_bandwidth(bytes: u64, microseconds: f64, ranks: f64) -> f64 {
    bytes as f64 / microseconds / 1e3 * 2.0 * (ranks - 1.0) / ranks
}

/// Microseconds of an all-reduce in place over `ranks` processes, as the mean over `iterations`, at the first size and
/// each that is twice the one before it, up to the last.
///
/// # Errors
///
/// The program fails, or does not print all of them.
pub fn all_reduce_times(
    arguments: &[String],
    ranks: u32,
    (first, last): (u64, u64),
    iterations: u32,
) -> Result<Vec<(u64, f64)>> {
    let mut command = Command::new(beside("allreduce")?);
    command.args([
        "--ranks",
        &ranks.to_string(),
        "-b",
        &first.to_string(),
        "-e",
        &last.to_string(),
        "-f",
        "2",
    ]);
    command.args(["-n", &iterations.to_string(), "-w", "3", "-c", "0"]).args(arguments);
    let printed = String::from_utf8(output(&mut command)?.stdout)?;
    let rows: Vec<_> = printed.lines().filter_map(row_in_place).collect();
    let sizes = std::iter::successors(Some(first), |size| Some(size * 2)).take_while(|size| *size <= last);
    if !sizes.eq(rows.iter().map(|(bytes, _)| *bytes)) {
        return Err(format!("no row of each size from {first} to {last} bytes in:\n{printed}").into());
    }
    Ok(rows)
}

/// The size and the time of a line of the table. The last four columns are in place: time, algbw, busbw, #wrong;
/// bandwidths have two digits, which are too few for a slow wire.
pub(crate) fn row_in_place(line: &str) -> Option<(u64, f64)> {
    let words: Vec<_> = line.split_whitespace().collect();
    let time = words.get(words.len().checked_sub(4)?)?;
    Some((words[0].parse().ok()?, time.parse().ok()?))
}

/// MB/s, in perftest's 2^20, of a KV transfer whose blocks are 64 KiB.
///
/// # Errors
///
/// The program fails, or prints no figure.
pub fn kv(device: &str) -> Result<f64> {
    let mut command = Command::new(beside("kvcache_transfer")?);
    command.args([
        "--device",
        device,
        "--model",
        "llama-3.1-8b",
        "--block",
        "16",
        "--prompt",
        "1024",
        "--json",
    ]);
    let report: Value = serde_json::from_slice(&output(&mut command)?.stdout)?;
    let gigabytes = report["gigabytes_per_second"].as_f64().ok_or("no gigabytes_per_second in the report")?;
    Ok(gigabytes * 1e9 / f64::from(1 << 20))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_told_from_the_lines_around_them() {
        let row = "    4096          1024     float     sum      -1   154.07    0.03    0.04     N/A   139.11    0.03    0.04     N/A";
        assert_eq!(row_in_place(row), Some((4096, 139.11)));
        for line in ["", "#", "# nThread 1 nGpus 1 minBytes 8", "#       size         count      type"] {
            assert_eq!(row_in_place(line), None, "{line}");
        }
    }
}
