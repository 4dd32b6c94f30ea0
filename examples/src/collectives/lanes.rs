//! Lanes of a run: the devices of `--device`, each with as many queue pairs to a peer as `NCCL_IB_QPS_PER_CONNECTION`
//! says.

use super::args::Args;
use anyhow::ensure;
use rdma_collective::env::NcclOptions;

const VARIABLE: &str = "NCCL_IB_QPS_PER_CONNECTION";
/// Lanes of a link, at most; as many devices are the most, too.
const LANES_MAX: usize = 8;

/// The devices of each rank, in order, and how many lanes to a peer each of them has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// As `--device` names them.
    pub devices: Vec<String>,
    /// Queue pairs to a peer on each; 1 where there can be no more.
    pub queue_pairs: usize,
    /// The request of the variable that cannot be met, and why.
    pub ignored: Option<String>,
}

/// Checks that the flags alone ask for nothing that cannot be.
///
/// # Errors
///
/// Devices that cannot be used together.
pub fn check(args: &Args) -> anyhow::Result<()> {
    let devices = args.device.len();
    ensure!(
        devices == 1 || !args.device.iter().any(|device| device == "auto"),
        "--device names several devices, of which one is auto: name each, as ibv_devices does"
    );
    ensure!(
        devices <= LANES_MAX,
        "--device names {devices} devices, and a rank has at most {LANES_MAX}: name fewer"
    );
    Ok(())
}

impl Plan {
    /// Returns the plan that flags and variables ask for together.
    pub fn of(args: &Args, nccl: &NcclOptions) -> Self {
        let (devices, asked) = (args.device.clone(), usize::from(nccl.qps_per_connection.unwrap_or(1)));
        let room = LANES_MAX / devices.len().max(1);
        // Pods have what NCCL takes, which is more.
        let ignored = (asked > room).then(|| {
            let count = devices.len();
            format!("{VARIABLE}={asked} beyond {room}: a link has at most {LANES_MAX} lanes, and a rank {count} devices")
        });
        Self { devices, queue_pairs: asked.min(room), ignored }
    }

    /// How many lanes a link has.
    fn lanes(&self) -> usize {
        self.devices.len() * self.queue_pairs
    }

    /// How the header names the lanes of a rank whose devices are called so; `None` for a single one.
    pub fn describe<'n>(&self, devices: impl IntoIterator<Item = &'n str>) -> Option<String> {
        let named = |device: &str| match self.queue_pairs {
            1 => device.to_owned(),
            many => format!("{device} x {many}"),
        };
        let devices: Vec<String> = devices.into_iter().map(named).collect();
        (self.lanes() > 1).then(|| format!("{} ({})", self.lanes(), devices.join(", ")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collectives::Collective;
    use clap::Parser;

    fn asked(line: &str, queue_pairs: &str) -> anyhow::Result<Plan> {
        let args = Args { collective: Collective::AllReduce, ..Args::try_parse_from(line.split(' '))? };
        check(&args)?;
        Ok(Plan::of(&args, &NcclOptions::read(&[(VARIABLE, queue_pairs)].into_iter().collect())?))
    }

    #[test]
    fn lanes_are_devices_times_queue_pairs() {
        let lanes = |line, queue_pairs| asked(line, queue_pairs).unwrap().lanes();
        assert_eq!([lanes("allreduce", ""), lanes("allreduce", "1"), lanes("allreduce", "8")], [1, 1, 8]);
        for line in ["allreduce --device soft,soft", "allreduce --device soft --device soft"] {
            assert_eq!([lanes(line, ""), lanes(line, "4")], [2, 8], "{line}");
        }
        let plan = asked("allreduce --device a,b", "2").unwrap();
        assert_eq!(plan.describe(["a", "b"]).as_deref(), Some("4 (a x 2, b x 2)"));
        assert_eq!(asked("allreduce", "").unwrap().describe(["a"]), None);
        let plan = asked("allreduce --device a,b,c", "16").unwrap();
        assert_eq!((plan.lanes(), plan.queue_pairs), (6, 2));
        assert!(
            plan.ignored.is_some_and(|ignored| ignored.starts_with("NCCL_IB_QPS_PER_CONNECTION=16 beyond 2"))
        );
    }

    #[test]
    fn devices_that_cannot_be_used_together_are_told_with_what_to_change() {
        for (line, told) in [
            ("allreduce --device a,b,c,d,e,f,g,h,i", "at most 8"),
            ("allreduce --device a,auto", "auto: name each"),
        ] {
            let error = asked(line, "").unwrap_err().to_string();
            assert!(error.contains(told), "{error}");
        }
        assert!(asked("allreduce --device a,,b", "").is_err());
    }
}
