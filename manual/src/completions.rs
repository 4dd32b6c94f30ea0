//! Completions of a command: clap_complete's, in which each argument `device` offers the devices of the host, and no
//! hidden flag is offered.

use clap::builder::{PossibleValuesParser, Resettable};
use clap::{Arg, Command};
use clap_complete::{Shell, generate};

/// Stands in the script for the devices that `rdma-tools` lists, and for these with the software device.
const DEVICES: &str = "RDMA_DEVICES";
const DEVICES_OR_SOFT: &str = "RDMA_OR_SOFT_DEVICES";
/// Stands in the script for a hidden flag.
const HIDDEN: &str = "RDMA_HIDDEN";
/// The default of programs that choose a device.
const AUTO: &str = "auto";

/// Makes the script of `command`, which is built, for a shell.
pub fn script(command: &Command, shell: Shell) -> String {
    let mut script = Vec::new();
    let name = command.get_name().to_owned();
    let mut command = prepared(command.clone(), shell);
    generate(shell, &mut command, name, &mut script);
    let mut script = String::from_utf8_lossy(&script).into_owned();
    if shell == Shell::Fish {
        script += &positionals_for_fish(&command);
    }
    // clap_complete 4.6 gives the state of a subcommand two names where the program's has a hyphen (issue 6421 of
    // clap), so that bash completes none of its flags.
    let state = |hyphen| command.get_name().replace('-', hyphen) + "__subcmd__";
    let script = without_hidden(&script.replace(&state("__subcmd__"), &state("__")));
    let names = [(DEVICES, ""), (DEVICES_OR_SOFT, " --soft")];
    names.into_iter().fold(script, |script, (word, flag)| {
        let list = format!("rdma-tools stat --list_of_cas{flag} 2>/dev/null");
        match shell {
            Shell::Fish => script.replace(&format!("{word}\\t''"), &format!("({list})")),
            _ => script.replace(word, &format!("$({list})")),
        }
    })
}

/// The command as clap_complete should see it.
fn prepared(command: Command, shell: Shell) -> Command {
    let device = command.get_arguments().find(|arg| arg.get_id() == "device");
    let values = device.map(|device| values(&command, device)).unwrap_or_default();
    // In place, because `mut_arg` would put the argument behind the other positional ones.
    let command = command.mut_args(|arg| {
        if arg.is_hide_set() {
            arg.long(HIDDEN).short(Resettable::Reset).help(Resettable::Reset).num_args(0)
        } else if arg.is_require_equals_set() && shell != Shell::Zsh {
            // bash and fish would take the next word for the value, which can stand behind `=` alone.
            arg.num_args(0)
        } else if arg.get_id() == "device" {
            arg.value_parser(PossibleValuesParser::new(values.clone()))
        } else {
            arg
        }
    });
    command.mut_subcommands(|command| prepared(command, shell))
}

/// Words for a device: those that are there, and the default.
fn values(command: &Command, device: &Arg) -> Vec<&'static str> {
    let mut others = command.get_arg_conflicts_with(device).into_iter();
    let word = if others.any(|other| other.get_long() == Some("soft")) { DEVICES } else { DEVICES_OR_SOFT };
    let defaults = device.get_default_values().iter();
    std::iter::once(word).chain(defaults.filter(|value| *value == AUTO).map(|_| AUTO)).collect()
}

/// Lines for the values of positional arguments, which clap_complete 4.6 leaves out for fish.
fn positionals_for_fish(program: &Command) -> String {
    let name = program.get_name();
    let of = |command: &Command, condition: &str| {
        let values = command.get_positionals().flat_map(Arg::get_possible_values);
        let values: Vec<_> = values.map(|value| format!("{}\\t''", value.get_name())).collect();
        let words = values.join("\n");
        if values.is_empty() { words } else { format!("complete -c {name}{condition} -f -a \"{words}\"\n") }
    };
    let using = format!("__fish_{}_using_subcommand", name.replace('-', "_"));
    let subcommands = program.get_subcommands();
    let lines = subcommands.map(|command| of(command, &format!(" -n \"{using} {}\"", command.get_name())));
    of(program, "") + &lines.collect::<String>()
}

/// The script without the lines that offer a hidden flag in zsh and fish, and without its word in the lists of bash and
/// fish.
fn without_hidden(script: &str) -> String {
    let offers = |line: &&str| line.contains(HIDDEN) && line.starts_with(['\'', 'c']);
    let lines = script.split_inclusive('\n').filter(|line| !offers(line));
    lines.collect::<String>().replace(&format!("--{HIDDEN} "), "").replace(&format!(" {HIDDEN}"), "")
}
