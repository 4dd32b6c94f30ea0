//! What a caller chooses when it creates and connects; each default is argued in `docs/defaults.md`.

use std::time::Duration;

use crate::{Access, AckTimeout, DeviceAttributes, Mtu, PortNum, RnrRetry, RnrTimer};

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
    /// The peer counts as one of another host (no): the software device's `Wire::Auto` shares no memory with it, and goes over TCP.
    /// Both ends say the same.
    pub apart: bool,
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
            apart: false,
        }
    }
}

/// What RTR to RTS sets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RetryOptions {
    /// How long before an unacknowledged request is sent again (code 17, 537 ms).
    pub ack_timeout: AckTimeout,
    /// How often that is done before the request fails (7, the most there is).
    pub retry_cnt: u8,
    /// How often a send is repeated to a peer without a receive (6).
    pub rnr_retry: RnrRetry,
    /// Reads that this end may have outstanding (16); more than the device takes is cut to that.
    pub max_rd_atomic: u8,
}

impl RetryOptions {
    /// The defaults, and an ack timeout that suits the device.
    ///
    /// That of [soft-RoCE](DeviceAttributes::is_soft_roce) is 14 (67 ms): it waits so long for each of several packets
    /// that a message has lost.
    #[must_use]
    pub fn suiting(device: &DeviceAttributes) -> Self {
        let default = Self::default();
        let ack_timeout = if device.is_soft_roce() { AckTimeout::new(14) } else { default.ack_timeout };
        Self { ack_timeout, ..default }
    }

    /// The same, and an ack timeout with which a request is repeated for as long as `time` at least.
    ///
    /// [Soft-RoCE](DeviceAttributes::is_soft_roce) that is told to try 7 times tries for ever, and keeps its own.
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
mod tests {
    use super::*;

    fn device(vendor_id: u32) -> DeviceAttributes {
        let firmware = String::new();
        DeviceAttributes {
            firmware,
            vendor_id,
            vendor_part_id: 0,
            ports: 1,
            max_qp: 1,
            max_qp_wr: 1,
            max_cqe: 1,
            max_mr: 1,
            max_mr_size: 1,
            max_qp_rd_atom: 1,
        }
    }

    #[test]
    fn requests_are_repeated_for_as_long_as_is_asked() {
        let (nic, soft_roce) = (device(0x02c9), device(0x00ff_ffff));
        let minute = Duration::from_secs(60);
        for (retry_cnt, code) in [(7, 21), (3, 22), (0, 24)] {
            let retry = RetryOptions { retry_cnt, ..RetryOptions::suiting(&nic) }.lasting(minute, &nic);
            assert_eq!(retry.ack_timeout, AckTimeout::new(code), "{retry_cnt}");
            let tries = u32::from(retry_cnt) + 1;
            assert!(retry.ack_timeout.duration() * tries >= minute);
        }
        let default = RetryOptions::suiting(&nic);
        assert_eq!(default, RetryOptions::default());
        assert_eq!(default.clone().lasting(Duration::from_secs(3), &nic), default);
        let short = RetryOptions::suiting(&soft_roce);
        assert_eq!(short.ack_timeout, AckTimeout::new(14));
        assert_eq!(short.clone().lasting(minute, &soft_roce), short);
        let few = RetryOptions { retry_cnt: 3, ..short }.lasting(minute, &soft_roce);
        assert_eq!(few.ack_timeout, AckTimeout::new(22));
    }
}
