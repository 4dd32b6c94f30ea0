//! How an engine is made; each default is argued in `docs/defaults.md`.

use std::time::Duration;

use rdma_core::error::ConnectError;
use rdma_core::{GidEntry, PathOptions, PortAttributes, PortNum, RetryOptions, gid};

use crate::error::SetupError;

/// Options of an [`Engine`](super::Engine).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EngineOptions {
    /// The port (1).
    pub port: PortNum,
    /// The GID to send from, by its index; `None` [chooses](gid::choose).
    pub gid_index: Option<u32>,
    /// Entries of the completion queue (8192). Each lane reserves the depths of its queues: a ring's about 150, a
    /// KV link's about 450.
    pub max_cqe: u32,
    /// The path of every lane; its GID index is replaced by the one chosen.
    pub path: PathOptions,
    /// The retries of every lane.
    pub retry: RetryOptions,
    /// How long a blocking call looks for completions before it sleeps (20 us). More costs a core and saves a wake-up.
    pub spin: Duration,
    /// How long a peer that is waited for may be silent before its device is asked whether it is there (500 ms).
    pub probe_after: Duration,
}

impl Default for EngineOptions {
    fn default() -> Self {
        Self {
            port: PortNum(1),
            gid_index: None,
            max_cqe: 8192,
            path: PathOptions::default(),
            retry: RetryOptions::default(),
            spin: Duration::from_micros(20),
            probe_after: Duration::from_millis(500),
        }
    }
}

impl EngineOptions {
    pub(super) fn choose_gid(
        &self,
        device: &str,
        port: &PortAttributes,
        table: Vec<GidEntry>,
    ) -> Result<gid::Chosen, SetupError> {
        let Some(index) = self.gid_index else {
            return Ok(gid::choose(port.port, &table, &gid::Preference::new(port.link_layer))?);
        };
        match table.iter().find(|entry| entry.index == index) {
            Some(entry) => Ok(gid::Chosen { entry: entry.clone(), rejected: Vec::new() }),
            None => {
                let device = device.to_owned();
                Err(ConnectError::NoSuchGid { device, port: port.port, index, table }.into())
            }
        }
    }
}
