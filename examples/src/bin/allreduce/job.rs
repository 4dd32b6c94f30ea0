//! One rank: its device, its communicator, and what it tells the other ranks besides the data.

use crate::args::Args;
use crate::seat::Seat;
use anyhow::{Context, ensure};
use examples::columns::header::{RankDevice, Refused};
use examples::devices;
use examples::fault::CorruptAt;
use examples::processes;
use rdma_collective::comm::bootstrap::{StoreClient, StoreOptions, StoreServer};
use rdma_collective::comm::{Communicator, CommunicatorOptions, Engine, EngineOptions};
use rdma_core::fault::FaultPlan;
use rdma_core::{Deadline, PeerAccess, SoftOptions};
use std::time::Duration;

/// A rank that is connected.
#[derive(Debug)]
pub struct Job {
    /// Carries the data.
    pub comm: Communicator,
    /// Carries times and verdicts: what the data's path gets wrong, it cannot hide.
    store: StoreClient,
    /// Where every rank runs.
    pub devices: Vec<RankDevice>,
    /// Devices that this rank does not use.
    pub refused: Vec<Refused>,
    /// What shall go wrong at this rank's device.
    pub faults: Option<FaultPlan>,
    timeout: Duration,
    meetings: u64,
    /// Rank 0's, when nobody else serves.
    server: Option<StoreServer>,
}

impl Job {
    /// Meets the other ranks and connects.
    ///
    /// # Errors
    ///
    /// Whatever of that fails; a rank that does not come is named when the time is up.
    pub fn join(seat: &Seat, args: &Args) -> anyhow::Result<Self> {
        let deadline = Deadline::after(args.timeout());
        let rank = seat.join.rank;
        let server = if rank == 0 && seat.launcher.is_none() {
            let options = StoreOptions::new(seat.join.token, seat.join.world);
            Some(StoreServer::bind(seat.join.address, options)?)
        } else {
            None
        };
        if let Some(launcher) = seat.launcher {
            processes::end_with(launcher)?;
        }
        let mut store = StoreClient::connect(seat.join.clone(), deadline)?;
        let faults = args.fault.filter(|_| rank == 0).map(CorruptAt::plan);
        // Peers reach the software device at the address by which this rank reaches the store.
        let address = store.local_address()?.ip();
        let soft = SoftOptions { address, faults: faults.clone(), ..SoftOptions::default() };
        let selected = devices::select(&args.device, soft, None)?;
        ensure!(
            faults.is_none() || selected.context.is_soft(),
            "--fault is for the software device, and {} is not: add --device soft",
            selected.context.name()
        );
        let options = EngineOptions { gid_index: Some(selected.gid.index), ..EngineOptions::default() };
        let engine = Engine::new(&selected.context, options)?;
        let comm = Communicator::new(&engine, &mut store, CommunicatorOptions::default(), deadline)?;
        let wire = describe_wire(&comm, &selected);
        let told = store.all_gather("wires", wire.as_bytes(), deadline)?;
        let devices = comm.ranks().iter().zip(&told).enumerate().map(|(rank, (info, wire))| RankDevice {
            rank,
            pid: info.pid,
            hostname: info.host.clone(),
            device: info.device.clone(),
            device_info: String::from_utf8_lossy(wire).into_owned(),
        });
        let devices = devices.collect();
        let (refused, timeout) = (selected.refused, args.timeout());
        Ok(Self { comm, store, devices, refused, faults, timeout, meetings: 0, server })
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
        let told = self.store.all_gather(&name, &value.to_be_bytes(), Deadline::after(self.timeout))?;
        let read = |bytes: &Vec<u8>| bytes.as_slice().try_into().map(u64::from_be_bytes);
        told.iter().map(read).collect::<Result<_, _>>().context("a rank runs another build")
    }

    /// Ends in order: what this rank has sent arrives first.
    ///
    /// # Errors
    ///
    /// What did not arrive.
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

fn describe_wire(comm: &Communicator, selected: &devices::Selected) -> String {
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
