//! Device, buffer and queue pair of this side, from creation to the last message.

use std::thread::yield_now;
use std::time::{Duration, Instant};

use anyhow::{Context as _, anyhow, bail, ensure};
use rdma_core::{
    Access, AckTimeout, Attached, Completion, CompletionStatus, Context, Deadline, Device, DeviceList,
    Endpoint, Failure, Gid, Init, InitOptions, LinkLayer, Mtu, Opcode, PathOptions, PortAttributes, PortNum,
    QueuePair, QueuePairOptions, ReadyToSend, Region, RetryOptions, RnrRetry, SoftOptions, Work, Worker,
    WorkerOptions, gid,
};
use rustix::event::{PollFd, PollFlags};
use rustix::param::page_size;
use thiserror::Error;

use super::bytes;
use super::meeting::await_readable;
use super::rally::{Next, Rally};
use super::text::Address;
use crate::cli::Pingpong;

/// Polls without a completion between two looks at the clock.
const LOOKS: u32 = 1 << 10;

/// This side with its receives posted, before the other one is known.
pub struct Side {
    worker: Worker,
    queue_pair: QueuePair<Init>,
    buffer: Buffer,
    port: PortAttributes,
    gid_index: u32,
    /// This side's address, for the other one.
    pub address: Address,
}

/// This side connected to the other one.
pub struct Connected {
    worker: Worker,
    queue_pair: QueuePair<ReadyToSend>,
    buffer: Buffer,
    within: Duration,
}

/// The buffer that each message is sent from, and lands in.
struct Buffer {
    region: Region,
    attached: Attached,
    size: u32,
}

impl Side {
    /// Opens the device, fills the buffer, and posts the receives.
    pub fn create(flags: &Pingpong) -> anyhow::Result<Self> {
        let context = open(flags)?;
        let number = PortNum(flags.ib_port);
        let port = context.port(number)?;
        let pd = context.alloc_pd()?;
        let size = usize::try_from(flags.size)?;
        let region = pd.alloc_region(size, Access::LOCAL_WRITE)?;
        bytes::fill(&region, page_size(), flags.check && flags.host.is_some())?;
        let max_cqe = flags.rx_depth.saturating_add(2);
        let mut worker = context.worker(WorkerOptions { max_cqe, ..WorkerOptions::default() })?;
        let options = QueuePairOptions { max_send_wr: 1, max_recv_wr: flags.rx_depth, max_inline_data: 0 };
        let queue_pair = worker.create_queue_pair(&pd, &options)?;
        let init = InitOptions { port: number, access: Access::empty(), ..InitOptions::default() };
        let queue_pair = queue_pair.init(&mut worker, &init).map_err(|refused| refused.error)?;
        let attached = worker.attach(&region);
        for _ in 0..flags.rx_depth {
            worker.post_recv(&queue_pair, attached.range(0, size)).map_err(|refused| refused.error)?;
        }
        let gid_index = gid_index(&context, &port, flags.gid_index)?;
        let endpoint = queue_pair.endpoint(&worker, gid_index)?;
        let is_told = flags.gid_index.is_some() || port.link_layer == LinkLayer::ETHERNET;
        let address = Address {
            lid: endpoint.lid,
            qp_num: endpoint.qp_num,
            psn: endpoint.psn,
            gid: if is_told { endpoint.gid } else { Gid::default() },
        };
        let buffer = Buffer { region, attached, size: flags.size };
        Ok(Self { worker, queue_pair, buffer, port, gid_index, address })
    }

    /// Connects the queue pair to the other side's.
    pub fn connect(self, flags: &Pingpong, peer: &Address) -> anyhow::Result<Connected> {
        let Self { mut worker, queue_pair, buffer, port, gid_index, .. } = self;
        ensure!(
            port.link_layer != LinkLayer::ETHERNET || !peer.gid.is_zero(),
            "the peer sent no GID, and Ethernet has no other address: start it with -g INDEX, of a RoCE v2 GID"
        );
        let mtu = Mtu::from_bytes(flags.mtu).context("-m is no MTU")?;
        ensure!(
            mtu <= port.active_mtu,
            "-m {} is above the active MTU of {}, {}; lower it on both sides, or raise the MTU of its interface",
            flags.mtu,
            worker.context().name(),
            port.active_mtu
        );
        let endpoint = Endpoint {
            qp_num: peer.qp_num,
            psn: peer.psn,
            lid: peer.lid,
            gid: peer.gid,
            mtu: port.active_mtu,
        };
        let path = PathOptions {
            gid_index,
            mtu: Some(mtu),
            service_level: flags.service_level,
            max_dest_rd_atomic: 1,
            ..PathOptions::default()
        };
        // The C program's timers, so that a lost peer is noticed at the same time on both sides.
        let retry = RetryOptions {
            ack_timeout: AckTimeout::new(14),
            rnr_retry: RnrRetry::Unlimited,
            max_rd_atomic: 1,
            ..RetryOptions::default()
        };
        let queue_pair = queue_pair.connect(&mut worker, &endpoint, &path, &retry)?;
        Ok(Connected { worker, queue_pair, buffer, within: Duration::from_secs(flags.timeout_s) })
    }
}

impl Connected {
    /// Exchanges all messages, and returns how long that took.
    pub fn play(&mut self, flags: &Pingpong) -> anyhow::Result<Duration> {
        let client = flags.host.is_some();
        let mut rally = Rally::new(flags.iters, flags.rx_depth, client);
        if client {
            self.send()?;
        }
        let begin = Instant::now();
        let played = if flags.events { self.sleep_and_poll(&mut rally) } else { self.poll(&mut rally) };
        played.with_context(|| format!("after {} of {} exchanges", rally.exchanges(), flags.iters))?;
        Ok(begin.elapsed())
    }

    /// Ends the connection, so that the buffer is this side's alone, and returns the pages with wrong bytes.
    pub fn check(mut self) -> anyhow::Result<Vec<usize>> {
        let ended = self.worker.fence(self.queue_pair, Deadline::after(self.within));
        ended.map_err(|refused| refused.error)?;
        bytes::invalid_pages(&self.buffer.region, page_size())
    }

    fn poll(&mut self, rally: &mut Rally) -> anyhow::Result<()> {
        // The software device works on the cores of its processes.
        let lends = self.worker.context().is_soft();
        let (mut looks, mut silent_since) = (0, None);
        while !rally.has_ended() {
            if let Some(completion) = self.worker.poll()? {
                self.take(rally, completion)?;
                (looks, silent_since) = (0, None);
                continue;
            }
            looks += 1;
            if lends {
                yield_now();
            }
            if looks == LOOKS {
                let since = *silent_since.get_or_insert_with(Instant::now);
                ensure!(since.elapsed() < self.within, self.silence());
                looks = 0;
            }
        }
        Ok(())
    }

    fn sleep_and_poll(&mut self, rally: &mut Rally) -> anyhow::Result<()> {
        loop {
            while let Some(completion) = self.worker.poll()? {
                self.take(rally, completion)?;
            }
            if rally.has_ended() {
                return Ok(());
            }
            // Only now, because a send is often complete by then, and needs no event of its own. What arrived before
            // the request raises no event either, so the queue is polled after it.
            self.worker.request_notify()?;
            if let Some(completion) = self.worker.poll()? {
                self.take(rally, completion)?;
                continue;
            }
            // No deadline is kept, because a clock can take as long as all of this. An event comes with a completion.
            let came = await_readable(&PollFd::new(&self.worker.event_fd(), PollFlags::IN), self.within)?;
            ensure!(came, self.silence());
            self.worker.consume_events()?;
        }
    }

    fn silence(&self) -> String {
        format!(
            "the peer sent nothing for {:?}: it has ended, or was given another -n, -g or -m; raise --timeout if it only \
             is slow",
            self.within
        )
    }

    fn take(&mut self, rally: &mut Rally, completion: Completion) -> anyhow::Result<()> {
        let success = completion.result.map_err(|failure| self.explain(failure))?;
        let next = match success.opcode {
            Opcode::Send => rally.on_sent(),
            Opcode::Recv if success.bytes == self.buffer.size => rally.on_received(),
            Opcode::Recv => bail!(
                "the peer sends messages of {} bytes, and -s is {} here; give both sides the same -s",
                success.bytes,
                self.buffer.size
            ),
            other => bail!("the device completed a {other:?}, which nobody asked for"),
        };
        self.follow(next)
    }

    fn follow(&mut self, next: Next) -> anyhow::Result<()> {
        for _ in 0..next.receives {
            let range = self.buffer.attached.range(0, self.buffer.region.len());
            self.worker.post_recv(&self.queue_pair, range).map_err(|refused| refused.error)?;
        }
        if next.send { self.send() } else { Ok(()) }
    }

    fn send(&mut self) -> anyhow::Result<()> {
        let range = self.buffer.attached.range(0, self.buffer.region.len());
        self.worker.post(&self.queue_pair, Work::send(range)).map_err(|refused| refused.error)?;
        Ok(())
    }

    fn explain(&self, failure: Failure) -> anyhow::Error {
        let size = self.buffer.size;
        match failure.status {
            CompletionStatus::LOC_LEN_ERR => anyhow!(failure).context(format!(
                "the peer sends messages of more than {size} bytes, which -s is here; give both sides the same -s"
            )),
            CompletionStatus::REM_INV_REQ_ERR => anyhow!(failure).context(format!(
                "the peer takes messages of less than {size} bytes, which -s is here; give both sides the same -s"
            )),
            _ => anyhow!(failure).context("the peer has ended, or cannot be reached; its own message says more"),
        }
    }
}

/// The machine has no RDMA device.
#[derive(Debug, Error)]
#[error("no RDMA device ({reason}); --soft takes the software device")]
pub struct NoDevice {
    reason: String,
}

/// Opens the device that the flags name.
fn open(flags: &Pingpong) -> anyhow::Result<Context> {
    if let Some(address) = flags.soft.address {
        return Ok(Device::soft(SoftOptions { address, ..SoftOptions::default() }).open()?);
    }
    let list = DeviceList::probe();
    let device = match &flags.device {
        Some(name) => list.find(name)?,
        None => list.devices().first().ok_or_else(|| NoDevice {
            reason: list.unavailable().unwrap_or("the list is empty").to_owned(),
        })?,
    };
    Ok(device.open()?)
}

/// Returns the index that was asked for. Without one, Ethernet takes the best GID, and InfiniBand the first, which is
/// not used there.
fn gid_index(context: &Context, port: &PortAttributes, asked: Option<u32>) -> anyhow::Result<u32> {
    match asked {
        Some(index) => Ok(index),
        None if port.link_layer == LinkLayer::ETHERNET => {
            let preference = gid::Preference::new(port.link_layer);
            Ok(gid::choose(port.port, &context.gids(port.port)?, &preference)?.entry.index)
        }
        None => Ok(0),
    }
}
