//! The flags of `rdma-tools`, one type a subcommand, and the names of the C tools, under which the program is these
//! subcommands.

mod doctor;
mod pingpong;

use std::ffi::OsString;
use std::iter::once;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use clap::{Args, CommandFactory, Parser, Subcommand};

pub use doctor::Doctor;
pub use pingpong::Pingpong;

/// The names of the C tools, each with the subcommand that it runs.
pub const TWINS: &[(&str, &str)] = &[
    ("ibv_devices", "devices"),
    ("ibv_devinfo", "devinfo"),
    ("ibstat", "stat"),
    ("show_gids", "gids"),
    ("ibdev2netdev", "netdevs"),
    ("ibv_rc_pingpong", "pingpong"),
];

const VERSION: &str = env!("CARGO_PKG_VERSION");

const AFTER: &str = "\
A link to this program that is named ibv_devices, ibv_devinfo, ibstat, show_gids, ibdev2netdev or ibv_rc_pingpong
runs that subcommand.

Exit status:
  0  done
  1  failed: the last line says why
  2  wrong flags";

/// The program: a subcommand with its flags.
#[derive(Debug, Clone, Parser)]
#[command(name = "rdma-tools", version, about = "RDMA devices of this host, and what is wrong with them", after_help = AFTER)]
pub struct Cli {
    /// The subcommand.
    #[command(subcommand)]
    pub command: Command,
}

/// The subcommands.
#[derive(Debug, Clone, Subcommand)]
pub enum Command {
    /// List the devices and their GUIDs, as ibv_devices does
    Devices(Devices),
    /// Print the attributes of devices and ports, as ibv_devinfo does
    Devinfo(Devinfo),
    /// Print the state of devices and ports, as ibstat does
    Stat(Stat),
    /// List the GIDs of the ports, as show_gids does
    Gids(Gids),
    /// List the ports with their network interfaces, as ibdev2netdev does
    Netdevs(Netdevs),
    /// Exchange messages with a peer, as ibv_rc_pingpong does
    Pingpong(Pingpong),
    /// Say what is wrong with the RDMA devices of this host, and how to mend it
    Doctor(Doctor),
}

/// How the result is printed.
#[derive(Debug, Clone, Default, Args)]
pub struct Format {
    /// Print JSON, in a line
    #[arg(long)]
    pub json: bool,
}

/// Whether the software device takes part.
#[derive(Debug, Clone, Default, Args)]
pub struct Soft {
    /// Take the software device, which needs no hardware; peers reach it at <ADDRESS>, an IPv4 address of this host
    #[arg(long = "soft", value_name = "ADDRESS", num_args = 0..=1, require_equals = true, default_missing_value = LOCALHOST)]
    pub address: Option<IpAddr>,
}

/// The files that are read.
#[derive(Debug, Clone, Default, Args)]
pub struct Tree {
    /// Read the files of a machine below <FOLDER>, such as a copy of its /sys, and ask no library
    #[arg(long, value_name = "FOLDER", conflicts_with = "address")]
    pub root: Option<PathBuf>,
}

/// Flags of the subcommands that look at devices.
#[derive(Debug, Clone, Default, Args)]
pub struct Common {
    /// The files.
    #[command(flatten)]
    pub tree: Tree,
    /// The software device.
    #[command(flatten)]
    pub soft: Soft,
    /// The format.
    #[command(flatten)]
    pub format: Format,
}

const LOCALHOST: &str = "127.0.0.1";

/// Flags of `devices`.
#[derive(Debug, Clone, Args)]
pub struct Devices {
    /// The files, the software device, the format.
    #[command(flatten)]
    pub common: Common,
}

/// Flags of `devinfo`: those of `ibv_devinfo`.
#[derive(Debug, Clone, Args)]
pub struct Devinfo {
    /// Print device <DEV> alone [default: all devices]
    #[arg(short = 'd', long = "ib-dev", value_name = "DEV")]
    pub device: Option<String>,
    /// Print port <PORT> alone [default: all ports]
    #[arg(short = 'i', long = "ib-port", value_name = "PORT", value_parser = number::<u8>)]
    pub port: Option<u8>,
    /// Print the names of the devices alone
    #[arg(short = 'l', long)]
    pub list: bool,
    /// Print all attributes
    #[arg(short = 'v', long)]
    pub verbose: bool,
    /// The files, the software device, the format.
    #[command(flatten)]
    pub common: Common,
}

/// Flags of `stat`: those of `ibstat`.
#[derive(Debug, Clone, Args)]
pub struct Stat {
    /// Print device <CA> alone [default: all devices]
    pub device: Option<String>,
    /// Print port <PORT> of the device alone [default: all ports]
    #[arg(value_name = "PORT", value_parser = number::<u8>)]
    pub port: Option<u8>,
    /// Print the names of the devices alone
    #[arg(short = 'l', long = "list_of_cas")]
    pub list: bool,
    /// Print the devices without their ports
    #[arg(short = 's', long)]
    pub short: bool,
    /// Print the GUIDs of the ports alone
    #[arg(short = 'p', long = "port_list")]
    pub port_list: bool,
    /// The files, the software device, the format.
    #[command(flatten)]
    pub common: Common,
}

/// Flags of `gids`: those of `show_gids`.
#[derive(Debug, Clone, Args)]
pub struct Gids {
    /// Print device <DEV> alone [default: all devices]
    #[arg(value_name = "DEV")]
    pub device: Option<String>,
    /// Print port <PORT> of the device alone [default: all ports]
    #[arg(value_name = "PORT", value_parser = number::<u8>)]
    pub port: Option<u8>,
    /// The files, the software device, the format.
    #[command(flatten)]
    pub common: Common,
}

/// Flags of `netdevs`: those of `ibdev2netdev`.
#[derive(Debug, Clone, Args)]
pub struct Netdevs {
    /// Print the PCI address and the kind of each device, too
    #[arg(short = 'v', long)]
    pub verbose: bool,
    /// The files, the software device, the format.
    #[command(flatten)]
    pub common: Common,
}

impl Command {
    /// Returns the name of the subcommand.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Devices(_) => "devices",
            Self::Devinfo(_) => "devinfo",
            Self::Stat(_) => "stat",
            Self::Gids(_) => "gids",
            Self::Netdevs(_) => "netdevs",
            Self::Pingpong(_) => "pingpong",
            Self::Doctor(_) => "doctor",
        }
    }
}

/// Parses the arguments of a process, the program's name first; a wrong flag ends the process with status 2.
#[must_use]
pub fn parse(args: impl IntoIterator<Item = OsString>) -> Cli {
    let args: Vec<_> = args.into_iter().collect();
    manual::print_if_asked(|| command_of(args.first()), args.iter().skip(1).cloned());
    Cli::parse_from(spelled_out(args))
}

/// Returns the command that a process of this name is: the program, or a subcommand under the name of its C tool.
fn command_of(program: Option<&OsString>) -> clap::Command {
    let command = Cli::command();
    let twin = program.and_then(twin_of);
    match twin.and_then(|(twin, subcommand)| Some((twin, command.find_subcommand(subcommand)?))) {
        Some((twin, subcommand)) => subcommand.clone().name(twin).version(VERSION),
        None => command,
    }
}

/// Puts the subcommand behind the program's name where that is the name of a C tool.
fn spelled_out(args: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
    let mut args = args.into_iter();
    let program = args.next().unwrap_or_default();
    let subcommand = twin_of(&program).map(|(_, subcommand)| subcommand.into());
    once("rdma-tools".into()).chain(subcommand).chain(args).collect()
}

/// Finds the name of a C tool in the path of a program, with the subcommand that it runs.
fn twin_of(program: &OsString) -> Option<(&'static str, &'static str)> {
    let name = Path::new(program).file_name()?;
    TWINS.iter().copied().find(|(twin, _)| name == *twin)
}

/// Parses a number as the C tools do: decimal, or hexadecimal behind `0x`.
fn number<T: TryFrom<u64>>(text: &str) -> Result<T, String> {
    let parsed = match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => text.parse(),
    };
    parsed.ok().and_then(|number| T::try_from(number).ok()).ok_or_else(|| {
        format!("`{text}` is no number, or too large: write it in decimal, or in hexadecimal behind 0x")
    })
}

#[cfg(test)]
mod tests;
