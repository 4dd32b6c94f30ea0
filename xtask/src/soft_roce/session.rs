//! A run: boots a machine, or two on one wire, shows what the command prints, and collects the verdicts.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::guest::{Command, Folder, Place};
use super::prepare::Tools;
use super::tail::Tail;
use super::verdict::Verdict;
use super::vm::{Progress, Shape, Vm};
use super::{Args, Outcome, Run};
use crate::{process, workspace};

/// From power on to a ready device: 20 s under emulation on an idle machine, many times that on a busy one.
const BOOT_LIMIT: Duration = Duration::from_secs(420);
const POWER_OFF_LIMIT: Duration = Duration::from_secs(20);
const LISTEN_LIMIT: Duration = Duration::from_secs(30);
/// How long the other host may go on after one has failed.
const PEER_GRACE: Duration = Duration::from_secs(30);
const LOG_LINES: usize = 40;

struct Host {
    vm: Vm,
    name: String,
    output: Tail,
    told_ready: bool,
    verdict: Option<Verdict>,
}

/// Runs the command on every host, and says how that ended.
pub fn run(tools: &Tools, accelerated: bool, args: &Args, command: &Command, wanted: &[&str]) -> Result<Run> {
    let folder = run_folder()?;
    let mut hosts = boot_all(tools, accelerated, args, command, &folder)?;
    let failure = watch(&mut hosts, BOOT_LIMIT + command.timeout);
    for host in &mut hosts {
        host.output.finish()?;
        // A machine that has given its verdict is only powering off.
        let grace = if host.verdict.is_some() { POWER_OFF_LIMIT } else { Duration::ZERO };
        if failure.is_ok() {
            host.vm.finish(grace)?;
        } else {
            host.vm.finish(Duration::ZERO)?;
        }
    }
    let failure = failure?;
    let files = hosts.iter().map(|host| wanted.iter().map(|name| host.vm.read(name)).collect()).collect();
    match &failure {
        Some(_) => hosts.iter().for_each(explain),
        None if args.keep => {}
        None => fs::remove_dir_all(&folder)?,
    }
    if failure.is_some() || args.keep {
        println!("soft-roce: logs are in {}", folder.display());
    }
    Ok(Run { outcome: failure.map_or(Outcome::Passed, Outcome::Failed), files })
}

/// A folder that no other run has, now or later.
fn run_folder() -> Result<PathBuf> {
    static RUNS: AtomicU32 = AtomicU32::new(0);
    let run = RUNS.fetch_add(1, Ordering::Relaxed);
    let base = workspace::target()?.join("soft-roce");
    fs::create_dir_all(&base).with_context(|| format!("cannot create {}", base.display()))?;
    let folder = base.join(format!("{}-{run}", std::process::id()));
    if folder.exists() {
        fs::remove_dir_all(&folder)?;
    }
    Ok(folder)
}

fn boot_all(
    tools: &Tools,
    accelerated: bool,
    args: &Args,
    command: &Command,
    folder: &Path,
) -> Result<Vec<Host>> {
    // As the folder, a name that no other run has.
    let socket = format!("rdma-xtask-{}", folder.file_name().unwrap_or_default().to_string_lossy());
    let mut hosts: Vec<Host> = Vec::new();
    for host in 0..args.hosts {
        let place = Place { host, hosts: args.hosts };
        let shape = Shape {
            accelerated,
            cpus: args.cpus.unwrap_or(if args.hosts == 1 { 2 } else { 1 }),
            memory: args.memory.unwrap_or(if args.hosts == 1 { 4096 } else { 2048 }),
            wire: (args.hosts > 1).then(|| wire(&place, &socket)),
            limit: BOOT_LIMIT + command.timeout + POWER_OFF_LIMIT,
        };
        if let Some(listener) = hosts.first_mut() {
            await_listener(&mut listener.vm, &socket)?;
        }
        let share = Folder::create(folder.join(format!("host{host}")), &place, command)?;
        let prefix = if args.hosts == 1 { String::new() } else { format!("[host {host}] ") };
        let output = Tail::new(&share.path.join("output"), &prefix);
        let vm = Vm::boot(tools, &shape, share)?;
        hosts.push(Host { vm, name: format!("host {host}"), output, told_ready: false, verdict: None });
    }
    Ok(hosts)
}

/// QEMU's options for one end of the wire: the first host listens, the other connects. Not over TCP, where QEMU leaves
/// Nagle's algorithm on in the one that listens: then a frame waits 40 ms for the acknowledgement of the one before it.
fn wire(place: &Place, socket: &str) -> String {
    let server = if place.host == 0 { "on" } else { "off" };
    let mac = place.mac();
    format!(
        "-netdev stream,id=n0,server={server},addr.type=unix,addr.path={socket},addr.abstract=on \
         -device virtio-net-pci,netdev=n0,mac={mac}"
    )
}

/// Waits until QEMU listens. Its one connection is for the other host, so this reads the kernel's table.
fn await_listener(vm: &mut Vm, socket: &str) -> Result<()> {
    let deadline = Instant::now() + LISTEN_LIMIT;
    while Instant::now() < deadline {
        if fs::read_to_string("/proc/net/unix")?.lines().any(|line| listens(line, socket)) {
            return Ok(());
        }
        if let Progress::Silent(reason) = vm.look()? {
            bail!("the first machine never listened: {reason}\n{}", last_lines(&vm.read("console")));
        }
        process::pause()?;
    }
    bail!("the first machine did not listen at @{socket} within {} s", LISTEN_LIMIT.as_secs())
}

/// Whether a line of `/proc/net/unix` is of an abstract socket with this name that listens.
fn listens(line: &str, socket: &str) -> bool {
    let words: Vec<&str> = line.split_whitespace().collect();
    words.get(3) == Some(&"00010000") && words.get(7).and_then(|name| name.strip_prefix('@')) == Some(socket)
}

/// Follows all hosts until each has a verdict; the reason when the run failed.
fn watch(hosts: &mut [Host], limit: Duration) -> Result<Option<String>> {
    let mut deadline = Instant::now() + limit;
    let mut failure: Option<String> = None;
    while hosts.iter().any(|host| host.verdict.is_none()) {
        for host in hosts.iter_mut().filter(|host| host.verdict.is_none()) {
            host.output.print_new()?;
            let progress = host.vm.look()?;
            host.tell_ready();
            let reason = match progress {
                Progress::Running => continue,
                Progress::Said(Verdict::Ok) => {
                    host.verdict = Some(Verdict::Ok);
                    continue;
                }
                Progress::Said(Verdict::Failed(reason)) | Progress::Silent(reason) => reason,
            };
            host.verdict = Some(Verdict::Failed(reason.clone()));
            deadline = deadline.min(Instant::now() + PEER_GRACE);
            failure.get_or_insert(format!("{}: {reason}", host.name));
        }
        if Instant::now() >= deadline {
            let late: Vec<&str> =
                hosts.iter().filter(|host| host.verdict.is_none()).map(|host| host.name.as_str()).collect();
            return Ok(Some(
                failure.unwrap_or_else(|| format!("{} gave no verdict in time", late.join(", "))),
            ));
        }
        process::pause()?;
    }
    Ok(failure)
}

impl Host {
    fn tell_ready(&mut self) {
        let (Some(up), Some(ready)) = self.vm.stages() else { return };
        if !self.told_ready {
            self.told_ready = true;
            let (up, ready) = (up.as_secs_f64(), ready.as_secs_f64());
            println!("soft-roce: {} booted in {up:.1} s, its device was ready at {ready:.1} s", self.name);
        }
    }
}

/// Prints what a failed run's host left in its logs.
fn explain(host: &Host) {
    println!("soft-roce: {}: {:?}", host.name, host.verdict);
    if host.vm.stages().1.is_some() && host.verdict.is_some() {
        return; // the command ran, and said for itself what was wrong
    }
    for log in ["setup", "console"] {
        println!("--- {}, end of {log}\n{}", host.name, last_lines(&host.vm.read(log)));
    }
}

fn last_lines(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(LOG_LINES)..].join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_that_listens_is_told_from_a_connected_one() {
        let listening = "0000000000000000: 00000002 00000000 00010000 0001 01 15134014 @rdma-xtask-7-0";
        let connected = "0000000000000000: 00000003 00000000 00000000 0001 03 15134015 @rdma-xtask-7-0";
        assert!(listens(listening, "rdma-xtask-7-0"));
        assert!(!listens(connected, "rdma-xtask-7-0"));
        assert!(!listens(listening, "rdma-xtask-7-1") && !listens("", "rdma-xtask-7-0"));
    }
}
