//! A rank: its devices, the communicator that carries its data, and what it tells the other ranks besides the data.

use super::args::Args;
use super::kind::Collective;
use super::lanes::Plan;
use crate::columns::header::{RankDevice, Refused};
use crate::doctor::{self, InUse};
use crate::fault::FaultAt;
use anyhow::{Context, ensure};
use rdma_collective::bootstrap::BootstrapError;
use rdma_collective::bootstrap::{StoreClient, StoreServer};
use rdma_collective::collective::{Algorithm, Communicator, CommunicatorOptions};
use rdma_collective::engine::Engine;
use rdma_collective::env::{Joined, Launch, NcclOptions, SelectedDevice};
use rdma_core::fault::FaultPlan;
use rdma_core::{Deadline, PeerAccess, SoftOptions};
use std::time::Duration;

/// The longest that the others may take to say why they do not come.
const EXPLAIN_WITHIN: Duration = Duration::from_secs(1);

/// A rank that is connected.
#[derive(Debug)]
pub struct Job {
    /// Carries the data.
    pub comm: Communicator,
    /// Carries times and verdicts: what the data's path gets wrong, it cannot hide.
    store: StoreClient,
    /// Where every rank runs.
    pub devices: Vec<RankDevice>,
    /// Names of the devices that this rank uses.
    pub own_devices: Vec<String>,
    /// Devices that this rank does not use.
    pub refused: Vec<Refused>,
    /// Faults to inject at this rank's device.
    pub faults: Option<FaultPlan>,
    timeout: Duration,
    meetings: u64,
    /// Whether rank 0 serves the store, whose loss is its loss then.
    served_by_rank_0: bool,
    /// Rank 0's, when nobody else serves.
    server: Option<StoreServer>,
}

impl Job {
    /// Meets the other ranks and connects.
    ///
    /// # Errors
    ///
    /// Whatever of that fails; a rank that does not come is named when the time is up.
    pub fn join(launch: &Launch, nccl: &NcclOptions, args: &Args, plan: &Plan) -> anyhow::Result<Self> {
        let deadline = Deadline::after(args.timeout());
        let mut options =
            CommunicatorOptions { reproducible: args.reproducible, ..CommunicatorOptions::default() };
        nccl.apply_to_communicator(&mut options)?;
        options.lanes = u8::try_from(plan.queue_pairs)?;
        if let Some(ignored) = &plan.ignored {
            tracing::warn!("ignored {ignored}");
        }
        let Joined { mut store, server, address, .. } = launch.join(deadline)?;
        let faults = args.fault.filter(|_| launch.rank == 0).map(FaultAt::plan);
        let wire = args.wire.into();
        let soft = |number| SoftOptions {
            name: format!("soft{number}"),
            address,
            wire,
            faults: faults.clone().filter(|_| number == 0),
            ..SoftOptions::default()
        };
        let selected = nccl.select_each(&plan.devices, soft, None).map_err(|error| {
            // The error itself says about which of several devices it is.
            let wanted = if let [device] = &plan.devices[..] { device } else { "auto" };
            doctor::explain_choice(error, wanted, &doctor::wants(nccl))
        })?;
        for device in &selected {
            args.wire.suits(device)?;
        }
        ensure!(
            faults.is_none() || selected.iter().any(|device| device.context.is_soft()),
            "--fault is for the software device, and {} is not: add --device soft",
            args.device.join(",")
        );
        let used: Vec<_> =
            selected.iter().map(|device| (device.context.clone(), device.engine_options(nccl))).collect();
        let in_use = InUse::new(&selected.iter().collect::<Vec<_>>(), doctor::wants(nccl));
        let engine = Engine::over(&used).map_err(|error| in_use.explain(error))?;
        let comm = Communicator::new(&engine, &mut store, options, deadline);
        let mut comm = comm.map_err(|error| in_use.explain(error))?;
        if args.collective == Collective::SendRecv {
            comm.connect(deadline).map_err(|error| in_use.explain(error))?;
        }
        let devices = where_ranks_run(&comm, &selected, &mut store, deadline)?;
        let own_devices = selected.iter().map(|device| device.context.name().to_owned()).collect();
        let refused = selected.first().map_or_else(Vec::new, |first| Refused::all(&first.refused));
        let timeout = args.timeout();
        let served_by_rank_0 = launch.parent.is_none();
        Ok(Self {
            comm,
            store,
            devices,
            own_devices,
            refused,
            faults,
            timeout,
            meetings: 0,
            served_by_rank_0,
            server,
        })
    }

    /// Goes on with a communicator that may take this way alone; all ranks call it.
    ///
    /// # Errors
    ///
    /// As [`join`](Self::join).
    pub fn renew(&mut self, way: Algorithm) -> anyhow::Result<()> {
        let options = self.comm.options();
        let options = CommunicatorOptions {
            algorithms: [way].into_iter().collect(),
            epoch: options.epoch + 1,
            ..options.clone()
        };
        let engine = self.comm.engine().clone();
        let deadline = self.deadline();
        let comm = Communicator::new(&engine, &mut self.store, options, deadline)?;
        std::mem::replace(&mut self.comm, comm).close(deadline)?;
        Ok(())
    }

    /// Whether this is the rank that prints.
    pub fn prints(&self) -> bool {
        self.comm.rank() == 0
    }

    /// Ranks in the job.
    pub fn ranks(&self) -> usize {
        self.devices.len()
    }

    /// When what begins now must be done.
    pub fn deadline(&self) -> Deadline {
        Deadline::after(self.timeout)
    }

    /// Waits for all ranks, and gives what each of them came with.
    ///
    /// # Errors
    ///
    /// Names the ranks that did not come, or left.
    pub fn gather(&mut self, value: u64) -> anyhow::Result<Vec<u64>> {
        self.meetings += 1;
        let name = format!("meeting/{}", self.meetings);
        let told = self.store.all_gather(&name, &value.to_be_bytes(), Deadline::after(self.timeout));
        let told = told.map_err(|error| self.explain(error))?;
        let read = |bytes: &Vec<u8>| bytes.as_slice().try_into().map(u64::from_be_bytes);
        told.iter().map(read).collect::<Result<_, _>>().context("a rank runs another build")
    }

    /// A rank that is missing in the store may have left because of another one: what carries the data knows of which.
    fn explain(&self, error: BootstrapError) -> anyhow::Error {
        let (gone, within) = match error {
            BootstrapError::Lost { .. } => (true, EXPLAIN_WITHIN),
            // The store's silence has taken long already, and says who is silent.
            BootstrapError::NoAnswer { .. } => (true, EXPLAIN_WITHIN / 5),
            // A missing rank may wait for another one, in an operation whose deadline comes later because it began
            // later.
            _ => (false, EXPLAIN_WITHIN / 2),
        };
        if let Some(failure) = self.comm.failure(Deadline::after(within)) {
            return failure.into();
        }
        let error = anyhow::Error::new(error);
        if gone && self.served_by_rank_0 {
            error.context("rank 0, which serves the store, is lost")
        } else {
            error
        }
    }

    /// Ends in order: what this rank has sent arrives first.
    ///
    /// # Errors
    ///
    /// The error of a message that did not arrive.
    pub fn close(mut self) -> anyhow::Result<()> {
        let _ = self.gather(0)?;
        let deadline = self.deadline();
        self.comm.close(deadline)?;
        drop(self.store);
        match self.server {
            Some(server) => Ok(server.close(deadline)?),
            None => Ok(()),
        }
    }
}

/// A line for each rank, with all of its devices.
fn where_ranks_run(
    comm: &Communicator,
    selected: &[SelectedDevice],
    store: &mut StoreClient,
    deadline: Deadline,
) -> anyhow::Result<Vec<RankDevice>> {
    let wires: Vec<String> = selected.iter().map(|device| describe_wire(comm, device)).collect();
    let told = store.all_gather("wires", wires.join("; ").as_bytes(), deadline)?;
    let devices = comm.ranks().iter().zip(&told).enumerate().map(|(rank, (info, wires))| RankDevice {
        rank,
        pid: info.pid,
        hostname: info.host.clone(),
        device: info.device.clone(),
        device_info: String::from_utf8_lossy(wires).into_owned(),
    });
    Ok(devices.collect())
}

fn describe_wire(comm: &Communicator, selected: &SelectedDevice) -> String {
    let soft = selected.context.is_soft();
    let gid = &selected.gid;
    let wire = match comm.neighbours().next() {
        None => "none (a single rank)".to_owned(),
        Some((_, PeerAccess::Rdma)) => format!("{} MTU {}", gid.kind, selected.port.active_mtu),
        Some((_, PeerAccess::Stream)) => "tcp".to_owned(),
        Some((_, access)) => access.to_string(),
    };
    let kind = if soft { "software device" } else { "RDMA device" };
    format!("{kind}, wire {wire}, GID {} {}", gid.index, gid.gid)
}
