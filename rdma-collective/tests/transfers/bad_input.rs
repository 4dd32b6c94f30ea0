//! Bad input gets a clear error, and nothing is lost: each test asserts the error, and that later work succeeds.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::thread;

use crate::common::{introduction, long};
use crate::pair::{CANARY, Pair, SHAPE, TOKEN, engine, pool, source_byte};
use rdma_collective::bootstrap::BootstrapError;
use rdma_collective::bootstrap::{Join, StoreClient, StoreOptions, StoreServer};
use rdma_collective::collective::CommunicatorError;
use rdma_collective::collective::ReduceOp;
use rdma_collective::collective::{Communicator, CommunicatorOptions};
use rdma_collective::engine::SetupError;
use rdma_collective::engine::{Engine, EngineOptions};
use rdma_collective::kv::LinkError;
use rdma_collective::kv::layout::{Layout, Shape};
use rdma_collective::kv::{Decode, LinkOptions, Pool, PoolUse, Prefill};
use rdma_collective::kv::{KvError, PoolError};
use rdma_collective::link::Meet;
use rdma_collective::link::{BlobError, HandshakeError};
use rdma_core::error::RegisterError;
use rdma_core::{Device, Memory, SoftOptions, Wire};

/// A change of a blob on its way.
type Damage = fn(Vec<u8>) -> Vec<u8>;

/// Offsets as `docs/wire.md` has them.
const BLOB_VERSION: usize = 4;
const BLOB_JOB: usize = 12;

fn truncated(mut blob: Vec<u8>) -> Vec<u8> {
    blob.truncate(blob.len() / 2);
    blob
}

fn altered(mut blob: Vec<u8>) -> Vec<u8> {
    blob[50] ^= 1;
    blob
}

fn of_another_version(mut blob: Vec<u8>) -> Vec<u8> {
    blob[BLOB_VERSION] += 1;
    blob
}

/// Sealed again: nothing but the job is wrong with it.
fn of_another_job(mut blob: Vec<u8>) -> Vec<u8> {
    blob[BLOB_JOB] ^= 1;
    let end = blob.len() - 4;
    let checksum = crc32c::crc32c(&blob[..end]).to_le_bytes();
    blob[end..].copy_from_slice(&checksum);
    blob
}

fn garbage(_: Vec<u8>) -> Vec<u8> {
    vec![0xee; 100_000]
}

/// An oversized one: its length says more than any blob has.
fn oversized(mut blob: Vec<u8>) -> Vec<u8> {
    blob[8..12].copy_from_slice(&u32::MAX.to_le_bytes());
    blob.resize(10_000, 0);
    blob
}

/// Rank 0 of two makes a communicator, and finds the other's blobs damaged. Both make one anew then, and use it.
fn ring_with(damage: Damage) -> SetupError {
    let server = StoreServer::bind("127.0.0.1:0".parse().unwrap(), StoreOptions::new(TOKEN, 2)).unwrap();
    let address = server.address();
    let join =
        move |rank| StoreClient::connect(Join { address, token: TOKEN, rank, world: 2 }, long()).unwrap();
    let again = |engine: &Engine, store: &mut StoreClient| {
        let options = CommunicatorOptions { epoch: 1, ..CommunicatorOptions::default() };
        let mut comm = Communicator::new(engine, store, options, long()).unwrap();
        let mut data = vec![1.0_f32; 1000];
        comm.all_reduce(&mut data, ReduceOp::Sum, long()).unwrap();
        assert!(data.iter().all(|sum| *sum == 2.0));
        comm.close(long()).unwrap();
    };
    let other = thread::spawn(move || {
        let mut store = join(1);
        // The second end introduces itself as the first one does, and passes on its blob.
        let told = introduction();
        store.all_gather("comm/world/0/ranks", &told, long()).unwrap();
        let blob = store.get("comm/world/0/0/1", long()).unwrap();
        store.set("comm/world/0/1/0", &damage(blob), long()).unwrap();
        store.barrier("comm/world/0/blobs", long()).unwrap();
        let told = store.all_gather("comm/world/0/connected", b"", long()).unwrap();
        assert!(!told[0].is_empty(), "rank 0 says that it has failed");
        again(&engine(Wire::Local, None), &mut store);
    });
    let (engine, mut store) = (engine(Wire::Local, None), join(0));
    let made = Communicator::new(&engine, &mut store, CommunicatorOptions::default(), long());
    let error = made.unwrap_err();
    again(&engine, &mut store);
    other.join().unwrap();
    let CommunicatorError::Setup(error) = error else { panic!("{error}") };
    error
}

/// Passes on what both sides say, but prefill's blob, which it damages. It ends with the connection.
fn between(listener: &TcpListener, decode: SocketAddr, damage: Damage) -> io::Result<()> {
    let (mut from, mut to) = (listener.accept()?.0, TcpStream::connect(decode)?);
    let mut greeting = [0; 24];
    from.read_exact(&mut greeting)?;
    to.write_all(&greeting)?;
    let (mut back, mut forth) = (to.try_clone()?, from.try_clone()?);
    let answers = thread::spawn(move || io::copy(&mut back, &mut forth));
    let mut blob = vec![0; 12];
    from.read_exact(&mut blob)?;
    let len = u32::from_le_bytes([blob[8], blob[9], blob[10], blob[11]]) as usize;
    blob.resize(len, 0);
    from.read_exact(&mut blob[12..])?;
    to.write_all(&damage(blob))?;
    to.shutdown(Shutdown::Write)?;
    let _ = answers.join();
    Ok(())
}

/// The ends of a link.
struct Ends {
    engines: [Engine; 2],
    source: Pool,
    destination: Pool,
}

impl Ends {
    fn new() -> Self {
        let engines = [engine(Wire::Local, None), engine(Wire::Local, None)];
        let source = pool(&engines[0], SHAPE, PoolUse::Source, source_byte);
        let destination = pool(&engines[1], SHAPE, PoolUse::Destination, |_, _, _| CANARY);
        Self { engines, source, destination }
    }

    /// Prefill goes to `to`, decode waits at `listener`.
    fn connect(
        &self,
        to: SocketAddr,
        listener: &TcpListener,
    ) -> (Result<Prefill, LinkError>, Result<Decode, LinkError>) {
        let options = LinkOptions::default();
        let [at_prefill, at_decode] = &self.engines;
        thread::scope(|scope| {
            let prefill = scope.spawn(|| {
                Prefill::new(at_prefill, &self.source, &Meet::Connect(to), &TOKEN, &options, long())
            });
            let meet = Meet::Accept(listener);
            let decode = Decode::new(at_decode, &self.destination, &meet, &TOKEN, &options, long());
            (prefill.join().unwrap(), decode)
        })
    }

    /// Two ends without a meddler between them connect, and move blocks.
    fn work(self, listener: &TcpListener) {
        let (prefill, decode) = self.connect(listener.local_addr().unwrap(), listener);
        let Self { source, destination, .. } = self;
        let pair = Pair { prefill: prefill.unwrap(), decode: decode.unwrap(), source, destination };
        let pairs = [(0, 23), (7, 7), (23, 1)];
        pair.transfer(1, &pairs);
        pair.assert_moved(&pairs);
    }
}

/// Decode of a link is handed a damaged blob; the same ends connect and transfer afterwards.
fn link_with(damage: Damage) -> SetupError {
    let (listener, proxy) =
        (TcpListener::bind("127.0.0.1:0").unwrap(), TcpListener::bind("127.0.0.1:0").unwrap());
    let (decode, to) = (listener.local_addr().unwrap(), proxy.local_addr().unwrap());
    let between = thread::spawn(move || between(&proxy, decode, damage));
    let ends = Ends::new();
    let (prefill, refused) = ends.connect(to, &listener);
    let error = prefill.unwrap_err();
    assert!(matches!(error, LinkError::Setup(SetupError::Handshake(HandshakeError::Lost { .. }))), "{error}");
    // Whoever is refused may be gone before all that was sent to it has arrived.
    let _ = between.join().unwrap();
    ends.work(&listener);
    let LinkError::Setup(error) = refused.unwrap_err() else { panic!("no lane was refused") };
    error
}

/// Decode of a link is handed a damaged blob, which is never the peer's error: the peer that comes next is served, and
/// blocks move.
fn link_past(damage: Damage) {
    let (listener, proxy) =
        (TcpListener::bind("127.0.0.1:0").unwrap(), TcpListener::bind("127.0.0.1:0").unwrap());
    let (decode, to) = (listener.local_addr().unwrap(), proxy.local_addr().unwrap());
    let between = thread::spawn(move || between(&proxy, decode, damage));
    let Ends { engines, source, destination } = Ends::new();
    let (options, [at_prefill, at_decode]) = (LinkOptions::default(), &engines);
    let connect = |to| Prefill::new(at_prefill, &source, &Meet::Connect(to), &TOKEN, &options, long());
    let (prefill, decode) = thread::scope(|scope| {
        let meet = Meet::Accept(&listener);
        let options = &options;
        let destination = &destination;
        let waits = scope.spawn(move || Decode::new(at_decode, destination, &meet, &TOKEN, options, long()));
        let error = connect(to).unwrap_err();
        let lost = matches!(error, LinkError::Setup(SetupError::Handshake(HandshakeError::Lost { .. })));
        assert!(lost, "{error}");
        let prefill = connect(decode).unwrap();
        (prefill, waits.join().unwrap().unwrap())
    });
    // Whoever is refused may be gone before all that was sent to it has arrived.
    let _ = between.join().unwrap();
    let pair = Pair { prefill, decode, source, destination };
    let pairs = [(0, 23), (7, 7), (23, 1)];
    pair.transfer(1, &pairs);
    pair.assert_moved(&pairs);
}

#[test]
fn a_blob_that_is_truncated() {
    let error = ring_with(truncated);
    assert!(matches!(error, SetupError::Blob(BlobError::Truncated { .. })), "{error}");
    assert!(error.to_string().contains("hand over all"), "{error}");
    link_past(truncated);
}

#[test]
fn a_blob_that_is_altered() {
    let error = ring_with(altered);
    assert!(matches!(error, SetupError::Blob(BlobError::Altered)), "{error}");
    assert!(error.to_string().contains("carry it as bytes"), "{error}");
    link_past(altered);
}

#[test]
fn a_blob_of_another_version() {
    let error = ring_with(of_another_version);
    assert!(matches!(error, SetupError::Blob(BlobError::OtherVersion { ours: 2, theirs: 3 })), "{error}");
    assert!(error.to_string().contains("run one release"), "{error}");
    // The damage breaks the checksum too, and nobody vouches for a version behind a wrong checksum.
    link_past(of_another_version);
}

#[test]
fn a_blob_of_another_job() {
    for error in [ring_with(of_another_job), link_with(of_another_job)] {
        assert!(matches!(error, SetupError::Blob(BlobError::OtherJob)), "{error}");
        assert!(error.to_string().contains("the same token"), "{error}");
    }
}

#[test]
fn garbage_and_oversized_frames_in_place_of_a_blob() {
    let error = ring_with(|_| vec![0xee; 60_000]);
    assert!(matches!(error, SetupError::Blob(BlobError::NotABlob)), "{error}");
    let error = ring_with(oversized);
    assert!(matches!(error, SetupError::Blob(BlobError::Altered)), "{error}");
    link_past(garbage);
    link_past(oversized);
}

#[test]
fn a_job_of_another_token_on_the_store() {
    let server = StoreServer::bind("127.0.0.1:0".parse().unwrap(), StoreOptions::new(TOKEN, 1)).unwrap();
    let join = Join { address: server.address(), token: TOKEN, rank: 0, world: 1 };
    let other = rdma_collective::bootstrap::JobToken::from_bytes([9; 16]);
    let error = StoreClient::connect(Join { token: other, ..join.clone() }, long()).unwrap_err();
    assert!(matches!(error, BootstrapError::OtherToken { .. }), "{error}");
    let mut store = StoreClient::connect(join, long()).unwrap();
    store.barrier("later", long()).unwrap();
}

#[test]
fn ranges_of_blocks_that_are_empty_unaligned_repeated_or_wrap() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let ends = Ends::new();
    let (prefill, decode) = ends.connect(listener.local_addr().unwrap(), &listener);
    let (prefill, decode) = (prefill.unwrap(), decode.unwrap());
    for blocks in [&[][..], &[3, 3], &[24], &[u32::MAX, 0]] {
        for error in
            [prefill.push(1, blocks, long()).unwrap_err(), decode.grant(1, blocks, long()).unwrap_err()]
        {
            assert!(matches!(error, KvError::Plan(_)), "{error}");
        }
    }
    let bytes = ends.source.layout().layer_block_bytes();
    for (offset, len) in [(u64::MAX, 2), (u64::MAX - 1, 2), (bytes, 1), (bytes - 1, 2)] {
        ends.source.write(0, 0, offset, &vec![1; len]).unwrap_err();
        ends.source.read(0, 0, offset, &mut vec![1; len]).unwrap_err();
    }
    // Odd ones that fit are fine.
    let mut odd = [0; 7];
    ends.source.read(2, 23, bytes - 7, &mut odd).unwrap();
    assert!((0..).zip(odd).all(|(at, byte)| byte == source_byte(2, 23, bytes - 7 + at)));
    let Ends { source, destination, .. } = ends;
    let pair = Pair { prefill, decode, source, destination };
    pair.transfer(1, &[(3, 24 - 1), (0, 0)]);
    pair.assert_moved(&[(3, 23), (0, 0)]);
}

#[test]
fn a_pool_larger_than_the_devices_or_the_systems_limits_is_refused_with_the_limit() {
    let bound = 1 << 16;
    let options = SoftOptions { max_mr_size: bound, ..SoftOptions::default() };
    let engine = Engine::new(&Device::soft(options).open().unwrap(), EngineOptions::default()).unwrap();
    let shape = |blocks| Layout::new(Shape { blocks, ..SHAPE }).unwrap();
    let most = (bound / shape(1).bytes()) as u32;
    let refused = |layout| Pool::allocate(&engine, &layout, PoolUse::Source).unwrap_err();
    let error = refused(shape(most + 1)).to_string();
    assert!(error.contains("max_mr_size") && error.contains(&bound.to_string()), "{error}");
    // A pebibyte: the address space has room for less, and the machine for much less.
    let blocks = ((1_u64 << 50)
        / Layout::new(Shape { block_tokens: 1 << 20, blocks: 1, ..SHAPE }).unwrap().bytes())
        as u32;
    let huge = Layout::new(Shape { block_tokens: 1 << 20, blocks, ..SHAPE }).unwrap();
    let error = refused(huge.clone());
    let PoolError::Register(RegisterError::BeyondSystem { len, limit, .. }) = &error else {
        panic!("{error}")
    };
    assert!(*len == huge.bytes() && limit < len);
    let memory = Memory::from(vec![7; shape(most + 1).bytes() as usize]);
    let given_back = Pool::register(&engine, memory, &shape(most + 1), PoolUse::Source).unwrap_err().object;
    assert!(given_back.iter().all(|byte| *byte == 7));
    Pool::allocate(&engine, &shape(most), PoolUse::Source).unwrap();
}
