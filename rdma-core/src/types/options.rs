//! What a caller chooses when it creates and connects; each default is argued in `docs/defaults.md`.

use crate::{Access, AckTimeout, Mtu, PortNum, RnrRetry, RnrTimer};

/// How a [`Worker`](crate::Worker) is made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkerOptions {
    /// Entries of its completion queue (4096). Each queue pair reserves as many as it may
    /// have requests outstanding, so that the queue cannot overrun.
    pub max_cqe: u32,
    /// Reserve nothing (false): the queue may then overrun, which loses completions and
    /// ends the worker. For tests of just that.
    pub allow_overrun: bool,
}

impl Default for WorkerOptions {
    fn default() -> Self {
        Self { max_cqe: 4096, allow_overrun: false }
    }
}

/// How a queue pair is made.
///
/// See `ibv_create_qp(3)`.
#[doc(alias = "ibv_qp_init_attr")]
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueuePairOptions {
    /// Sends, writes and reads outstanding (128). One more is back-pressure, not an error.
    pub max_send_wr: u32,
    /// Receives outstanding (128).
    pub max_recv_wr: u32,
    /// Bytes that a request may carry inside itself (0). Beyond the device's limit, creation fails.
    pub max_inline_data: u32,
}

impl Default for QueuePairOptions {
    fn default() -> Self {
        Self { max_send_wr: 128, max_recv_wr: 128, max_inline_data: 0 }
    }
}

/// What RESET to INIT sets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InitOptions {
    /// The port (1).
    pub port: PortNum,
    /// Index into the port's partition keys (0).
    pub pkey_index: u16,
    /// What peers may do through this queue pair (`REMOTE_WRITE`).
    pub access: Access,
}

impl Default for InitOptions {
    fn default() -> Self {
        Self { port: PortNum(1), pkey_index: 0, access: Access::REMOTE_WRITE }
    }
}

/// What INIT to RTR sets, besides the peer's endpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PathOptions {
    /// The GID that this end sends from, by its index. Take it from
    /// [`gid::choose`](crate::gid::choose), not from habit: 0 is usually link-local.
    pub gid_index: u32,
    /// The path MTU; `None` takes the smaller of both ports' active MTU.
    pub mtu: Option<Mtu>,
    /// The IP traffic class (0); switches map it to a priority.
    pub traffic_class: u8,
    /// The InfiniBand service level (0).
    pub service_level: u8,
    /// Routers that a packet may pass (64).
    pub hop_limit: u8,
    /// How long the peer waits when this end has no receive posted (0.64 ms).
    pub min_rnr_timer: RnrTimer,
    /// Reads that the peer may have outstanding here (16); more than the device takes is cut to that.
    pub max_dest_rd_atomic: u8,
}

impl Default for PathOptions {
    fn default() -> Self {
        Self {
            gid_index: 0,
            mtu: None,
            traffic_class: 0,
            service_level: 0,
            hop_limit: 64,
            min_rnr_timer: RnrTimer::default(),
            max_dest_rd_atomic: 16,
        }
    }
}

/// What RTR to RTS sets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RetryOptions {
    /// How long before an unacknowledged request is sent again (code 18, 1.07 s).
    pub ack_timeout: AckTimeout,
    /// How often that is done before the request fails (7, the most there is).
    pub retry_cnt: u8,
    /// How often a send is repeated to a peer without a receive (6).
    pub rnr_retry: RnrRetry,
    /// Reads that this end may have outstanding (16); more than the device takes is cut to that.
    pub max_rd_atomic: u8,
}

impl Default for RetryOptions {
    fn default() -> Self {
        Self {
            ack_timeout: AckTimeout::default(),
            retry_cnt: 7,
            rnr_retry: RnrRetry::Times(6),
            max_rd_atomic: 16,
        }
    }
}
