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
/// It was not built.
pub fn beside(program: &str) -> Result<PathBuf> {
    let path = std::env::current_exe()?.with_file_name(program);
    if path.exists() { Ok(path) } else { Err(format!("{} is not built", path.display()).into()) }
}

/// What a program prints; its messages when it fails.
///
/// # Errors
///
/// It cannot be started, or fails.
pub fn output(command: &mut Command) -> Result<Output> {
    let output = command.output().map_err(|error| format!("{command:?}: {error}"))?;
    if output.status.success() {
        return Ok(output);
    }
    Err(format!("{command:?}: {}\n{}", output.status, String::from_utf8_lossy(&output.stderr)).into())
}

/// Bus bandwidth in GB/s of an all-reduce in place over `ranks` processes, sum, elements of type `data_type` by
/// nccl-tests' name: the mean over `iterations`.
///
/// # Errors
///
/// The program fails, or prints no figure.
pub fn all_reduce(device: &str, ranks: u32, bytes: u64, data_type: &str, iterations: u32) -> Result<f64> {
    let size = bytes.to_string();
    let mut command = Command::new(beside("allreduce")?);
    command.args(["--device", device, "--ranks", &ranks.to_string(), "-b", &size, "-e", &size]);
    command.args(["-n", &iterations.to_string(), "-w", "3", "-c", "0", "-d", data_type]);
    let printed = String::from_utf8(output(&mut command)?.stdout)?;
    let words = printed.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let mut rows = words.filter(|words| words.first() == Some(&size.as_str()));
    let row = rows.next().ok_or_else(|| format!("no row of {bytes} bytes in:\n{printed}"))?;
    // The last four columns are in place: time, algbw, busbw, #wrong. Bandwidths have two digits, which are too few for a
    // slow wire.
    let time = row.len().checked_sub(4).and_then(|at| row.get(at)).ok_or("a row without a time")?;
    let microseconds: f64 = time.parse()?;
    let ranks = f64::from(ranks);
    Ok(bytes as f64 / microseconds / 1e3 * 2.0 * (ranks - 1.0) / ranks)
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
