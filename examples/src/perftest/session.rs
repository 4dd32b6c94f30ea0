//! From flags to connected queue pairs on both sides; what is then written over them is each test's own.

use super::args::Common;
use super::banner::{self, DeviceInfo};
use super::exchange::{Endpoint, Exchange, Hello};
use super::idle::Idle;
use super::plan::Plan;
use super::side::Side;
use super::test::Verb;
use crate::columns::header::{Refused, refused_lines};
use crate::doctor::{self, InUse};
use crate::output;
use crate::wire::WireName;
use anyhow::{Context as _, ensure};
use rdma_collective::env::{NcclOptions, SelectedDevice};
use rdma_core::doctor::Wants;
use rdma_core::{
    Attached, Failure, Mtu, PathOptions, QpNum, QueuePair, ReadyToSend, Region, RemoteMemory, SoftOptions,
    Worker,
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
    /// Memory that the peer writes into or reads from, and where its sends land.
    pub inbox: Region,
    /// Memory that this side writes and sends from, or reads into.
    pub outbox: Region,
    /// The TCP connection, for reports and the end.
    pub exchange: Exchange,
    /// The plan that runs, with what both sides and their devices agreed on.
    pub plan: Plan,
    /// Whether this side is the client.
    pub client: bool,
    /// The device, as it is printed.
    pub device: DeviceInfo,
    /// The device, to explain what it refuses.
    pub in_use: InUse,
    /// Between looks that find nothing.
    pub idle: Idle,
}

/// A queue pair, and the memory on both of its ends.
#[derive(Debug)]
pub struct Channel {
    /// The queue pair.
    pub queue_pair: QueuePair<ReadyToSend>,
    /// This channel's parts of the outbox and of the inbox begin here.
    pub offset: usize,
    /// The session's outbox, attached to the worker.
    pub local: Attached,
    /// The session's inbox, attached likewise: where receives land.
    pub landing: Attached,
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

/// Returns the queue pair that has this number. Completions of one come in runs, so `last` is looked at first.
pub(super) fn owner(queue_pairs: &[Channel], last: usize, number: QpNum) -> anyhow::Result<usize> {
    let is_owner = |index: &usize| queue_pairs[*index].queue_pair.num() == number;
    (last..queue_pairs.len()).chain(0..last).find(is_owner).context("a completion of an unknown queue pair")
}

/// Returns the error of a request that failed.
pub(super) fn failed(queue_pair: QpNum, failure: Failure) -> anyhow::Error {
    anyhow::Error::new(failure).context(format!("a request of queue pair {queue_pair} failed"))
}

/// Meets the other side, opens the device and connects the queue pairs; prints what perftest prints on the way.
///
/// # Errors
///
/// Whatever of that fails, with its mend.
pub fn connect(common: &Common, mut plan: Plan) -> anyhow::Result<Session> {
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
    let mtu = agree(common, &selected, &mut exchange, &mut plan)?;
    let mut wants = wants(common);
    // An inbox and an outbox; a registration that fits alone may be the one too many.
    wants.pin_bytes = channel_bytes(plan.size).saturating_mul(2 * u64::from(plan.queue_pairs));
    let in_use = InUse::new(&[&selected], wants);
    let side = Side::create(&selected, plan).map_err(|error| in_use.explain(error))?;
    let ours = side.endpoints(&selected)?;
    let theirs: Vec<Endpoint> = exchange.swap("addresses", &ours)?;
    ensure!(
        theirs.len() == ours.len(),
        "the other side has {} queue pairs, this one {}",
        theirs.len(),
        ours.len()
    );
    let path = PathOptions { gid_index: selected.gid.index, mtu: Some(mtu), ..side.path_options() };
    let mut session = side.connect(&theirs, &path, &selected, exchange, common, in_use)?;
    print_banner(&selected, &session)?;
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
    let soft = SoftOptions { address: local, wire: common.wire.into(), ..SoftOptions::default() };
    let wanted = common.device.as_deref().unwrap_or("auto");
    let selected = NcclOptions::default()
        .select(wanted, soft, common.gid_index)
        .map_err(|error| doctor::explain_choice(error, wanted, &wants(common)))?;
    common.wire.suits(&selected)?;
    Ok(selected)
}

/// Returns the wants that the flags tell of.
fn wants(common: &Common) -> Wants {
    let mut wants = Wants::default();
    wants.gid_index = common.gid_index;
    wants
}

/// Holds the flags against the other side's, and takes the lesser of what both devices can.
fn agree(
    common: &Common,
    selected: &SelectedDevice,
    exchange: &mut Exchange,
    plan: &mut Plan,
) -> anyhow::Result<Mtu> {
    let mtu = own_mtu(common, selected)?;
    let reads = own_reads(plan, selected)?;
    let hello = Hello {
        test: plan.test,
        size: plan.size,
        all: plan.all,
        iters: plan.iters,
        queue_pairs: plan.queue_pairs,
        mtu: mtu.bytes().unwrap_or(0),
        reads,
        rx_depth: plan.rx_depth,
        wire: match (selected.context.is_soft(), common.wire) {
            (false, _) => selected.gid.kind.to_string(),
            (true, WireName::Auto) => "software device".to_owned(),
            (true, WireName::Mapped) => "software device, mapped".to_owned(),
            (true, WireName::Tcp) => "software device, tcp".to_owned(),
        },
    };
    let theirs = exchange.swap("flags", &hello)?;
    hello.agree(&theirs)?;
    if plan.test.verb() == Verb::Read {
        let reads = reads.min(theirs.reads);
        ensure!(reads > 0, "one of the two devices takes no reads");
        plan.reads = Some(reads);
    }
    plan.rx_depth = plan.rx_depth.min(theirs.rx_depth).max(1);
    let theirs =
        Mtu::from_bytes(theirs.mtu).with_context(|| format!("the other side has no MTU ({})", theirs.mtu))?;
    Ok(mtu.min(theirs))
}

fn own_mtu(common: &Common, selected: &SelectedDevice) -> anyhow::Result<Mtu> {
    let active = selected.port.active_mtu;
    let Some(bytes) = common.mtu else { return Ok(active) };
    Mtu::from_bytes(bytes).filter(|mtu| *mtu <= active).with_context(|| {
        format!(
            "-m {bytes} is above the active MTU of {}, {active}; raise its interface's MTU",
            selected.context.name()
        )
    })
}

fn own_reads(plan: &Plan, selected: &SelectedDevice) -> anyhow::Result<u8> {
    let most = selected.context.attributes()?.max_qp_rd_atom;
    let reads = plan.reads.unwrap_or(most);
    ensure!(
        reads <= most,
        "-o {reads} is above what {} takes, {most} reads of a queue pair; lower it, or leave it out",
        selected.context.name()
    );
    Ok(reads)
}

fn print_banner(selected: &SelectedDevice, session: &Session) -> anyhow::Result<()> {
    output::say(refused_lines(" ", &Refused::all(&selected.refused)))?;
    output::say(banner::block(&session.plan, &session.device, session.client))
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
