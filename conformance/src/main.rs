//! `conformance`: runs the suite on a device, and ends with `N passed, N failed, N skipped`.
//!
//! Exit status: 0 when no case failed, 1 when one did, 2 when the suite could not run.

use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, TcpListener};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::Arc;

use clap::{Parser, ValueEnum};
use conformance::{Case, Lab, Outcome, cases, peer};
use rdma_core::{Device, DeviceList, SoftOptions, Wire};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// Checks that a device does what RDMA verbs promise.
#[derive(Parser)]
struct Args {
    /// The device: `soft`, or a name that `ibv_devices` lists.
    #[arg(long, default_value = "soft")]
    device: String,
    /// The software device's wire.
    #[arg(long, value_enum, default_value_t = WireName::Local)]
    wire: WireName,
    /// The address that the software device listens on.
    #[arg(long, default_value = "127.0.0.1")]
    address: std::net::IpAddr,
    /// The index of the GID to send from; without it the library chooses one.
    #[arg(long)]
    gid_index: Option<u32>,
    /// HOST:PORT of a `conformance --serve` on another host; otherwise one is started here.
    #[arg(long)]
    peer: Option<String>,
    /// Serve a peer at this address (port 0 takes a free one) instead of running cases.
    #[arg(long)]
    serve: Option<SocketAddr>,
    /// Run only the cases whose name contains this.
    #[arg(long)]
    only: Option<String>,
    /// List the cases and run none.
    #[arg(long)]
    list: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum WireName {
    /// `local` inside this process, `mapped` to others.
    Auto,
    Local,
    Mapped,
    Tcp,
}

impl WireName {
    fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Local => "local",
            Self::Mapped => "mapped",
            Self::Tcp => "tcp",
        }
    }
}

fn main() -> ExitCode {
    match run(&Args::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(error) => {
            eprintln!("conformance: {error}");
            ExitCode::from(2)
        }
    }
}

fn run(args: &Args) -> Result<bool> {
    let device = find(args)?;
    let across = !device.is_soft() || args.wire != WireName::Local;
    let cases = chosen(args, across);
    if args.list {
        cases.iter().for_each(|case| println!("{}{}", case.name, if case.exact { " (exact)" } else { "" }));
        return Ok(true);
    }
    let mut lab = Lab::open(&device, args.gid_index)?;
    let wire = if device.is_soft() { args.wire.name() } else { "rdma" };
    println!("# device {} wire {wire} GID {} {}", lab.context.name(), lab.gid.index, lab.gid.gid);
    if let Some(address) = args.serve {
        let listener = TcpListener::bind(address)?;
        println!("# serving {}", listener.local_addr()?);
        return peer::serve(&lab, &listener).map(|()| true);
    }
    let mut started = None;
    if across {
        lab.peer = Some(match &args.peer {
            Some(peer) => peer.clone(),
            None => {
                let (child, address) = start_peer(args)?;
                started = Some(child);
                address
            }
        });
    }
    let report = conformance::run(&Arc::new(lab), &cases, |name, outcome| match outcome {
        Outcome::Passed => println!("{name} ... ok"),
        Outcome::Failed(why) => println!("{name} ... FAILED: {why}"),
        Outcome::Skipped(why) => println!("{name} ... skipped: {why}"),
    });
    if let Some(mut child) = started {
        child.kill()?;
        child.wait()?;
    }
    println!("{report}");
    Ok(report.failed().is_empty() && report.outcomes.len() == cases.len())
}

fn find(args: &Args) -> Result<Device> {
    if args.device != "soft" {
        return Ok(DeviceList::probe().find(&args.device)?.clone());
    }
    let wire = match args.wire {
        WireName::Auto => Wire::Auto,
        WireName::Local => Wire::Local,
        WireName::Mapped => Wire::Mapped,
        WireName::Tcp => Wire::Tcp,
    };
    Ok(Device::soft(SoftOptions { wire, address: args.address, ..SoftOptions::default() }))
}

fn chosen(args: &Args, across: bool) -> Vec<Case> {
    let mut cases = cases::all();
    if across {
        cases.extend(cases::across_processes());
    }
    cases.retain(|case| args.only.as_ref().is_none_or(|part| case.name.contains(part.as_str())));
    cases
}

/// Starts this program as a peer, which serves on a free port of this host.
fn start_peer(args: &Args) -> Result<(Child, String)> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["--device", &args.device, "--wire", args.wire.name(), "--serve", "127.0.0.1:0"]);
    command.args(["--address", &args.address.to_string()]);
    if let Some(index) = args.gid_index {
        command.args(["--gid-index", &index.to_string()]);
    }
    let mut child = command.stdout(Stdio::piped()).spawn()?;
    let output = child.stdout.take().ok_or("the peer has no output")?;
    for line in BufReader::new(output).lines() {
        if let Some(address) = line?.strip_prefix("# serving ") {
            return Ok((child, address.to_owned()));
        }
    }
    child.wait()?;
    Err("the peer process ended before it served".into())
}
