//! The two ends of a TCP connection, each a process that runs this program again: our device, or plain sockets.

use clap::{Subcommand, ValueEnum};

use crate::soft::Outcome;
use crate::{pair, plain, soft};

/// The task of a child.
#[derive(Debug, Subcommand)]
pub enum End {
    /// An end of a flow of messages.
    #[command(hide = true)]
    Flow(Flow),
    /// An end of messages that are answered.
    #[command(hide = true)]
    Turns(Turns),
}

/// An end of a flow.
#[derive(Debug, clap::Args)]
pub struct Flow {
    kind: Kind,
    role: Role,
    size: usize,
    #[command(flatten)]
    load: Load,
}

/// An end of messages that are answered.
#[derive(Debug, clap::Args)]
pub struct Turns {
    wait: Wait,
    role: Role,
    size: usize,
}

/// The carrier of a flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Kind {
    /// Plain sockets.
    Plain,
    /// The software device.
    Soft,
}

/// How a plain socket is waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Wait {
    /// The thread sleeps in the kernel until bytes come.
    Blocking,
    /// The thread asks over and over.
    Polling,
}

/// An end's part.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Role {
    Sender,
    Receiver,
}

/// The amount of a flow.
#[derive(Debug, Clone, clap::Args)]
pub struct Load {
    /// Bytes of each run, in MiB.
    #[arg(long, default_value_t = Self::default().mib)]
    pub mib: u64,
    /// Writes outstanding.
    #[arg(long, default_value_t = Self::default().depth)]
    pub depth: u32,
    /// The thread of the process that is written to polls instead of sleeping.
    #[arg(long)]
    pub poll: bool,
}

impl End {
    /// Is that end.
    ///
    /// # Errors
    ///
    /// A socket or the device fails.
    pub fn run(&self) -> Outcome<()> {
        match self {
            Self::Turns(Turns { wait, role: Role::Sender, size }) => plain::ping(*size, *wait),
            Self::Turns(Turns { wait, role: Role::Receiver, size }) => Ok(plain::pong(*size, *wait)?),
            Self::Flow(Flow { kind, role, size, load }) => {
                let messages = load.messages(*size);
                match (kind, role) {
                    (Kind::Plain, Role::Sender) => Ok(plain::send(*size, messages, messages / 8)?),
                    (Kind::Plain, Role::Receiver) => Ok(plain::receive(*size)?),
                    (Kind::Soft, Role::Sender) => soft::write(*size, messages, messages / 8, load.depth),
                    (Kind::Soft, Role::Receiver) => soft::be_written(*size, load.poll),
                }
            }
        }
    }
}

impl Default for Load {
    fn default() -> Self {
        Self { mib: 2048, depth: 128, poll: false }
    }
}

impl Load {
    fn messages(&self, size: usize) -> u64 {
        (self.mib << 20).div_ceil(size as u64)
    }

    /// GB/s of one run.
    ///
    /// # Errors
    ///
    /// An end fails.
    pub fn bandwidth(&self, size: usize, kind: Kind) -> Outcome<f64> {
        let kind = if kind == Kind::Plain { "plain" } else { "soft" };
        let end = |role: &str| {
            let mut arguments = ["flow", kind, role].map(str::to_owned).to_vec();
            arguments.extend([
                size.to_string(),
                format!("--mib={}", self.mib),
                format!("--depth={}", self.depth),
            ]);
            arguments.extend(self.poll.then(|| "--poll".to_owned()));
            arguments
        };
        let seconds: f64 = pair::run(&end("sender"), &end("receiver"))?.trim().parse()?;
        Ok((self.messages(size) * size as u64) as f64 / 1e9 / seconds)
    }
}

/// Microseconds of one way between plain sockets that answer each other.
///
/// # Errors
///
/// An end fails.
pub fn turn(size: usize, wait: Wait) -> Outcome<f64> {
    let wait = if wait == Wait::Blocking { "blocking" } else { "polling" };
    let end = |role: &str| ["turns", wait, role, &size.to_string()].map(str::to_owned);
    let seconds: f64 = pair::run(&end("sender"), &end("receiver"))?.trim().parse()?;
    Ok(seconds * 1e6)
}
