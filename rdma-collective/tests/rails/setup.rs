//! A world of ranks with several devices each.

use rdma_collective::collective::{Rails, RailsOptions};
use rdma_collective::engine::{Engine, EngineOptions};
use rdma_core::fault::FaultPlan;
use rdma_core::{Context, Device, SoftOptions, Wire};
use std::time::Duration;

use crate::common::long;
use crate::world::each_rank_on;

/// How it is made.
#[derive(Clone)]
pub struct Setup {
    pub ranks: u32,
    pub rails: usize,
    pub wire: Wire,
    pub options: RailsOptions,
    /// Faults of the devices, by rank and then by rail; empty for none.
    pub faults: Vec<Vec<FaultPlan>>,
}

impl Setup {
    pub fn of(ranks: u32, rails: usize, wire: Wire) -> Self {
        Self { ranks, rails, wire, options: RailsOptions::default(), faults: Vec::new() }
    }

    fn device(&self, rank: u32, rail: usize) -> Context {
        let faults = self.faults.get(rank as usize).map(|rails| rails[rail].clone());
        let name = format!("rank{rank}rail{rail}");
        Device::soft(SoftOptions { name, wire: self.wire, faults, ..SoftOptions::default() }).open().unwrap()
    }
}

/// A rank that is silent is lost after as short a time as can be.
pub fn hasty() -> EngineOptions {
    EngineOptions {
        heartbeat: Duration::from_millis(200),
        peer_timeout: Duration::from_secs(1),
        ..EngineOptions::default()
    }
}

/// Runs `body` on each rank, and gives what they return, by rank.
pub fn each_railed<T: Send + 'static>(
    setup: Setup,
    body: impl Fn(Rails) -> T + Send + Sync + 'static,
) -> Vec<T> {
    // Without faults nobody may be taken for lost because the machine is busy.
    let engine = if setup.faults.is_empty() { EngineOptions::default() } else { hasty() };
    let (of, options) = (setup.clone(), engine.clone());
    each_rank_on(
        setup.ranks,
        engine,
        move |rank| of.device(rank, 0),
        move |mut rank| {
            let more = (1..setup.rails)
                .map(|rail| Engine::new(&setup.device(rank.rank, rail), options.clone()).unwrap());
            let engines: Vec<_> = std::iter::once(rank.engine.clone()).chain(more).collect();
            body(Rails::new(&engines, &mut rank.store, setup.options.clone(), long()).unwrap())
        },
    )
}
