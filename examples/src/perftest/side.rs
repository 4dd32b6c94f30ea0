//! Device, memory and queue pairs of one side, from creation to connection.

use super::args::Common;
use super::bandwidth::GRANTS_AHEAD;
use super::banner::DeviceInfo;
use super::exchange::{Endpoint, Exchange};
use super::idle::Idle;
use super::plan::Plan;
use super::session::{Channel, Session, channel_bytes};
use super::test::Verb;
use crate::doctor::InUse;
use anyhow::Context as _;
use rdma_collective::env::SelectedDevice;
use rdma_core::error::CreateError;
use rdma_core::{
    Access, Gid, Init, InitOptions, Lid, Mtu, PathOptions, PeerAccess, Psn, QpNum, QueuePair,
    QueuePairOptions, Region, RemoteKey, RemoteMemory, RetryOptions, RnrRetry, Worker, WorkerOptions,
};
use std::time::Duration;

/// This side's half, before the other one is known.
pub(super) struct Side {
    worker: Worker,
    queue_pairs: Vec<QueuePair<Init>>,
    inbox: Region,
    outbox: Region,
    plan: Plan,
}

impl Side {
    /// Opens what the plan needs.
    pub fn create(selected: &SelectedDevice, mut plan: Plan) -> anyhow::Result<Self> {
        let context = &selected.context;
        let pd = context.alloc_pd()?;
        let count = u32::from(plan.queue_pairs);
        let max_recv_wr = match plan.test.verb() {
            Verb::Send => plan.rx_depth.max(GRANTS_AHEAD),
            Verb::Write | Verb::Read => 1,
        };
        let max_cqe = count.saturating_mul(plan.tx_depth.saturating_add(max_recv_wr).saturating_add(1));
        let mut worker = context.worker(WorkerOptions { max_cqe, ..WorkerOptions::default() })?;
        let bytes = usize::try_from(channel_bytes(plan.size).saturating_mul(u64::from(count)))?;
        let access = match plan.test.verb() {
            Verb::Write => Access::REMOTE_WRITE,
            Verb::Read => Access::REMOTE_READ,
            Verb::Send => Access::empty(),
        };
        let inbox = pd.alloc_region(bytes, Access::LOCAL_WRITE | access)?;
        let outbox = pd.alloc_region(bytes, Access::LOCAL_WRITE)?;
        let mut options =
            QueuePairOptions { max_send_wr: plan.tx_depth, max_recv_wr, max_inline_data: plan.inline_bytes };
        let mut queue_pairs = Vec::new();
        for _ in 0..count {
            let created = match worker.create_queue_pair(&pd, &options) {
                // perftest's default is more than some devices take; a size that was asked for stands.
                Err(CreateError::BeyondLimit { option: "max_inline_data", limit, .. })
                    if plan.inline_may_shrink =>
                {
                    options.max_inline_data = u32::try_from(limit)?;
                    worker.create_queue_pair(&pd, &options)?
                }
                created => created?,
            };
            let init = InitOptions { port: selected.port.port, access, ..InitOptions::default() };
            queue_pairs.push(created.init(&mut worker, &init).map_err(|refused| refused.error)?);
        }
        plan.inline_bytes = options.max_inline_data;
        Ok(Self { worker, queue_pairs, inbox, outbox, plan })
    }

    /// Returns the options of the path that the plan asks for.
    pub fn path_options(&self) -> PathOptions {
        let default = PathOptions::default();
        PathOptions { max_dest_rd_atomic: self.plan.reads.unwrap_or(default.max_dest_rd_atomic), ..default }
    }

    fn retry_options(&self) -> RetryOptions {
        let default = RetryOptions::default();
        // Sends wait for a receive on their own side of the wire: that the peer has none would be an error of ours.
        let rnr_retry =
            if self.plan.test.verb() == Verb::Send { RnrRetry::Times(0) } else { default.rnr_retry };
        RetryOptions { max_rd_atomic: self.plan.reads.unwrap_or(default.max_rd_atomic), rnr_retry, ..default }
    }

    /// Returns the endpoints that the other side is told.
    pub fn endpoints(&self, selected: &SelectedDevice) -> anyhow::Result<Vec<Endpoint>> {
        let remote = self.inbox.remote();
        let endpoint = |(index, queue_pair): (u64, &QueuePair<Init>)| {
            let own = queue_pair.endpoint(&self.worker, selected.gid.index)?;
            Ok(Endpoint {
                lid: own.lid.0,
                qpn: own.qp_num.0,
                psn: own.psn.value(),
                rkey: remote.rkey.0,
                addr: remote.addr + index * channel_bytes(self.plan.size),
                gid: (!own.gid.is_zero()).then_some(own.gid.0),
            })
        };
        (0..).zip(&self.queue_pairs).map(endpoint).collect()
    }

    /// Connects each queue pair to the other side's.
    pub fn connect(
        self,
        theirs: &[Endpoint],
        path: &PathOptions,
        selected: &SelectedDevice,
        exchange: Exchange,
        common: &Common,
        in_use: InUse,
    ) -> anyhow::Result<Session> {
        let retry = self.retry_options();
        let Self { mut worker, queue_pairs, inbox, outbox, plan } = self;
        let (local, landing) = (worker.attach(&outbox), worker.attach(&inbox));
        let bytes = channel_bytes(plan.size);
        let mut channels = Vec::with_capacity(queue_pairs.len());
        for (index, (queue_pair, theirs)) in queue_pairs.into_iter().zip(theirs).enumerate() {
            let peer = rdma_core::Endpoint {
                qp_num: QpNum(theirs.qpn),
                psn: Psn::new(theirs.psn),
                lid: Lid(theirs.lid),
                gid: Gid(theirs.gid.unwrap_or_default()),
                mtu: path.mtu.unwrap_or(Mtu::MTU_1024),
            };
            let connected = queue_pair.connect(&mut worker, &peer, path, &retry);
            let queue_pair = connected.map_err(|refused| in_use.explain(refused))?;
            let remote = RemoteMemory { addr: theirs.addr, len: bytes, rkey: RemoteKey(theirs.rkey) };
            channels.push(Channel { queue_pair, offset: index * bytes as usize, local, landing, remote });
        }
        let device = describe(selected, path, channels.first().context("no queue pair")?, &mut worker)?;
        let within = Duration::from_secs(common.timeout_s);
        let idle = Idle::new(within, selected.context.is_soft()).beside(exchange.watch()?);
        let client = common.host.is_some();
        Ok(Session {
            worker,
            queue_pairs: channels,
            inbox,
            outbox,
            exchange,
            plan,
            client,
            device,
            in_use,
            idle,
        })
    }
}

/// The device as it is printed; `first` tells how it reaches the other side.
fn describe(
    selected: &SelectedDevice,
    path: &PathOptions,
    first: &Channel,
    worker: &mut Worker,
) -> anyhow::Result<DeviceInfo> {
    let wire = match first.queue_pair.peer_access(worker)? {
        PeerAccess::Rdma => selected.gid.kind.to_string(),
        PeerAccess::Stream => "tcp".to_owned(),
        other => other.to_string(),
    };
    Ok(DeviceInfo {
        name: selected.context.name().to_owned(),
        wire,
        link: selected.port.link_layer.to_string(),
        mtu: path.mtu.and_then(Mtu::bytes).unwrap_or(0),
        gid_index: Some(selected.gid.index),
    })
}
