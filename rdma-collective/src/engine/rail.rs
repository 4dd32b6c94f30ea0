//! A rail of an engine: one port of a device, with the worker and the domain by which lanes use it.
//!
//! All rails of an engine are driven together. A lane belongs to one rail for good; memory of an engine is registered
//! on all of them, so that any lane can carry it.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use rdma_core::{
    Access, Context, DeviceAttributes, InitOptions, ProtectionDomain, QpNum, RetryOptions, Worker,
    WorkerOptions,
};

use super::EngineOptions;
use super::known::Known;
use crate::engine::SetupError;
use crate::link::Connection;

/// A port of a device, as the engine uses it.
#[derive(Debug)]
pub(super) struct Rail {
    pub(super) worker: Worker,
    pub(super) pd: ProtectionDomain,
    pub(super) init: InitOptions,
    pub(super) connection: Connection,
    pub(super) device: DeviceAttributes,
    /// The index of the lane that owns a queue pair, by which completions find their lane.
    pub(super) by_qp: HashMap<QpNum, usize>,
    pub(super) known: Known,
    /// Whether the device has failed. Its worker is not polled any more then.
    pub(super) broken: bool,
}

impl Rail {
    /// Makes a worker and a domain on the device of `context`. Its retries outlast `peer_timeout`.
    pub(super) fn new(
        context: &Context,
        options: &EngineOptions,
        gid_index: u32,
        peer_timeout: Duration,
    ) -> Result<Self, SetupError> {
        let pd = context.alloc_pd()?;
        let device = context.attributes()?;
        let worker = worker(context, options.max_cqe.min(device.max_cqe), options)?;
        let suiting = || RetryOptions::suiting(&device).lasting(peer_timeout, &device);
        let retry = options.retry.clone().unwrap_or_else(suiting);
        let path = rdma_core::PathOptions { gid_index, ..options.path.clone() };
        let init = InitOptions {
            port: options.port,
            access: Access::REMOTE_WRITE | Access::REMOTE_READ,
            ..InitOptions::default()
        };
        Ok(Self {
            worker,
            pd,
            init,
            connection: Connection { path, retry },
            device,
            by_qp: HashMap::new(),
            known: Known::new(Instant::now()),
            broken: false,
        })
    }
}

/// Completion entries that a default queue has at least, which carry some 80 links of a node: 512 KiB on a NIC.
const DEFAULT_CQE_MIN: u32 = 8192;

/// Makes the worker. A NIC pins the completion entries, so where the system lets it pin little, a queue of default
/// length becomes shorter.
fn worker(context: &Context, mut max_cqe: u32, options: &EngineOptions) -> Result<Worker, SetupError> {
    let is_default = options.max_cqe == EngineOptions::default().max_cqe;
    loop {
        match context.worker(WorkerOptions { max_cqe, ..WorkerOptions::default() }) {
            Err(error) if is_default && max_cqe > DEFAULT_CQE_MIN => {
                max_cqe = (max_cqe / 2).max(DEFAULT_CQE_MIN);
                crate::log::debug!(%error, max_cqe, "a completion queue was refused; a shorter one is tried");
            }
            made => return Ok(made?),
        }
    }
}
