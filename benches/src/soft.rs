//! RDMA writes between two processes on the software device.

use std::collections::VecDeque;
use std::error::Error;
use std::time::{Duration, Instant};

use rdma_core::{
    Access, Context, Deadline, Device, Endpoint, Gid, Init, InitOptions, Lid, Mtu, PathOptions,
    ProtectionDomain, Psn, QpNum, QueuePair, QueuePairOptions, ReadyToSend, Region, RemoteKey, RemoteMemory,
    RetryOptions, SoftOptions, Wire, Work, Worker, WorkerOptions,
};

use crate::pair;

/// The result of a bench's functions.
pub type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// The GID that says where its device listens.
const GID_INDEX: u32 = 1;
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// An end, connected.
pub(crate) struct End {
    pub(crate) worker: Worker,
    pub(crate) qp: QueuePair<ReadyToSend>,
    /// The memory that the other end may write.
    pub(crate) region: Region,
    /// The region of the other end.
    pub(crate) peer: RemoteMemory,
    pub(crate) pd: ProtectionDomain,
    _context: Context,
}

/// Connects an end, with a region of `size` bytes and queues of `depth` requests. The other end does the same.
pub(crate) fn connect(wire: Wire, size: usize, depth: u32) -> Outcome<End> {
    let context = Device::soft(SoftOptions { wire, ..SoftOptions::default() }).open()?;
    let pd = context.alloc_pd()?;
    let mut worker = context.worker(WorkerOptions::default())?;
    let region = pd.alloc_region(size, Access::LOCAL_WRITE | Access::REMOTE_WRITE)?;
    let options = QueuePairOptions { max_send_wr: depth, max_recv_wr: depth, ..QueuePairOptions::default() };
    let qp = worker.create_queue_pair(&pd, &options)?;
    // A window is read and written by the peer.
    let init = InitOptions { access: Access::REMOTE_WRITE | Access::REMOTE_READ, ..InitOptions::default() };
    let qp: QueuePair<Init> = qp.init(&mut worker, &init).map_err(|refused| refused.error)?;
    let ours = line(&qp.endpoint(&worker, GID_INDEX)?, region.remote());
    let (endpoint, peer) = parse(&pair::introduce(&ours)?)?;
    let path = PathOptions { gid_index: GID_INDEX, ..PathOptions::default() };
    let qp = qp.connect(&mut worker, &endpoint, &path, &RetryOptions::default())?;
    Ok(End { worker, qp, region, peer, pd, _context: context })
}

fn line(endpoint: &Endpoint, memory: RemoteMemory) -> String {
    let gid = u128::from_be_bytes(endpoint.gid.0);
    let (num, psn, rkey) = (endpoint.qp_num.0, endpoint.psn.value(), memory.rkey.0);
    format!("{num} {psn} {gid} {} {} {rkey}", memory.addr, memory.len)
}

fn parse(line: &str) -> Outcome<(Endpoint, RemoteMemory)> {
    let fields = line.split_whitespace().map(str::parse).collect::<Result<Vec<u128>, _>>()?;
    let [num, psn, gid, addr, len, rkey] = fields[..] else {
        return Err(format!("the other end said `{line}`").into());
    };
    let endpoint = Endpoint {
        qp_num: QpNum(num as u32),
        psn: Psn::new(psn as u32),
        lid: Lid(0),
        gid: Gid(gid.to_be_bytes()),
        mtu: Mtu::MTU_4096,
    };
    Ok((endpoint, RemoteMemory { addr: addr as u64, len: len as u64, rkey: RemoteKey(rkey as u32) }))
}

/// Writes over TCP `messages` of `size` bytes after `warm_up` others, at most `depth` at a time, and
/// says the seconds from the first post to the last completion. Every write has a completion,
/// which is taken and counted.
///
/// # Errors
///
/// When the device refuses, or a write fails.
pub fn write(size: usize, messages: u64, warm_up: u64, depth: u32) -> Outcome<()> {
    let mut end = connect(Wire::Tcp, size, depth)?;
    let source = end.worker.attach(&end.region);
    let mut seconds = 0.0;
    for count in [warm_up, messages] {
        let (mut posted, mut completed) = (0, 0);
        let mut waiting = VecDeque::with_capacity(depth as usize);
        let begin = Instant::now();
        let mut deadline = Deadline::after(PATIENCE);
        while completed < count {
            while posted < count && posted - completed < u64::from(depth) {
                let id = end.worker.post(&end.qp, Work::write(source.range(0, size), end.peer))?;
                waiting.push_back(id);
                posted += 1;
            }
            match end.worker.poll()? {
                Some(done) => {
                    done.result?;
                    if waiting.pop_front() != Some(done.id) {
                        return Err("a completion out of order".into());
                    }
                    completed += 1;
                    deadline = Deadline::after(PATIENCE);
                }
                None if deadline.expired() => return Err("no completion for a minute".into()),
                None => std::thread::yield_now(),
            }
        }
        seconds = begin.elapsed().as_secs_f64();
    }
    pair::say(&seconds.to_string())?;
    Ok(())
}

/// Is written to over TCP. Its thread sleeps, as with a NIC; or it polls, when `poll` says so.
///
/// # Errors
///
/// When the device refuses.
pub fn be_written(size: usize, poll: bool) -> Outcome<()> {
    let mut end = connect(Wire::Tcp, size, 1)?;
    if poll {
        std::thread::scope(|scope| -> Outcome<()> {
            let parent = scope.spawn(pair::stay);
            while !parent.is_finished() {
                if end.worker.poll()?.is_none() {
                    std::thread::yield_now();
                }
            }
            Ok(())
        })
    } else {
        Ok(pair::stay()?)
    }
}
