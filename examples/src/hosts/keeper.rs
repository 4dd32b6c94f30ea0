//! A process that does nothing but hold the namespaces of a host or of the switch.

use std::io::{self, Read};
use std::process::{Child, Command, Stdio};

use super::HostsError;

/// Makes a shell script stop at its first failure, say that it is through, and then wait for the end of its input,
/// which comes with the end of the process that started it.
const STAY: &str = "\necho ready\nexec cat >/dev/null 2>&1";

/// The process; its namespaces go with it and with the last process that was started in them.
#[derive(Debug)]
pub(super) struct Keeper {
    process: Child,
    /// Whether the namespaces are in a user namespace, because this process is not root's.
    is_in_user: bool,
}

impl Keeper {
    /// Makes namespaces, beside those of another keeper, and runs a script in them, with its arguments.
    pub(super) fn new(beside: Option<&Self>, script: &str, arguments: &[&str]) -> Result<Self, HostsError> {
        let is_in_user = !rustix::process::geteuid().is_root();
        let mut command = beside.map_or_else(|| Command::new("unshare"), Self::enter);
        match beside {
            Some(_) => drop(command.arg("unshare")),
            None if is_in_user => drop(command.args(["--user", "--map-root-user"])),
            None => {}
        }
        command.args(["--net", "--mount", "--uts", "--propagation", "private", "--"]);
        command.args(["sh", "-ec", &(script.to_owned() + STAY), "keeper"]).args(arguments);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let process = command.spawn().map_err(|error| failed("unshare", &error.to_string()))?;
        let mut keeper = Self { process, is_in_user };
        let said = keeper.process.stdout.take().map_or(Ok(String::new()), io::read_to_string);
        if said.is_ok_and(|said| said == "ready\n") {
            return Ok(keeper);
        }
        let mut why = String::new();
        if let Some(errors) = &mut keeper.process.stderr {
            let _ = errors.read_to_string(&mut why);
        }
        Err(failed("unshare", &why))
    }

    /// The process id, by which a device is moved to this network.
    pub(super) fn id(&self) -> u32 {
        self.process.id()
    }

    /// The beginning of a command that runs in these namespaces.
    pub(super) fn enter(&self) -> Command {
        let mut command = Command::new("nsenter");
        command.args(["--target", &self.id().to_string(), "--net", "--mount", "--uts"]);
        if self.is_in_user {
            command.args(["--user", "--preserve-credentials"]);
        }
        command.arg("--");
        command
    }

    /// Runs a script in these namespaces, with its arguments.
    pub(super) fn run(&self, script: &str, arguments: &[&str]) -> Result<(), HostsError> {
        let mut command = self.enter();
        command.args(["sh", "-ec", script, "script"]).args(arguments).stdin(Stdio::null());
        let output = command.output().map_err(|error| failed("nsenter", &error.to_string()))?;
        if output.status.success() {
            return Ok(());
        }
        Err(failed(script, &String::from_utf8_lossy(&output.stderr)))
    }
}

fn failed(what: &str, why: &str) -> HostsError {
    HostsError(format!("`{what}`: {}", why.trim()))
}

impl Drop for Keeper {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
