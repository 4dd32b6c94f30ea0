//! Where the ranks of a run are, and how they reach each other.

use std::fs;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

use examples::hosts::{Hosts, Place};

use crate::soft::Outcome;

/// Where our ranks meet on hosts of namespaces, whose ports are all free.
const PORT: u16 = 29500;

/// The places of ranks.
#[derive(Debug)]
pub enum Network {
    /// All on this host, by whatever is fastest there.
    Host,
    /// All on this host, over TCP alone.
    Loopback,
    /// Spread over hosts of namespaces: over TCP between hosts, by whatever is fastest inside.
    Spread(Spread),
}

/// Hosts, the ranks on each of them, and the megabits a second of each host's cable.
const HOSTS: usize = 4;
const PER_HOST: usize = 2;
const MEGABITS: u32 = 1000;
/// The text for these numbers behind the name of an operation.
pub(super) const SPREAD: &str = ", 4 hosts with 1 Gb/s between them";

/// Hosts for the ranks of a run.
#[derive(Debug)]
pub struct Spread {
    hosts: Hosts,
}

impl Spread {
    /// The ranks of all hosts.
    pub const RANKS: u32 = (HOSTS * PER_HOST) as u32;

    /// Makes the hosts.
    ///
    /// # Errors
    ///
    /// This user may not make namespaces.
    pub fn new() -> Outcome<Self> {
        Ok(Self { hosts: Hosts::new(HOSTS, Some(MEGABITS))? })
    }

    /// Runs a program of ours as all ranks, and returns what rank 0 printed.
    pub(super) fn output(&self, program: &Path, arguments: &[String]) -> Outcome<String> {
        run_on(&self.hosts, PER_HOST, program, arguments, &[])
    }

    /// A command of Open MPI's `mpirun` on the first host, which starts the others' daemons by `agent`: that script is
    /// to Open MPI what `ssh` is elsewhere.
    pub(super) fn mpirun(&self, mpirun: &Path, agent: &Path) -> Outcome<Command> {
        let cases = (0..HOSTS).map(|host| {
            format!("{}) exec {} sh -c \"$*\" ;;\n", Hosts::address(host), self.hosts.prefix(host))
        });
        let script =
            format!("#!/bin/sh\naddress=$1\nshift\ncase $address in\n{}esac\n", cases.collect::<String>());
        fs::write(agent, script)?;
        fs::set_permissions(agent, fs::Permissions::from_mode(0o755))?;
        let list = (0..HOSTS).map(|host| format!("{}:{}", Hosts::address(host), PER_HOST));
        let list = list.collect::<Vec<_>>().join(",");
        let network = format!("{}/24", Hosts::address(0));
        let mut command = self.hosts.command(0, mpirun);
        command.args(["--host", &list, "--prtemca", "plm_ssh_agent"]).arg(agent);
        command.args(["--prtemca", "prte_if_include", &network, "--mca", "btl_tcp_if_include", &network]);
        Ok(command)
    }
}

/// Runs a program of ours as `per_host` ranks on each host, and returns what rank 0 printed.
pub(crate) fn run_on(
    hosts: &Hosts,
    per_host: usize,
    program: &Path,
    arguments: &[String],
    variables: &[(&str, &str)],
) -> Outcome<String> {
    let mut is_first = true;
    let start = |place: Place| {
        let mut command = hosts.command(place.host, program);
        command.args(arguments).envs(place.variables).envs(variables.iter().copied()).stdin(Stdio::null());
        command.stdout(if std::mem::take(&mut is_first) { Stdio::piped() } else { Stdio::null() }).spawn()
    };
    let mut ranks = hosts.places(per_host, PORT).map(start).collect::<Result<Vec<_>, _>>()?;
    let mut printed = String::new();
    if let Some(output) = &mut ranks[0].stdout {
        output.read_to_string(&mut printed)?;
    }
    let ended = ranks.iter_mut().map(std::process::Child::wait).collect::<Result<Vec<_>, _>>()?;
    match ended.iter().enumerate().find(|(_, status)| !status.success()) {
        None => Ok(printed),
        Some((rank, status)) => Err(format!("rank {rank} of ours on hosts: {status}").into()),
    }
}
