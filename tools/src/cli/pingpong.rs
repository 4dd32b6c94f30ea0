//! Flags of `pingpong`: those of `ibv_rc_pingpong`.

use clap::Args;

use super::{Format, Soft, number};

/// The longest message that verbs can carry.
const SIZE_MAX: u32 = (1 << 31) - 1;

/// Flags of `pingpong`: those of `ibv_rc_pingpong`, and the time that a peer has.
#[derive(Debug, Clone, Args)]
pub struct Pingpong {
    /// Server to connect to; without it, be the server and wait for a client
    pub host: Option<String>,

    /// Listen on or connect to TCP port <PORT>
    #[arg(short = 'p', long, value_name = "PORT", default_value_t = 18515, value_parser = number::<u16>)]
    pub port: u16,

    /// Use device <DEV> [default: the first device found]
    #[arg(short = 'd', long = "ib-dev", value_name = "DEV", conflicts_with = "address")]
    pub device: Option<String>,

    /// Use port <PORT> of the device
    #[arg(short = 'i', long = "ib-port", value_name = "PORT", default_value_t = 1, value_parser = number::<u8>)]
    pub ib_port: u8,

    /// Size of a message in bytes, the same on both sides
    #[arg(short = 's', long, value_name = "SIZE", default_value_t = 4096, value_parser = size)]
    pub size: u32,

    /// Path MTU: 256, 512, 1024, 2048 or 4096
    #[arg(short = 'm', long, value_name = "MTU", default_value_t = 1024, value_parser = mtu)]
    pub mtu: u32,

    /// Number of receives to post at a time
    #[arg(short = 'r', long = "rx-depth", value_name = "DEPTH", default_value_t = 500, value_parser = positive)]
    pub rx_depth: u32,

    /// Number of exchanges, the same on both sides
    #[arg(short = 'n', long, value_name = "ITERS", default_value_t = 1000, value_parser = positive)]
    pub iters: u32,

    /// Service level
    #[arg(short = 'l', long = "sl", value_name = "SL", default_value_t = 0, value_parser = service_level)]
    pub service_level: u8,

    /// Sleep until a completion raises an event [default: poll]
    #[arg(short = 'e', long)]
    pub events: bool,

    /// Use the GID with this index [default: chosen on Ethernet; none on InfiniBand, where LIDs do]
    #[arg(short = 'g', long = "gid-idx", value_name = "INDEX", value_parser = number::<u32>)]
    pub gid_index: Option<u32>,

    /// Check the bytes that were received
    #[arg(short = 'c', long = "chk")]
    pub check: bool,

    /// Flags that the C program has, and this one refuses.
    #[command(flatten)]
    pub refused: Refused,

    /// Seconds to wait for the other side at any one point
    #[arg(long = "timeout", value_name = "SECONDS", default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub timeout_s: u64,

    /// The software device.
    #[command(flatten)]
    pub soft: Soft,

    /// The format.
    #[command(flatten)]
    pub format: Format,
}

/// Flags of `ibv_rc_pingpong` that are refused, each for its reason.
#[derive(Debug, Clone, Args)]
pub struct Refused {
    /// Refused: on-demand paging
    #[arg(short = 'o', long)]
    pub odp: bool,
    /// Refused: implicit on-demand paging
    #[arg(short = 'O', long)]
    pub iodp: bool,
    /// Refused: prefetch of on-demand pages
    #[arg(short = 'P', long)]
    pub prefetch: bool,
    /// Refused: completions with the device's time
    #[arg(short = 't', long = "ts")]
    pub timestamps: bool,
    /// Refused: memory of the device
    #[arg(short = 'j', long = "dm")]
    pub device_memory: bool,
    /// Refused: the second interface for posting
    #[arg(short = 'N', long = "new_send")]
    pub new_send: bool,
    /// Refused: unprotected memory of a confidential guest
    #[arg(short = 'U', long = "allow-cc-unprotected")]
    pub unprotected: bool,
}

impl Refused {
    /// Returns the first flag that was given, with the reason why it is refused.
    #[must_use]
    pub fn reason(&self) -> Option<(&'static str, &'static str)> {
        let pages = "on-demand paging is not offered, because each registration pins its pages";
        let flags = [
            (self.odp, "-o (--odp)", pages),
            (self.iodp, "-O (--iodp)", pages),
            (self.prefetch, "-P (--prefetch)", pages),
            (self.timestamps, "-t (--ts)", "completions carry no time of the device here"),
            (self.device_memory, "-j (--dm)", "memory of the device is not offered"),
            (self.new_send, "-N (--new_send)", "requests are posted by ibv_post_send alone"),
            (
                self.unprotected,
                "-U (--allow-cc-unprotected)",
                "memory of a confidential guest is never shared unprotected",
            ),
        ];
        flags.into_iter().find(|(given, ..)| *given).map(|(_, flag, reason)| (flag, reason))
    }
}

fn size(text: &str) -> Result<u32, String> {
    match number(text)? {
        size @ 1..=SIZE_MAX => Ok(size),
        _ => Err(format!("a message has 1 to {SIZE_MAX} bytes")),
    }
}

fn mtu(text: &str) -> Result<u32, String> {
    match number(text)? {
        mtu @ (256 | 512 | 1024 | 2048 | 4096) => Ok(mtu),
        _ => Err("the MTU is one of 256, 512, 1024, 2048 and 4096".to_owned()),
    }
}

fn positive(text: &str) -> Result<u32, String> {
    match number(text)? {
        0 => Err("at least 1".to_owned()),
        number => Ok(number),
    }
}

fn service_level(text: &str) -> Result<u8, String> {
    match number(text)? {
        level @ 0..=15 => Ok(level),
        _ => Err("a service level is at most 15".to_owned()),
    }
}
