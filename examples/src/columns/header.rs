//! The request of a run and its devices: the `#` lines above the table, and `config` in the JSON.

use rdma_collective::env::RefusedDevice;
use serde::Serialize;
use std::fmt::Write;

/// The request of a run.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Config {
    /// The program's name; not in the JSON, which has it in its arguments.
    #[serde(skip)]
    pub program: String,
    /// Ranks in the job. nccl-tests has threads and GPUs here; ours has one rank a process.
    pub ranks: usize,
    /// `-b`.
    pub minimum_bytes: u64,
    /// `-e`.
    pub maximum_bytes: u64,
    /// `-f`, when it counts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step_factor: Option<u64>,
    /// `-i`, when it counts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step_bytes: Option<u64>,
    /// `-w`.
    pub warmup_iters: u32,
    /// `-n`.
    pub iterations: u32,
    /// `-m`.
    pub aggregated_iterations: u32,
    /// `-c`.
    pub validation: u32,
    /// The lanes to each peer, where there are several, as rank 0 has them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lanes: Option<String>,
    /// The request of a variable that cannot be met, and why.
    #[serde(skip)]
    pub ignored: Option<String>,
    /// The device of each rank, in the order of ranks.
    pub devices: Vec<RankDevice>,
    /// Devices that are there and were not used, and why.
    pub refused: Vec<Refused>,
}

/// Where one rank runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RankDevice {
    /// Number of the rank.
    pub rank: usize,
    /// Process of the rank.
    pub pid: u32,
    /// Host of the rank.
    pub hostname: String,
    /// The device's name (`soft0`, `rxe0`, `mlx5_0`).
    pub device: String,
    /// How bytes travel and from which address.
    pub device_info: String,
}

/// A device that was not used.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Refused {
    /// Name of the device, or of the library when that is missing.
    pub device: String,
    /// Why.
    pub reason: String,
}

impl Refused {
    /// Returns the devices that were refused when a device was selected.
    pub fn all(devices: &[RefusedDevice]) -> Vec<Self> {
        let each = devices.iter();
        each.map(|refused| Self { device: refused.device.clone(), reason: refused.reason.clone() }).collect()
    }
}

impl Config {
    /// The lines above the column titles.
    pub fn lines(&self) -> String {
        let mut text = format!("# Collective test starting: {}\n", self.program);
        let step = match (self.step_factor, self.step_bytes) {
            (Some(factor), _) => format!("{factor}(factor)"),
            (None, bytes) => format!("{}(bytes)", bytes.unwrap_or(0)),
        };
        let _ = writeln!(
            text,
            "# nRanks {} minBytes {} maxBytes {} step: {step} warmup iters: {} iters: {} agg iters: {} validation: {}\n#",
            self.ranks,
            self.minimum_bytes,
            self.maximum_bytes,
            self.warmup_iters,
            self.iterations,
            self.aggregated_iterations,
            self.validation
        );
        if let Some(lanes) = &self.lanes {
            let _ = writeln!(text, "# Lanes {lanes}");
        }
        if let Some(ignored) = &self.ignored {
            let _ = writeln!(text, "# Ignored {ignored}");
        }
        text += "# Using devices\n";
        for device in &self.devices {
            let _ = writeln!(text, "#  {device}");
        }
        text += &refused_lines("# ", &self.refused);
        text + "#\n"
    }
}

/// The lines that say which devices were not used and why, each behind `prefix`; none for none.
pub fn refused_lines(prefix: &str, refused: &[Refused]) -> String {
    let mut text = String::new();
    if !refused.is_empty() {
        let _ = writeln!(text, "{prefix}Not used");
    }
    for Refused { device, reason } in refused {
        let _ = writeln!(text, "{prefix} {device}: {}", reason.replace('\n', " "));
    }
    text
}

impl std::fmt::Display for RankDevice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { rank, pid, hostname, device, device_info } = self;
        write!(f, "Rank {rank:>2} Group  0 Pid {pid:>6} on {hostname:>10} device  0 [{device}] {device_info}")
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub fn config() -> Config {
        let rank = |rank, pid| RankDevice {
            rank,
            pid,
            hostname: "host".into(),
            device: "soft0".into(),
            device_info: "software device, wire tcp".into(),
        };
        Config {
            program: "allreduce".into(),
            ranks: 2,
            minimum_bytes: 8,
            maximum_bytes: 128 << 20,
            step_factor: Some(2),
            step_bytes: None,
            warmup_iters: 1,
            iterations: 20,
            aggregated_iterations: 1,
            validation: 1,
            lanes: None,
            ignored: None,
            devices: vec![rank(0, 4711), rank(1, 4712)],
            refused: vec![Refused { device: "mlx5_0".into(), reason: "port 1 is DOWN".into() }],
        }
    }

    #[test]
    fn lanes_and_what_is_ignored_have_their_lines() {
        let lanes = Config { lanes: Some("2 (soft0, soft1)".into()), ..config() }.lines();
        assert!(lanes.contains("\n# Lanes 2 (soft0, soft1)\n"), "{lanes}");
        let ignored = Config { ignored: Some("X=9 beyond 8".into()), ..config() }.lines();
        assert!(ignored.contains("\n# Ignored X=9 beyond 8\n"), "{ignored}");
    }

    #[test]
    fn the_header_names_devices_and_why_others_are_not_used() {
        insta::assert_snapshot!(config().lines());
        let by_bytes = Config { step_factor: None, step_bytes: Some(1 << 20), refused: vec![], ..config() };
        insta::assert_snapshot!(by_bytes.lines());
    }
}
