//! The options of an engine. The reasons for the defaults are in `docs/defaults.md`.

use std::time::Duration;

use rdma_core::error::ConnectError;
use rdma_core::{GidEntry, GidType, LinkLayer, PathOptions, PortAttributes, PortNum, RetryOptions, gid};

use crate::engine::SetupError;
use crate::link::Patience;

/// The driver of an [`Engine`](super::Engine) while no call waits on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Driver {
    /// A thread of the engine's own: operations, heartbeats and deadlines go on whatever the rest of the process does.
    /// The thread steps back while callers drive, and sleeps while nothing is due.
    #[default]
    Thread,
    /// The caller, by [`drive`](super::Engine::drive) and by blocking calls. Nothing goes on in between, and peers
    /// learn of that: they do not take the silence of this engine for a loss. While nobody drives, a peer can be only a
    /// few short messages ahead.
    Caller,
}

/// Options of an [`Engine`](super::Engine).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EngineOptions {
    /// The port of the device (default 1).
    pub port: PortNum,
    /// The index of the GID to send from; `None` lets [`gid::choose`] decide.
    pub gid_index: Option<u32>,
    /// The type of GID to choose on Ethernet; `None` means RoCE v2.
    pub roce_version: Option<GidType>,
    /// The address family of the GID to choose; `None` means either, IPv4 first.
    pub address_family: Option<gid::AddressFamily>,
    /// Entries of the completion queue (default 131,072), at most as many as the device has. Each lane reserves the
    /// depths of its queues: about 150 entries for a lane of a communicator's ring, about 450 for a KV link, about 100
    /// for a link of a node. An entry takes 64 bytes, which most NICs pin: a process that may lock little memory asks
    /// for fewer entries. The software device takes memory for those in use.
    pub max_cqe: u32,
    /// The path of every lane. The GID index in it is ignored: the chosen one takes its place.
    pub path: PathOptions,
    /// The retries of every lane. `None` takes [those that suit the device](RetryOptions::suiting), long enough to
    /// outlast `peer_timeout`.
    pub retry: Option<RetryOptions>,
    /// The time that a blocking call polls for completions, and yields its core in between, before it sleeps (default
    /// 300 us; up to eight times as long until 64 polls were in vain, because polls take long only where others use the
    /// core). A longer time keeps a core busy that nobody else wants, and saves the latency of a wake-up.
    pub spin: Duration,
    /// The driver of the engine (default: a thread of its own).
    pub driver: Driver,
    /// The longest time that this side sends nothing on a lane before it sends a heartbeat (default 500 ms, at least 1
    /// ms). Must be well below the `peer_timeout` of the peers.
    pub heartbeat: Duration,
    /// The longest silence of a peer that an operation waits for, before the peer counts as lost (default 3 s, at least
    /// 1 s and two heartbeats, because a process may have to wait for a core).
    ///
    /// Shortly before the deadline of an operation a silence of 1 s (or of two heartbeats, if that is longer) is
    /// enough: so the operation ends with the name of the lost peer, not with a bare timeout. A peer whose engine is
    /// driven by its callers ([`Driver::Caller`]) never counts as lost by silence.
    pub peer_timeout: Duration,
}

impl Default for EngineOptions {
    fn default() -> Self {
        Self {
            port: PortNum(1),
            gid_index: None,
            roce_version: None,
            address_family: None,
            max_cqe: 1 << 17,
            path: PathOptions::default(),
            retry: None,
            spin: Duration::from_micros(300),
            driver: Driver::Thread,
            heartbeat: Duration::from_millis(500),
            peer_timeout: Duration::from_secs(3),
        }
    }
}

/// The shortest `peer_timeout`: a living process may have to wait for a core, and a lost packet for its repetition.
const PEER_TIMEOUT_MIN: Duration = Duration::from_secs(1);

/// The shortest heartbeat: with a shorter one the engine would do little but send heartbeats.
const HEARTBEAT_MIN: Duration = Duration::from_millis(1);

impl EngineOptions {
    pub(super) fn check_times(&self) -> Result<(), SetupError> {
        let Self { heartbeat, peer_timeout, .. } = *self;
        if peer_timeout < PEER_TIMEOUT_MIN || !(HEARTBEAT_MIN..=peer_timeout / 2).contains(&heartbeat) {
            return Err(SetupError::PeerTimeout { heartbeat, peer_timeout });
        }
        Ok(())
    }

    /// The limits on a peer's silence that follow from these options.
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

/// The preference for the choice of a GID. The RoCE version is used on Ethernet only, since other links have none.
pub(crate) fn gid_preference(
    roce_version: Option<GidType>,
    family: Option<gid::AddressFamily>,
    link_layer: LinkLayer,
) -> gid::Preference {
    let kind = roce_version.filter(|_| link_layer == LinkLayer::ETHERNET);
    gid::Preference { kind, family, ..gid::Preference::new(link_layer) }
}
