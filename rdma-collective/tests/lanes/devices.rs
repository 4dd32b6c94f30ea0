//! A world of ranks with several devices each.

use std::time::Duration;

use rdma_collective::collective::{Communicator, CommunicatorOptions};
use rdma_collective::engine::EngineOptions;
use rdma_core::fault::FaultPlan;
use rdma_core::{Context, Device, SoftOptions, Wire};

use crate::of;
use crate::world::each_rank_over;

/// How it is made.
#[derive(Clone)]
pub struct Devices {
    pub ranks: u32,
    /// Devices of a rank.
    pub count: usize,
    pub wire: Wire,
    pub options: CommunicatorOptions,
    /// Faults of the devices, by rank and then by device; empty for none.
    pub faults: Vec<Vec<FaultPlan>>,
}

impl Devices {
    pub fn new(ranks: u32, count: usize, wire: Wire) -> Self {
        Self { ranks, count, wire, options: of(1), faults: Vec::new() }
    }

    /// With a plan of faults for each device.
    pub fn with_faults(self) -> Self {
        let plans = |_| (0..self.count).map(|_| FaultPlan::seeded(1)).collect();
        Self { faults: (0..self.ranks).map(plans).collect(), ..self }
    }

    /// The devices of a rank.
    fn of_rank(&self, rank: u32) -> Vec<(Context, EngineOptions)> {
        let open = |number: usize| {
            let faults = self.faults.get(rank as usize).map(|plans| plans[number].clone());
            // Without faults nobody may be taken for lost because the machine is busy.
            let options = if faults.is_some() { hasty() } else { EngineOptions::default() };
            (soft(rank, number, self.wire, faults), options)
        };
        (0..self.count).map(open).collect()
    }
}

/// Device `number` of a rank.
pub fn soft(rank: u32, number: usize, wire: Wire, faults: Option<FaultPlan>) -> Context {
    let name = format!("rank{rank}device{number}");
    Device::soft(SoftOptions { name, wire, faults, ..SoftOptions::default() }).open().unwrap()
}

/// A rank that is silent is lost after as short a time as can be.
fn hasty() -> EngineOptions {
    EngineOptions {
        heartbeat: Duration::from_millis(200),
        peer_timeout: Duration::from_secs(1),
        ..EngineOptions::default()
    }
}

/// Runs `body` on each rank with its communicator, and gives what they return, by rank.
pub fn each_over<T: Send + 'static>(
    devices: Devices,
    body: impl Fn(Communicator) -> T + Send + Sync + 'static,
) -> Vec<T> {
    let (ranks, options) = (devices.ranks, devices.options.clone());
    each_rank_over(
        ranks,
        move |rank| devices.of_rank(rank),
        move |mut rank| body(rank.communicator(options.clone())),
    )
}
