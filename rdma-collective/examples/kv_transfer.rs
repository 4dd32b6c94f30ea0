//! Moves KV-cache blocks from a prefill to a decode. Here both run in one process; in production on any two hosts.

use std::error::Error;
use std::net::{SocketAddr, TcpListener};
use std::thread;
use std::time::Duration;

use rdma_collective::bootstrap::JobToken;
use rdma_collective::engine::{Engine, EngineOptions};
use rdma_collective::kv::layout::{Layout, Model, Order};
use rdma_collective::kv::{Decode, LinkOptions, Pool, PoolUse, Prefill};
use rdma_collective::link::Meet;
use rdma_core::{Deadline, Device, SoftOptions};

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

fn main() -> Outcome<()> {
    let deadline = Deadline::after(Duration::from_secs(30));
    let (token, listener) = (JobToken::random()?, TcpListener::bind("127.0.0.1:0")?);
    let address = listener.local_addr()?;
    let prefill = thread::spawn(move || prefill(address, token, deadline));

    let (engine, pool) = pool(PoolUse::Destination)?;
    let meet = Meet::Accept(&listener);
    let decode = Decode::new(&engine, &pool, &meet, &token, &LinkOptions::default(), deadline)?;
    // Blocks 0, 5 and 6 of this pool shall receive the blocks of request 7.
    let received = decode.grant(7, &[0, 5, 6], deadline)?.wait()?;
    assert!(received.verdicts.all_valid());
    let mut found = [0; 6];
    pool.read(0, 0, 0, &mut found)?;
    assert_eq!(&found, b"tokens");
    let ms = received.elapsed.as_secs_f64() * 1e3;
    println!("{} bytes in {ms:.1} ms ({})", received.bytes, decode.peer_access());
    prefill.join().map_err(|_| "the prefill panicked")?
}

fn prefill(decode: SocketAddr, token: JobToken, deadline: Deadline) -> Outcome<()> {
    let (engine, pool) = pool(PoolUse::Source)?;
    pool.write(0, 3, 0, b"tokens")?;
    let meet = Meet::Connect(decode);
    let prefill = Prefill::new(&engine, &pool, &meet, &token, &LinkOptions::default(), deadline)?;
    prefill.push(7, &[3, 1, 2], deadline)?.wait()?;
    Ok(())
}

fn pool(purpose: PoolUse) -> Outcome<(Engine, Pool)> {
    let engine = Engine::new(&Device::soft(SoftOptions::default()).open()?, EngineOptions::default())?;
    let layout = Layout::new(Model::DEEPSEEK_V3.shape(16, 8, Order::LayerBlockPart))?;
    Ok((engine.clone(), Pool::allocate(&engine, &layout, purpose)?))
}
