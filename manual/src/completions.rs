//! Completions of a command: clap_complete's, in which each option `device` offers the devices of the host.

use clap::builder::PossibleValuesParser;
use clap::{Arg, Command};
use clap_complete::{Shell, generate};

/// Stands in the script for the devices that `rdma-tools` lists, and for these with the software device.
const DEVICES: &str = "RDMA_DEVICES";
const DEVICES_OR_SOFT: &str = "RDMA_OR_SOFT_DEVICES";
/// The default of programs that choose a device.
const AUTO: &str = "auto";

/// Makes the script of `command`, which is built, for a shell.
pub fn script(command: &Command, shell: Shell) -> String {
    let mut script = Vec::new();
    let name = command.get_name().to_owned();
    generate(shell, &mut with_devices(command.clone()), name, &mut script);
    let script = String::from_utf8_lossy(&script);
    // clap_complete 4.6 gives the state of a subcommand two names where the program's has a hyphen (issue 6421 of
    // clap), so that bash completes none of its flags.
    let state = |hyphen| command.get_name().replace('-', hyphen) + "__subcmd__";
    let script = script.replace(&state("__subcmd__"), &state("__"));
    let names = [(DEVICES, ""), (DEVICES_OR_SOFT, " --soft")];
    names.into_iter().fold(script, |script, (word, flag)| {
        let list = format!("rdma-tools stat --list_of_cas{flag} 2>/dev/null");
        match shell {
            Shell::Fish => script.replace(&format!("{word}\\t''"), &format!("({list})")),
            _ => script.replace(word, &format!("$({list})")),
        }
    })
}

fn with_devices(command: Command) -> Command {
    let device = command.get_arguments().find(|arg| arg.get_id() == "device");
    let values = device.map(|device| values(&command, device));
    let command = match values {
        Some(values) => {
            command.mut_arg("device", |device| device.value_parser(PossibleValuesParser::new(values)))
        }
        None => command,
    };
    command.mut_subcommands(with_devices)
}

/// Words for a device: those that are there, and the default.
fn values(command: &Command, device: &Arg) -> Vec<&'static str> {
    let mut others = command.get_arg_conflicts_with(device).into_iter();
    let word = if others.any(|other| other.get_long() == Some("soft")) { DEVICES } else { DEVICES_OR_SOFT };
    let defaults = device.get_default_values().iter();
    std::iter::once(word).chain(defaults.filter(|value| *value == AUTO).map(|_| AUTO)).collect()
}
