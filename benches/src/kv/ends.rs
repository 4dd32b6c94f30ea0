//! Both ends of the transfers of a case. Each side has all of its ranks in one process, over one engine.

use std::net::{SocketAddr, TcpListener};
use std::time::Duration;

use rdma_collective::bootstrap::JobToken;
use rdma_collective::engine::{Engine, EngineOptions};
use rdma_collective::kv::layout::TensorParallel;
use rdma_collective::kv::plan::sources;
use rdma_collective::kv::{Decode, LinkOptions, Pool, PoolUse, Prefill, Sources};
use rdma_collective::link::Meet;
use rdma_core::{Deadline, Device, Memory, SoftOptions, Wire};

use super::{Case, MODEL, list};
use crate::pair;
use crate::samples::median_of;
use crate::soft::Outcome;

/// The longest that anything may take.
const LIMIT: Duration = Duration::from_secs(120);
/// Both ends are processes of this command.
const TOKEN: JobToken = JobToken::from_bytes([7; 16]);
const SENT: u8 = 1;
const BEFORE: u8 = 2;

/// The ranks of one side.
struct Side {
    engine: Engine,
    pools: Vec<Pool>,
}

impl Side {
    fn new(wire: Wire, case: Case, side: usize) -> Outcome<Self> {
        let context = Device::soft(SoftOptions { wire, ..SoftOptions::default() }).open()?;
        let engine = Engine::new(&context, EngineOptions::default())?;
        let (purpose, byte) = [(PoolUse::Source, SENT), (PoolUse::Destination, BEFORE)][side];
        let pools = (0..case.sizes()[side]).map(|rank| {
            let layout = case.layout(side, rank)?;
            let tensors = layout.tensors().map(|tensor| Memory::allocate(tensor.len as usize));
            let tensors = tensors.collect::<Result<_, _>>()?;
            let pool = Pool::register_tensors(&engine, tensors, &layout, purpose);
            let pool = pool.map_err(|refused| refused.error)?;
            fill(&pool, byte)?;
            Ok(pool)
        });
        let pools = pools.collect::<Outcome<_>>()?;
        Ok(Self { engine, pools })
    }
}

/// The links of a case in the order in which both ends make them: ranks of prefill and of decode.
fn links(case: Case) -> Outcome<Vec<[u32; 2]>> {
    let [prefill, size] = case.sizes();
    let mut links = Vec::new();
    for rank in 0..size {
        let heard = sources(MODEL.attention, prefill, TensorParallel { rank, size })?;
        links.extend(heard.into_iter().map(|from| [from, rank]));
    }
    Ok(links)
}

/// Is decode: takes all blocks over and over, and says the seconds of once.
///
/// # Errors
///
/// A device that refuses, a transfer that fails, and a byte that has not arrived.
pub fn receive(wire: Wire, case: Case) -> Outcome<()> {
    let side = Side::new(wire, case, 1)?;
    let listener = TcpListener::bind("127.0.0.1:0")?;
    pair::introduce(&listener.local_addr()?.to_string())?;
    let (options, deadline) = (LinkOptions::default(), Deadline::after(LIMIT));
    let mut links_of: Vec<Vec<Decode>> = side.pools.iter().map(|_| Vec::new()).collect();
    for [_, rank] in links(case)? {
        let pool = &side.pools[rank as usize];
        let link = Decode::new(&side.engine, pool, &Meet::Accept(&listener), &TOKEN, &options, deadline)?;
        links_of[rank as usize].push(link);
    }
    let ranks = links_of.into_iter().map(|links| Sources::new(links).map_err(|refused| refused.error));
    let ranks = ranks.collect::<Result<Vec<_>, _>>()?;
    let (blocks, mut request) = (list(1), 0);
    let seconds = median_of(|| {
        request += 1;
        let deadline = Deadline::after(LIMIT);
        let grants = ranks.iter().map(|rank| rank.grant(request, &blocks, deadline));
        for grant in grants.collect::<Result<Vec<_>, _>>()? {
            grant.wait()?;
        }
        Ok(())
    })?;
    drop(ranks);
    side.pools.iter().try_for_each(verify)?;
    pair::say(&seconds.to_string())?;
    Ok(())
}

fn fill(pool: &Pool, byte: u8) -> Outcome<()> {
    let bytes = vec![byte; pool.layout().layer_block_bytes() as usize];
    for (layer, block) in blocks_of(pool) {
        pool.write(layer, block, 0, &bytes)?;
    }
    Ok(())
}

fn verify(pool: &Pool) -> Outcome<()> {
    let mut bytes = vec![0; pool.layout().layer_block_bytes() as usize];
    for (layer, block) in blocks_of(pool) {
        pool.read(layer, block, 0, &mut bytes)?;
        if bytes.iter().any(|byte| *byte != SENT) {
            return Err(format!("block {block} of layer {layer} has not arrived").into());
        }
    }
    Ok(())
}

/// All blocks of all layers, each of which the request has.
fn blocks_of(pool: &Pool) -> impl Iterator<Item = (u32, u32)> + use<> {
    let (layers, blocks) = (pool.layout().layers(), pool.layout().blocks());
    (0..layers).flat_map(move |layer| (0..blocks).map(move |block| (layer, block)))
}

/// Is prefill: pushes all blocks, over and over, until decode has ended.
///
/// # Errors
///
/// A device that refuses, and a first transfer that fails.
pub fn send(wire: Wire, case: Case) -> Outcome<()> {
    let side = Side::new(wire, case, 0)?;
    let address: SocketAddr = pair::introduce("prefill")?.parse()?;
    let (options, deadline) = (LinkOptions::default(), Deadline::after(LIMIT));
    let mut all = Vec::new();
    for [rank, _] in links(case)? {
        let pool = &side.pools[rank as usize];
        all.push(Prefill::new(&side.engine, pool, &Meet::Connect(address), &TOKEN, &options, deadline)?);
    }
    let blocks = list(0);
    for request in 1.. {
        let deadline = Deadline::after(LIMIT);
        let pushes = all.iter().map(|link| link.push(request, &blocks, deadline));
        let sent = pushes
            .collect::<Result<Vec<_>, _>>()
            .and_then(|pushes| pushes.into_iter().try_for_each(|push| push.wait().map(drop)));
        match sent {
            Ok(()) => {}
            // Decode has what it wanted; its own look at the bytes says whether they came.
            Err(_) if request > 1 => break,
            Err(error) => return Err(error.into()),
        }
    }
    Ok(pair::stay()?)
}
