//! Options for creating and connecting objects; `docs/defaults.md` has the reason of each default.

use std::time::Duration;

use crate::{Access, AckTimeout, DeviceAttributes, Mtu, PortNum, RnrRetry, RnrTimer};

/// Options of a [`Worker`](crate::Worker). See `ibv_create_cq(3)`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkerOptions {
    /// Entries of the completion queue (4096). Each queue pair reserves one entry for each request that it
    /// may have outstanding, so that the queue cannot overrun.
    pub max_cqe: u32,
    /// Skips the reservation (false). The completion queue may then overrun, which loses completions and ends
    /// the worker. Meant for tests of an overrun.
    pub allow_overrun: bool,
}

impl Default for WorkerOptions {
    fn default() -> Self {
        Self { max_cqe: 4096, allow_overrun: false }
    }
}

/// Options of a queue pair.
///
/// See `ibv_create_qp(3)`. Everything beyond a limit of the device is refused when the queue pair is created.
///
/// The argument of [`Worker::create_queue_pair`](crate::Worker::create_queue_pair).
#[doc(alias = "ibv_qp_init_attr")]
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueuePairOptions {
    /// Sends, writes and reads that may be outstanding (128). Posting one more is back-pressure, not a
    /// failure.
    pub max_send_wr: u32,
    /// Receives that may be outstanding (128).
    pub max_recv_wr: u32,
    /// Bytes that one request may carry inline (0).
    pub max_inline_data: u32,
}

impl Default for QueuePairOptions {
    fn default() -> Self {
        Self { max_send_wr: 128, max_recv_wr: 128, max_inline_data: 0 }
    }
}

/// Options of the transition from RESET to INIT. See `ibv_modify_qp(3)`.
///
/// The argument of [`QueuePair::init`](crate::QueuePair::init).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InitOptions {
    /// The port to use (1).
    pub port: PortNum,
    /// Index into the partition keys of the port (0).
    pub pkey_index: u16,
    /// Rights of the peer on this queue pair (`REMOTE_WRITE`); the region must grant them, too.
    pub access: Access,
}

impl Default for InitOptions {
    fn default() -> Self {
        Self { port: PortNum(1), pkey_index: 0, access: Access::REMOTE_WRITE }
    }
}

/// Options of the transition from INIT to RTR, besides the peer's endpoint. See `ibv_modify_qp(3)`.
///
/// The argument of [`QueuePair::connect`](crate::QueuePair::connect).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PathOptions {
    /// Index of the GID that this end sends from (0). Let [`gid::choose`](crate::gid::choose) pick it,
    /// because entry 0 is usually link-local and cannot be routed.
    pub gid_index: u32,
    /// The path MTU; `None` takes the smaller of both ports' active MTU.
    pub mtu: Option<Mtu>,
    /// The IP traffic class (0); switches map it to a priority.
    pub traffic_class: u8,
    /// The InfiniBand service level (0).
    pub service_level: u8,
    /// Routers that a packet may pass (64).
    pub hop_limit: u8,
    /// Time that the peer waits before it repeats a send that met no posted receive here (0.64 ms).
    pub min_rnr_timer: RnrTimer,
    /// Reads that the peer may have outstanding here (16); cut to the limit of the device.
    pub max_dest_rd_atomic: u8,
    /// Treats the peer as if it ran on another host (false). The software device's `Wire::Auto` then uses TCP
    /// instead of shared memory. Both ends must say the same.
    pub other_host: bool,
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
            other_host: false,
        }
    }
}

/// Options of the transition from RTR to RTS. See `ibv_modify_qp(3)`.
///
/// The argument of [`QueuePair::connect`](crate::QueuePair::connect); [`RetryOptions::suiting`] fits a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RetryOptions {
    /// Time after which an unacknowledged request is sent again (code 17, 537 ms).
    pub ack_timeout: AckTimeout,
    /// Repetitions of an unacknowledged request before it fails (7, the most that verbs allows).
    pub retry_cnt: u8,
    /// Repetitions of a send to a peer that has no receive posted (6).
    pub rnr_retry: RnrRetry,
    /// Reads that this end may have outstanding (16); cut to the limit of the device.
    pub max_rd_atomic: u8,
}

impl RetryOptions {
    /// Returns the defaults with an ack timeout that suits `device`.
    ///
    /// [Soft-RoCE](DeviceAttributes::is_soft_roce) gets code 14 (67 ms), because it waits one timeout for
    /// each lost packet of a message, one after the other. Other devices get the default.
    #[must_use]
    pub fn suiting(device: &DeviceAttributes) -> Self {
        let default = Self::default();
        let ack_timeout = if device.is_soft_roce() { AckTimeout::new(14) } else { default.ack_timeout };
        Self { ack_timeout, ..default }
    }

    /// Raises the ack timeout until a request is repeated for at least `time` before it fails.
    ///
    /// Use it so that the transport outlasts a failure detector that waits for `time`: otherwise a request to
    /// a slow peer fails first, with a worse error.
    ///
    /// [Soft-RoCE](DeviceAttributes::is_soft_roce) keeps its timeout when `retry_cnt` is 7, because it then
    /// retries forever.
    #[must_use]
    pub fn lasting(self, time: Duration, device: &DeviceAttributes) -> Self {
        let tries = u32::from(self.retry_cnt) + 1;
        let lasts = self.ack_timeout.duration().saturating_mul(tries) >= time;
        if lasts || device.is_soft_roce() && self.retry_cnt >= 7 {
            return self;
        }
        Self { ack_timeout: AckTimeout::at_least(time / tries), ..self }
    }
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

#[cfg(test)]
mod tests;
