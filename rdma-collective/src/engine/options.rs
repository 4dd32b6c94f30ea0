//! How an engine is made; each default is argued in `docs/defaults.md`.

use std::time::Duration;

use rdma_core::error::ConnectError;
use rdma_core::{GidEntry, GidType, LinkLayer, PathOptions, PortAttributes, PortNum, RetryOptions, gid};

use crate::engine::SetupError;
use crate::link::Patience;

/// Who drives an [`Engine`](super::Engine) while nobody waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Driver {
    /// A thread of the engine's own: operations, heartbeats and deadlines go on whatever the process does otherwise. It
    /// steps back while callers drive, and sleeps while nothing is due.
    #[default]
    Thread,
    /// The caller, by [`drive`](super::Engine::drive) and whenever it waits. Peers do not take
    /// its silence for a loss.
    Caller,
}

/// Options of an [`Engine`](super::Engine).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EngineOptions {
    /// The port (1).
    pub port: PortNum,
    /// The GID to send from, by its index; `None` [chooses](gid::choose).
    pub gid_index: Option<u32>,
    /// The type of the GID that is chosen on Ethernet; `None` takes RoCE v2.
    pub roce_version: Option<GidType>,
    /// The address family of the GID that is chosen; `None` takes either, IPv4 first.
    pub address_family: Option<gid::AddressFamily>,
    /// Entries of the completion queue (8192). Each lane reserves the depths of its queues: a ring's about 150, a
    /// KV link's about 450.
    pub max_cqe: u32,
    /// The path of every lane; its GID index is replaced by the one chosen.
    pub path: PathOptions,
    /// The retries of every lane; `None` takes [what suits the device](RetryOptions::suiting), and outlasts `peer_timeout`.
    pub retry: Option<RetryOptions>,
    /// How long a blocking call looks for completions before it sleeps (20 us). More costs a core and saves a wake-up.
    pub spin: Duration,
    /// Who drives it (a thread of its own).
    pub driver: Driver,
    /// How long a lane is quiet before this side says that it lives (500 ms), 1 ms at least: a fraction of the peers' `peer_timeout`.
    pub heartbeat: Duration,
    /// How long a peer that is waited for may be silent before it counts as lost (3 s): at least 1 s, since a process
    /// may have to wait for a core. Shortly before the deadline of an operation a second is enough, or two heartbeats if
    /// these are longer: it ends by the loss then. A peer whose engine is driven by its callers is never silent too long.
    pub peer_timeout: Duration,
}

impl Default for EngineOptions {
    fn default() -> Self {
        Self {
            port: PortNum(1),
            gid_index: None,
            roce_version: None,
            address_family: None,
            max_cqe: 8192,
            path: PathOptions::default(),
            retry: None,
            spin: Duration::from_micros(20),
            driver: Driver::Thread,
            heartbeat: Duration::from_millis(500),
            peer_timeout: Duration::from_secs(3),
        }
    }
}

/// A process may have to wait for a core, and a lost packet for its repetition.
const PEER_TIMEOUT_MIN: Duration = Duration::from_secs(1);

/// More often, the engine would do nothing else.
const HEARTBEAT_MIN: Duration = Duration::from_millis(1);

impl EngineOptions {
    pub(super) fn check_times(&self) -> Result<(), SetupError> {
        let Self { heartbeat, peer_timeout, .. } = *self;
        if peer_timeout < PEER_TIMEOUT_MIN || !(HEARTBEAT_MIN..=peer_timeout / 2).contains(&heartbeat) {
            return Err(SetupError::PeerTimeout { heartbeat, peer_timeout });
        }
        Ok(())
    }

    /// How long lanes bear silence.
    pub(crate) fn patience(&self) -> Patience {
        let Self { heartbeat, peer_timeout, .. } = *self;
        let hasty = PEER_TIMEOUT_MIN.max(heartbeat.saturating_mul(2)).min(peer_timeout);
        Patience { peer_timeout, hasty, notice: heartbeat }
    }

    pub(super) fn choose_gid(
        &self,
        device: &str,
        port: &PortAttributes,
        table: Vec<GidEntry>,
    ) -> Result<gid::Chosen, SetupError> {
        let preference = gid_preference(self.roce_version, self.address_family, port.link_layer);
        let chosen = gid::choose(port.port, &table, &preference);
        let Some(index) = self.gid_index else { return Ok(chosen?) };
        if let Ok(chosen) = chosen
            && chosen.entry.index == index
        {
            return Ok(chosen);
        }
        match table.iter().find(|entry| entry.index == index) {
            Some(entry) => Ok(gid::Chosen { entry: entry.clone(), rejected: Vec::new() }),
            None => {
                let device = device.to_owned();
                Err(ConnectError::NoSuchGid { device, port: port.port, index, table }.into())
            }
        }
    }
}

/// What the GID to choose must be; versions of RoCE are of Ethernet alone.
pub(crate) fn gid_preference(
    roce_version: Option<GidType>,
    family: Option<gid::AddressFamily>,
    link_layer: LinkLayer,
) -> gid::Preference {
    let kind = roce_version.filter(|_| link_layer == LinkLayer::ETHERNET);
    gid::Preference { kind, family, ..gid::Preference::new(link_layer) }
}
