//! A virtual machine: its command line, its life, and the guest's output so far.

use std::fs::File;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::Result;

use super::guest::Folder;
use super::prepare::Tools;
use super::verdict::{self, Verdict};
use crate::process::Group;
use crate::workspace;

/// Where a guest has empty folders of its own in place of the host's.
const HIDDEN: [&str; 3] = ["/tmp", "/var/tmp", "/run"];

/// The parts of a machine.
pub struct Shape {
    /// Whether to use KVM.
    pub accelerated: bool,
    /// Processors.
    pub cpus: u8,
    /// Memory in MiB.
    pub memory: u32,
    /// The wire to the other host, as QEMU's options.
    pub wire: Option<String>,
    /// After this the machine is ended, even when nobody is left to watch it.
    pub limit: Duration,
}

/// A machine that was started.
pub struct Vm {
    group: Group,
    folder: Folder,
    started: Instant,
    up: Option<Duration>,
    ready: Option<Duration>,
}

/// The state of a machine's guest.
pub enum Progress {
    /// The guest is still at work.
    Running,
    /// The guest has given its verdict.
    Said(Verdict),
    /// The guest ended and gave no verdict.
    Silent(String),
}

impl Vm {
    /// Boots a guest that runs the script in `folder`.
    pub fn boot(tools: &Tools, shape: &Shape, folder: Folder) -> Result<Vm> {
        let console = File::create(folder.path.join("console"))?;
        // Should this process be killed, `timeout` gets the signal of its parent's death, and ends the machine.
        let mut command = Command::new("setpriv");
        command.args([
            "--pdeathsig",
            "TERM",
            "timeout",
            "--kill-after=5",
            &shape.limit.as_secs().to_string(),
        ]);
        command.arg(&tools.vng);
        command.args(["--verbose", "--force-9p", "--disable-microvm", "--disable-monitor", "--user", "root"]);
        if !shape.accelerated {
            command.arg("--disable-kvm");
        }
        command.args(["--cpus", &shape.cpus.to_string(), "--memory", &format!("{}M", shape.memory)]);
        if let Some(wire) = &shape.wire {
            command.arg(format!("--qemu-opts={wire}"));
        }
        // The kernel panics where the timer is late while it boots, as it is where this host is busy.
        command.args(["--append", "no_timer_check"]);
        for folder in hidden_builds()? {
            command.arg("--rodir").arg(folder);
        }
        command.arg("--run").arg(&tools.vmlinuz).arg("--rwdir").arg(&folder.path).arg("--").arg("bash");
        command.args(folder.script()).current_dir("/").env("PATH", tools.search_path()?);
        command.stdin(Stdio::null()).stdout(console.try_clone()?).stderr(console);
        let group = Group::spawn(&mut command)?;
        Ok(Vm { group, folder, started: Instant::now(), up: None, ready: None })
    }

    /// Looks at what the guest wrote since the last look.
    pub fn look(&mut self) -> Result<Progress> {
        // Asked first: a guest that has ended can write no more, so what is read after this is all there is.
        let ended = self.group.poll()?;
        self.note_stages();
        if let Some(verdict) = verdict::read(&self.folder.read("verdict")) {
            return Ok(Progress::Said(verdict));
        }
        if self.folder.asks_for_its_death() {
            println!("soft-roce: a machine is killed, as its guest has asked");
            self.group.kill();
            return Ok(Progress::Said(Verdict::Ok));
        }
        if self.folder.read("console").contains("Kernel panic") {
            return Ok(Progress::Silent("the guest's kernel panicked".to_owned()));
        }
        match ended {
            Some(status) => Ok(Progress::Silent(format!("the machine ended ({status}) without a verdict"))),
            None => Ok(Progress::Running),
        }
    }

    /// How long the guest took until its script ran, and until its device was there.
    pub fn stages(&self) -> (Option<Duration>, Option<Duration>) {
        (self.up, self.ready)
    }

    /// The text that the guest wrote to one of its files.
    pub fn read(&self, name: &str) -> String {
        self.folder.read(name)
    }

    /// Lets the guest power off by itself, else ends it.
    pub fn finish(&mut self, grace: Duration) -> Result<()> {
        self.group.wait_until(Instant::now() + grace)?;
        self.group.end();
        Ok(())
    }

    fn note_stages(&mut self) {
        if self.ready.is_some() {
            return;
        }
        let stage = self.folder.read("stage");
        let now = self.started.elapsed();
        if stage.contains("up") {
            self.up.get_or_insert(now);
        }
        if stage.contains("ready") {
            self.ready = Some(now);
        }
    }
}

/// Folders of builds and plans that the guest would not see by itself.
fn hidden_builds() -> Result<Vec<PathBuf>> {
    let target = workspace::target()?;
    let is_hidden = HIDDEN.iter().any(|folder| target.starts_with(folder));
    let builds = ["debug", "release", "soft-roce-plans"].map(|folder| target.join(folder));
    Ok(builds.into_iter().filter(|build| is_hidden && build.is_dir()).collect())
}
