//! `rdma-tools pingpong` beside `ibv_rc_pingpong` on one RDMA device.
//!
//! `cargo xtask soft-roce -- target/release/pingpong` runs it on the kernel's soft-RoCE, with `rdma-tools` built beside
//! it. Exit status 1 when a row is not within its bound.

use std::path::Path;
use std::process::{Command, ExitCode};

use benches::peers::serve_and_run;
use benches::programs;
use benches::ratio::{Bound, HEAD, Row};
use benches::report::{Report, SaveArgs};
use benches::soft::Outcome;
use clap::Parser;

/// Where servers listen.
const PORT: u16 = 18515;
const BOUND: Bound = Bound::AtMost(1.05);

/// Times `rdma-tools pingpong`.
#[derive(Parser)]
struct Args {
    /// The device.
    #[arg(long, default_value = "rxe0")]
    device: String,
    /// The GID, by its index.
    #[arg(long, default_value_t = 1)]
    gid_index: u32,
    /// Exchanges of messages in a run.
    #[arg(long, default_value_t = 10000)]
    exchanges: u32,
    /// Interleaved pairs a row.
    #[arg(long, default_value_t = 15)]
    pairs: usize,
    #[command(flatten)]
    save: SaveArgs,
}

fn main() -> ExitCode {
    benches::main("pingpong", run)
}

fn run(args: &Args) -> Outcome<bool> {
    let program = programs::beside("rdma-tools")?;
    let (mut report, mut all_hold) = (Report::default(), true);
    println!("{HEAD}");
    for (name, flags) in [
        ("pingpong, 4 KiB, against ibv_rc_pingpong", &[][..]),
        ("pingpong -e, 4 KiB, against ibv_rc_pingpong -e", &["-e"]),
    ] {
        let ours = || exchange(args, &program, &["pingpong"], flags);
        let theirs = || exchange(args, Path::new("ibv_rc_pingpong"), &[], flags);
        all_hold &= report.row(&Row::measure(name, "us", BOUND, args.pairs, ours, theirs)?);
    }
    report.save(&args.save, "pingpong")?;
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
