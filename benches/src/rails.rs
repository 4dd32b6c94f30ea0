//! All-reduce between two hosts, over one cable or over several.

use examples::hosts::Hosts;

use crate::collectives::network::run_on;
use crate::programs::{beside, bus_bandwidth, row_in_place};
use crate::soft::Outcome;

/// The megabits a second of each cable.
const MEGABITS: u32 = 1000;
const BYTES: u64 = 16 << 20;

/// Two hosts with two cables each.
#[derive(Debug)]
pub struct Rails(Hosts);

impl Rails {
    /// Makes the hosts.
    ///
    /// # Errors
    ///
    /// This user may not make namespaces.
    pub fn new() -> Outcome<Self> {
        Ok(Self(Hosts::with_rails(2, 2, Some(MEGABITS))?))
    }

    /// Bus bandwidth in GB/s of an all-reduce of 16 MiB, a rank on each host, over this many of the cables.
    ///
    /// # Errors
    ///
    /// The program fails, or prints no figure.
    pub fn bandwidth(&self, rails: usize) -> Outcome<f64> {
        let (devices, interfaces): (Vec<_>, Vec<_>) =
            (0..rails).map(|rail| ("soft", format!("eth{rail}"))).unzip();
        let (devices, interfaces) = (devices.join(","), interfaces.join(","));
        let size = BYTES.to_string();
        let words = [
            "--device", &devices, "--wire", "tcp", "-b", &size, "-e", &size, "-n", "5", "-w", "1", "-c", "0",
        ];
        let variables = [("NCCL_SOCKET_IFNAME", interfaces.as_str())];
        let printed = run_on(&self.0, 1, &beside("allreduce")?, &words.map(str::to_owned), &variables)?;
        let row = printed.lines().find_map(row_in_place);
        let (_, microseconds) = row.ok_or_else(|| format!("no row in:\n{printed}"))?;
        Ok(bus_bandwidth(BYTES, microseconds, 2.0))
    }
}
