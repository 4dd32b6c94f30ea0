//! Whether KVM works here. A `/dev/kvm` that opens proves nothing: nested and restricted hosts have one on
//! which a guest hangs at its first instruction. So a guest is tried once, and the verdict kept.

use std::ffi::OsString;
use std::fs::{self, OpenOptions};
use std::time::{Duration, Instant};

use anyhow::Result;

use super::guest::{Command, Folder, Place};
use super::prepare::Tools;
use super::vm::{Progress, Shape, Vm};
use crate::process;

const ANSWER_LIMIT: Duration = Duration::from_secs(10);

/// True when a guest under KVM answered within [`ANSWER_LIMIT`], now or when it was last tried on this kernel.
pub fn answers(tools: &Tools) -> Result<bool> {
    if OpenOptions::new().read(true).write(true).open("/dev/kvm").is_err() {
        return Ok(false);
    }
    let host = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let stamp = tools.cache.join("kvm");
    let known = fs::read_to_string(&stamp).unwrap_or_default();
    for (verdict, word) in [(true, "answers"), (false, "hangs")] {
        if known == format!("{} {word}\n", host.trim()) {
            return Ok(verdict);
        }
    }
    let started = Instant::now();
    let verdict = try_guest(tools)?;
    println!("soft-roce: tried KVM for {:.1} s", started.elapsed().as_secs_f64());
    if let Some(verdict) = verdict {
        fs::write(stamp, format!("{} {}\n", host.trim(), if verdict { "answers" } else { "hangs" }))?;
    }
    Ok(verdict.unwrap_or(false))
}

/// For people: how the machine will run.
pub fn describe(accelerated: bool) -> &'static str {
    if accelerated { "running under KVM" } else { "running under emulation: no KVM that answers" }
}

/// Whether a guest answers; `None` when the machine died for some other reason, which the real run will show.
fn try_guest(tools: &Tools) -> Result<Option<bool>> {
    let path = tools.cache.join(format!("kvm-{}", std::process::id()));
    let command = Command { argv: vec![OsString::from("true")], timeout: ANSWER_LIMIT };
    let folder = Folder::create(path.clone(), &Place { host: 0, hosts: 1 }, &command)?;
    let shape = Shape { accelerated: true, cpus: 1, memory: 512, wire: None, limit: 2 * ANSWER_LIMIT };
    let mut vm = Vm::boot(tools, &shape, folder)?;
    let deadline = Instant::now() + ANSWER_LIMIT;
    let verdict = loop {
        let progress = vm.look()?;
        match (vm.stages().0, progress) {
            (Some(_), _) => break Some(true),
            (None, Progress::Silent(_)) => break None,
            (None, _) if Instant::now() >= deadline => break Some(false),
            (None, _) => process::pause()?,
        }
    };
    drop(vm);
    fs::remove_dir_all(path)?;
    Ok(verdict)
}
