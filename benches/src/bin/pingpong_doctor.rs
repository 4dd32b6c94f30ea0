//! `rdma-tools`: its pingpong beside `ibv_rc_pingpong` on one RDMA device, and its doctor beside its own devinfo.
//!
//! `cargo xtask soft-roce -- target/release/pingpong_doctor` runs it on the kernel's soft-RoCE, with `rdma-tools` built
//! beside it; `--only doctor` needs no device. Exit status 1 when a row is not within its bound.

use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::Instant;

use benches::nics::Machine;
use benches::only::OnlyArgs;
use benches::peers::serve_and_run;
use benches::programs;
use benches::ratio::{Bound, HEAD, Row};
use benches::report::{Report, SaveArgs};
use benches::soft::Outcome;
use clap::Parser;

/// Where servers listen.
const PORT: u16 = 18515;
const PINGPONG: Bound = Bound::AtMost(1.05);
const DOCTOR: Bound = Bound::AtMost(5.0);
/// The machine that the doctor looks at.
const NICS: u32 = 8;
const GIDS: u32 = 16;
/// Runs of a program that are timed together, because one takes a few milliseconds.
const RUNS: u32 = 20;

/// Times `rdma-tools`.
#[derive(Parser)]
struct Args {
    /// The device.
    #[arg(long, default_value = "rxe0")]
    device: String,
    /// The GID, by its index.
    #[arg(long, default_value_t = 1)]
    gid_index: u32,
    /// Exchanges of messages in a run of pingpong.
    #[arg(long, default_value_t = 2000)]
    exchanges: u32,
    /// Interleaved pairs a row.
    #[arg(long, default_value_t = 9)]
    pairs: usize,
    #[command(flatten)]
    only: OnlyArgs,
    #[command(flatten)]
    save: SaveArgs,
}

fn main() -> ExitCode {
    benches::main("pingpong_doctor", run)
}

fn run(args: &Args) -> Outcome<bool> {
    let program = programs::beside("rdma-tools")?;
    let (mut report, mut all_hold) = (Report::default(), true);
    println!("{HEAD}");
    for (name, flags) in [
        ("pingpong, 4 KiB, against ibv_rc_pingpong", &[][..]),
        ("pingpong -e, 4 KiB, against ibv_rc_pingpong -e", &["-e"]),
    ] {
        if args.only.has(name) {
            let ours = || exchange(args, &program, &["pingpong"], flags);
            let theirs = || exchange(args, Path::new("ibv_rc_pingpong"), &[], flags);
            all_hold &= report.row(&Row::measure(name, "us", PINGPONG, args.pairs, ours, theirs)?);
        }
    }
    let name = format!("doctor on {NICS} NICs of {GIDS} GIDs, against devinfo -v");
    if args.only.has(&name) {
        let machine = Machine::with(NICS, GIDS)?;
        let ours = || look(&program, &["doctor"], machine.root());
        let theirs = || look(&program, &["devinfo", "-v"], machine.root());
        all_hold &= report.row(&Row::measure(&name, "ms", DOCTOR, args.pairs, ours, theirs)?);
    }
    report.save(&args.save, "pingpong_doctor")?;
    Ok(all_hold)
}

/// Microseconds of an exchange between two of a program, as the client prints them.
fn exchange(args: &Args, program: &Path, subcommand: &[&str], flags: &[&str]) -> Outcome<f64> {
    let command = || {
        let mut command = Command::new(program);
        command.args(subcommand).args(["-d", &args.device, "-g", &args.gid_index.to_string()]);
        command.args(["-n", &args.exchanges.to_string(), "-p", &PORT.to_string()]).args(flags);
        command
    };
    let mut client = command();
    client.arg("127.0.0.1");
    let printed = serve_and_run(command(), client, PORT)?;
    let figure = printed.lines().find_map(|line| line.strip_suffix(" usec/iter")?.rsplit(' ').next());
    Ok(figure.ok_or_else(|| format!("no usec/iter in:\n{printed}"))?.parse()?)
}

/// Milliseconds of a run of a subcommand on a machine's files.
fn look(program: &Path, subcommand: &[&str], root: &Path) -> Outcome<f64> {
    let begin = Instant::now();
    for _ in 0..RUNS {
        // A doctor that finds something ends with 1.
        let output = Command::new(program).args(subcommand).arg("--root").arg(root).output()?;
        if output.stdout.is_empty() {
            let message = String::from_utf8_lossy(&output.stderr);
            return Err(format!("{subcommand:?}: {}\n{message}", output.status).into());
        }
    }
    Ok(begin.elapsed().as_secs_f64() * 1e3 / f64::from(RUNS))
}
