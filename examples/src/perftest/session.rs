//! From flags to connected queue pairs on both sides; what is then written over them is each test's own.

use super::args::{Common, Plan};
use super::banner::{self, DeviceInfo};
use super::exchange::{Endpoint, Exchange, Hello, Test};
use crate::columns::header::{Refused, refused_lines};
use crate::output;
use anyhow::{Context as _, ensure};
use rdma_collective::comm::env::{NcclOptions, SelectedDevice};
use rdma_core::error::CreateError;
use rdma_core::{
    Access, Attached, Gid, Init, InitOptions, Lid, Mtu, PathOptions, PeerAccess, Psn, QpNum, QueuePair,
    QueuePairOptions, ReadyToSend, Region, RemoteKey, RemoteMemory, RetryOptions, SoftOptions, Worker,
    WorkerOptions,
};
use std::net::IpAddr;
use std::time::Duration;

/// Small messages walk through a page, so that not every one of them hits the same cache line.
const CYCLE_BYTES: u64 = 4096;
const LINE_BYTES: u64 = 64;

/// Both sides connected.
#[derive(Debug)]
pub struct Session {
    /// Serves all queue pairs.
    pub worker: Worker,
    /// In the order of their numbers' exchange.
    pub queue_pairs: Vec<Channel>,
    /// What the peer writes into.
    pub inbox: Region,
    /// What this side writes from.
    pub outbox: Region,
    /// The TCP connection, for reports and the end.
    pub exchange: Exchange,
    /// Messages of at most so many bytes may be inline.
    pub inline_bytes: u32,
    /// Whether the device is the one in software, whose threads need the cores too.
    pub soft: bool,
}

/// One queue pair, what it sends from and what it writes to.
#[derive(Debug)]
pub struct Channel {
    /// The queue pair.
    pub queue_pair: QueuePair<ReadyToSend>,
    /// This channel's part of the outbox begins here.
    pub offset: usize,
    /// The session's outbox, attached to the worker.
    pub source: Attached,
    /// The peer's inbox for this channel.
    pub remote: RemoteMemory,
}

/// Bytes that one channel has on either side for messages of at most `size` bytes.
pub fn channel_bytes(size: u64) -> u64 {
    size.next_multiple_of(LINE_BYTES).max(CYCLE_BYTES)
}

/// Where message `number` lies in a channel: small ones take turns, large ones lie at the beginning.
pub fn message_offset(size: u64, number: u64) -> u64 {
    let slots = (CYCLE_BYTES / size.max(1).next_multiple_of(LINE_BYTES)).max(1);
    number % slots * size.max(1).next_multiple_of(LINE_BYTES)
}

/// Meets the other side, opens the device and connects the queue pairs; prints what perftest prints on the way.
///
/// # Errors
///
/// Whatever of that fails, with its mend.
pub fn connect(test: Test, common: &Common, plan: &Plan) -> anyhow::Result<Session> {
    let within = Duration::from_secs(common.timeout_s);
    let mut exchange = match &common.host {
        Some(host) => Exchange::connect(host, common.port, within)?,
        None => {
            let stars = "*".repeat(36);
            output::say(format_args!("\n{stars}\n* Waiting for client to connect... *\n{stars}\n"))?;
            Exchange::accept(common.port, within)?
        }
    };
    let selected = select(common, exchange.local_address()?)?;
    let mtu = path_mtu(common, &selected, &mut exchange, test, plan)?;
    let side = Side::create(&selected, plan, common.inline_bytes.is_none())?;
    let ours = side.endpoints(&selected, plan)?;
    let theirs: Vec<Endpoint> = exchange.swap("addresses", &ours)?;
    ensure!(
        theirs.len() == ours.len(),
        "the other side has {} queue pairs, this one {}",
        theirs.len(),
        ours.len()
    );
    let path = PathOptions { gid_index: selected.gid.index, mtu: Some(mtu), ..PathOptions::default() };
    let mut session = side.connect(&theirs, &path, plan, exchange)?;
    print_banner(test, common, plan, &selected, &mut session, mtu)?;
    for endpoint in &ours {
        output::say(banner::address("local", endpoint))?;
    }
    for endpoint in &theirs {
        output::say(banner::address("remote", endpoint))?;
    }
    let () = session.exchange.swap("readiness", &())?;
    Ok(session)
}

fn select(common: &Common, local: IpAddr) -> anyhow::Result<SelectedDevice> {
    // The software device answers at the address over which the other side was met.
    let soft = SoftOptions { address: local, ..SoftOptions::default() };
    let wanted = common.device.as_deref().unwrap_or("auto");
    Ok(NcclOptions::default().select(wanted, soft, common.gid_index)?)
}

fn path_mtu(
    common: &Common,
    selected: &SelectedDevice,
    exchange: &mut Exchange,
    test: Test,
    plan: &Plan,
) -> anyhow::Result<Mtu> {
    let active = selected.port.active_mtu;
    let ours = match common.mtu {
        None => active,
        Some(bytes) => Mtu::from_bytes(bytes).filter(|mtu| *mtu <= active).with_context(|| {
            format!(
                "-m {bytes} is above the active MTU of {}, {active}; raise its interface's MTU",
                selected.context.name()
            )
        })?,
    };
    let hello = Hello {
        test,
        size: plan.size,
        all: plan.all,
        iters: plan.iters,
        queue_pairs: plan.queue_pairs,
        mtu: ours.bytes().unwrap_or(0),
        wire: if selected.context.is_soft() {
            "software device".to_owned()
        } else {
            selected.gid.kind.to_string()
        },
    };
    let theirs = exchange.swap("flags", &hello)?;
    hello.agree(&theirs)?;
    let theirs =
        Mtu::from_bytes(theirs.mtu).with_context(|| format!("the other side has no MTU ({})", theirs.mtu))?;
    Ok(ours.min(theirs))
}

fn print_banner(
    test: Test,
    common: &Common,
    plan: &Plan,
    selected: &SelectedDevice,
    session: &mut Session,
    mtu: Mtu,
) -> anyhow::Result<()> {
    let first = session.queue_pairs.first().context("no queue pair")?;
    let wire = match first.queue_pair.peer_access(&mut session.worker)? {
        PeerAccess::Rdma => selected.gid.kind.to_string(),
        PeerAccess::Stream => "tcp".to_owned(),
        other => other.to_string(),
    };
    let info = DeviceInfo {
        name: selected.context.name().to_owned(),
        wire,
        link: selected.port.link_layer.to_string(),
        mtu: mtu.bytes().unwrap_or(0),
        gid_index: Some(selected.gid.index),
    };
    let plan = Plan { inline_bytes: session.inline_bytes, ..*plan };
    output::say(refused_lines(" ", &Refused::all(&selected.refused)))?;
    output::say(banner::block(test, &plan, &info, common.host.is_some()))
}

/// This side's half, before the other one is known.
struct Side {
    worker: Worker,
    queue_pairs: Vec<QueuePair<Init>>,
    inbox: Region,
    outbox: Region,
    inline_bytes: u32,
    soft: bool,
}

impl Side {
    fn create(selected: &SelectedDevice, plan: &Plan, inline_is_default: bool) -> anyhow::Result<Self> {
        let context = &selected.context;
        let pd = context.alloc_pd()?;
        let count = u32::from(plan.queue_pairs);
        let max_cqe = count.saturating_mul(plan.tx_depth.saturating_add(2));
        let mut worker = context.worker(WorkerOptions { max_cqe, ..WorkerOptions::default() })?;
        let bytes = usize::try_from(channel_bytes(plan.size).saturating_mul(u64::from(count)))?;
        let inbox = pd.alloc_region(bytes, Access::LOCAL_WRITE | Access::REMOTE_WRITE)?;
        let outbox = pd.alloc_region(bytes, Access::LOCAL_WRITE)?;
        let mut options = QueuePairOptions {
            max_send_wr: plan.tx_depth,
            max_recv_wr: 1,
            max_inline_data: plan.inline_bytes,
        };
        let mut queue_pairs = Vec::new();
        for _ in 0..count {
            let created = match worker.create_queue_pair(&pd, &options) {
                // perftest's default is more than some devices take; a size that was asked for stands.
                Err(CreateError::BeyondLimit { option: "max_inline_data", limit, .. })
                    if inline_is_default =>
                {
                    options.max_inline_data = u32::try_from(limit)?;
                    worker.create_queue_pair(&pd, &options)?
                }
                created => created?,
            };
            let init = InitOptions { port: selected.port.port, ..InitOptions::default() };
            queue_pairs.push(created.init(&mut worker, &init).map_err(|refused| refused.error)?);
        }
        let (inline_bytes, soft) = (options.max_inline_data, context.is_soft());
        Ok(Self { worker, queue_pairs, inbox, outbox, inline_bytes, soft })
    }

    fn endpoints(&self, selected: &SelectedDevice, plan: &Plan) -> anyhow::Result<Vec<Endpoint>> {
        let remote = self.inbox.remote();
        let endpoint = |(index, queue_pair): (u64, &QueuePair<Init>)| {
            let own = queue_pair.endpoint(&self.worker, selected.gid.index)?;
            Ok(Endpoint {
                lid: own.lid.0,
                qpn: own.qp_num.0,
                psn: own.psn.value(),
                rkey: remote.rkey.0,
                addr: remote.addr + index * channel_bytes(plan.size),
                gid: (!own.gid.is_zero()).then_some(own.gid.0),
            })
        };
        (0..).zip(&self.queue_pairs).map(endpoint).collect()
    }

    fn connect(
        self,
        theirs: &[Endpoint],
        path: &PathOptions,
        plan: &Plan,
        exchange: Exchange,
    ) -> anyhow::Result<Session> {
        let Self { mut worker, queue_pairs, inbox, outbox, inline_bytes, soft } = self;
        let source = worker.attach(&outbox);
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
            let queue_pair = queue_pair.connect(&mut worker, &peer, path, &RetryOptions::default())?;
            let remote = RemoteMemory { addr: theirs.addr, len: bytes, rkey: RemoteKey(theirs.rkey) };
            channels.push(Channel { queue_pair, offset: index * bytes as usize, source, remote });
        }
        Ok(Session { worker, queue_pairs: channels, inbox, outbox, exchange, inline_bytes, soft })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_stay_inside_their_channel() {
        for size in [1, 2, 63, 64, 65, 2048, 2049, 4095, 4096, 4097, 65_536, 1 << 23] {
            let offsets: Vec<u64> = (0..200).map(|number| message_offset(size, number)).collect();
            assert!(offsets.iter().all(|offset| offset + size <= channel_bytes(size)), "{size}");
            assert_eq!(offsets.iter().any(|&offset| offset > 0), size <= 2048, "{size}");
        }
    }
}
