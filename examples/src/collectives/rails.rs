//! Rails of a run: the devices of `--device`, each with as many queue pairs as `NCCL_IB_QPS_PER_CONNECTION` says.

use super::args::Args;
use super::kind::Collective;
use anyhow::ensure;
use rdma_collective::collective::Rails;
use rdma_collective::env::NcclOptions;

const VARIABLE: &str = "NCCL_IB_QPS_PER_CONNECTION";

/// The devices of each rank, in order, and how many rails each of them is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// As `--device` names them.
    pub devices: Vec<String>,
    /// Queue pairs to a neighbour on each; 1 where there can be no more.
    pub queue_pairs: usize,
    /// The request of the variable that cannot be met, and why.
    pub ignored: Option<String>,
}

/// Checks that the flags alone ask for nothing that cannot be.
///
/// # Errors
///
/// Devices that cannot be rails, or not of this collective.
pub fn check(args: &Args) -> anyhow::Result<()> {
    let (devices, name) = (args.device.len(), args.collective.name());
    ensure!(
        devices == 1 || args.collective != Collective::SendRecv,
        "--device names {devices} devices, and {name} has no rails: name one"
    );
    ensure!(
        devices == 1 || !args.device.iter().any(|device| device == "auto"),
        "--device names several devices, of which one is auto: name each, as ibv_devices does"
    );
    ensure!(
        devices <= Rails::MAX,
        "--device names {devices} devices, and there are at most {} rails: name fewer",
        Rails::MAX
    );
    Ok(())
}

impl Plan {
    /// Returns the plan that flags and variables ask for together.
    ///
    /// # Errors
    ///
    /// A device for each rail that there can be, and more.
    pub fn of(args: &Args, nccl: &NcclOptions) -> anyhow::Result<Self> {
        if args.collective == Collective::SendRecv {
            return Ok(Self::without(args, nccl, args.collective.name()));
        }
        let (devices, asked) = (args.device.clone(), usize::from(nccl.qps_per_connection.unwrap_or(1)));
        let room = Rails::MAX / devices.len().max(1);
        ensure!(
            room > 0,
            "--device names {} devices, and there are at most {} rails",
            devices.len(),
            Rails::MAX
        );
        // Pods have what NCCL takes, which is more.
        let ignored = (asked > room).then(|| {
            let most = Rails::MAX;
            format!(
                "{VARIABLE}={asked} beyond {room}: there are at most {most} rails, and {} devices",
                devices.len()
            )
        });
        Ok(Self { devices, queue_pairs: asked.min(room), ignored })
    }

    /// Plans one communicator on the first device, whatever the variable says: for a program that has no rails.
    pub fn without(args: &Args, nccl: &NcclOptions, program: &str) -> Self {
        let asked = nccl.qps_per_connection.filter(|queue_pairs| *queue_pairs > 1);
        let ignored = asked.map(|queue_pairs| format!("{VARIABLE}={queue_pairs}: {program} has no rails"));
        Self { devices: args.device.iter().take(1).cloned().collect(), queue_pairs: 1, ignored }
    }

    /// How many rails a rank has.
    pub fn rails(&self) -> usize {
        self.devices.len() * self.queue_pairs
    }

    /// Whether operations go over rails.
    pub fn has_rails(&self) -> bool {
        self.rails() > 1
    }

    /// How the header names the rails of a rank whose devices are called so; `None` where it has none.
    pub fn describe<'n>(&self, devices: impl IntoIterator<Item = &'n str>) -> Option<String> {
        let named = |device: &str| match self.queue_pairs {
            1 => device.to_owned(),
            many => format!("{device} x {many}"),
        };
        let devices: Vec<String> = devices.into_iter().map(named).collect();
        self.has_rails().then(|| format!("{} ({})", self.rails(), devices.join(", ")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    fn asked(collective: Collective, line: &str, queue_pairs: &str) -> anyhow::Result<Plan> {
        let args = Args { collective, ..Args::try_parse_from(line.split(' '))? };
        check(&args)?;
        Plan::of(&args, &NcclOptions::read(&[(VARIABLE, queue_pairs)].into_iter().collect())?)
    }

    #[test]
    fn rails_are_devices_times_queue_pairs() {
        let rails = |line, queue_pairs| asked(Collective::AllReduce, line, queue_pairs).unwrap().rails();
        assert_eq!([rails("allreduce", ""), rails("allreduce", "1"), rails("allreduce", "8")], [1, 1, 8]);
        for line in ["allreduce --device soft,soft", "allreduce --device soft --device soft"] {
            assert_eq!([rails(line, ""), rails(line, "4")], [2, 8], "{line}");
        }
        let plan = asked(Collective::AllReduce, "allreduce --device a,b", "2").unwrap();
        assert_eq!(plan.describe(["a", "b"]).as_deref(), Some("4 (a x 2, b x 2)"));
        assert_eq!(asked(Collective::AllReduce, "allreduce", "").unwrap().describe(["a"]), None);
        let plan = asked(Collective::AllReduce, "allreduce --device a,b,c", "16").unwrap();
        assert_eq!((plan.rails(), plan.queue_pairs), (6, 2));
        assert!(
            plan.ignored.is_some_and(|ignored| ignored.starts_with("NCCL_IB_QPS_PER_CONNECTION=16 beyond 2"))
        );
    }

    #[test]
    fn what_cannot_be_rails_says_what_to_change() {
        for (line, queue_pairs, told) in [
            ("allreduce --device a,b,c,d,e,f,g,h,i", "", "at most 8 rails"),
            ("allreduce --device a,auto", "", "auto: name each"),
        ] {
            let error = asked(Collective::AllReduce, line, queue_pairs).unwrap_err().to_string();
            assert!(error.contains(told), "{error}");
        }
        assert!(asked(Collective::AllReduce, "allreduce --device a,,b", "").is_err());
        let error = asked(Collective::SendRecv, "sendrecv --device a,b", "").unwrap_err().to_string();
        assert!(error.contains("sendrecv has no rails"), "{error}");
        let plan = asked(Collective::SendRecv, "sendrecv --device a", "2").unwrap();
        assert_eq!((plan.rails(), plan.has_rails()), (1, false));
        assert!(plan.ignored.is_some_and(|ignored| ignored.starts_with("NCCL_IB_QPS_PER_CONNECTION=2")));
    }
}
