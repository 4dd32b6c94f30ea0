//! Flags of `doctor`.

use clap::Args;

use super::{Common, number};

/// Flags of `doctor`.
#[derive(Debug, Clone, Args)]
pub struct Doctor {
    /// Look at device <DEV> alone [default: all devices]
    #[arg(short = 'd', long = "ib-dev", value_name = "DEV")]
    pub device: Option<String>,
    /// Look at port <PORT> of the devices alone [default: all ports]
    #[arg(short = 'i', long = "ib-port", value_name = "PORT", value_parser = number::<u8>)]
    pub port: Option<u8>,
    /// Judge the GID with this index [default: the one that is chosen]
    #[arg(short = 'g', long = "gid-idx", value_name = "INDEX", value_parser = number::<u32>)]
    pub gid_index: Option<u32>,
    /// Look whether <SIZE> bytes can be registered on each device, such as 16G
    #[arg(long, value_name = "SIZE", default_value_t = 0, value_parser = size)]
    pub pin: u64,
    /// Look whether processes can share <SIZE> bytes in /dev/shm
    #[arg(long, value_name = "SIZE", default_value_t = 0, value_parser = size)]
    pub shm: u64,
    /// Look whether a process can open <COUNT> more descriptors
    #[arg(long, value_name = "COUNT", default_value_t = 0, value_parser = number::<u64>)]
    pub descriptors: u64,
    /// Look whether the devices reach the memory of GPUs
    #[arg(long)]
    pub gpu: bool,
    /// Open a pair of queue pairs to the doctor that listens at <HOST:PORT>
    #[arg(long, value_name = "HOST:PORT", conflicts_with = "listen")]
    pub peer: Option<String>,
    /// Wait on port <PORT> for a doctor with --peer
    #[arg(long, value_name = "PORT", value_parser = tcp_port)]
    pub listen: Option<u16>,
    /// Seconds to wait for the other doctor at any one point
    #[arg(long = "timeout", value_name = "SECONDS", default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub timeout_s: u64,
    /// The files, the software device, the format.
    #[command(flatten)]
    pub common: Common,
}

/// Parses a port to listen on: 0 would be one that nobody knows.
fn tcp_port(text: &str) -> Result<u16, String> {
    number(text).and_then(|port| if port == 0 { Err("at least 1".to_owned()) } else { Ok(port) })
}

/// Parses a number of bytes, in K, M or G where it ends so.
fn size(text: &str) -> Result<u64, String> {
    let units = [("K", 1_u64 << 10), ("M", 1 << 20), ("G", 1 << 30)];
    let (digits, unit) = units
        .iter()
        .find_map(|(letter, unit)| Some((text.strip_suffix(letter)?, *unit)))
        .unwrap_or((text, 1));
    let bytes = number::<u64>(digits)?;
    bytes.checked_mul(unit).ok_or_else(|| format!("`{text}` is too large"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_to_listen_on_is_one_that_the_other_doctor_can_name() {
        assert_eq!(tcp_port("18515"), Ok(18_515));
        assert!(tcp_port("0").is_err() && tcp_port("65536").is_err());
    }

    #[test]
    fn sizes_have_units_of_1024() {
        assert_eq!(
            ["0", "65536", "0x10", "3K", "2M", "16G"].map(size),
            [Ok(0), Ok(65_536), Ok(16), Ok(3 << 10), Ok(2 << 20), Ok(16 << 30)]
        );
        for wrong in ["", "G", "1T", "-1", "1.5G", "99999999999G"] {
            assert!(size(wrong).is_err(), "{wrong}");
        }
    }
}
