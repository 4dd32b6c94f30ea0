//! [`Fixture`]: an object of every kind, for a child to call, and [`Busy`], what the parent uses meanwhile.

use std::process::Command;
use std::time::Duration;

use rdma_collective::bootstrap::{
    JobToken, Join, LocalRanks, SpawnError, StoreClient, StoreOptions, StoreServer,
};
use rdma_collective::collective::{Aborter, Communicator, CommunicatorOptions, Pending, ReduceOp, Tensor};
use rdma_collective::engine::{Engine, EngineOptions};
use rdma_collective::kv::{
    BlockShare, Decode, Grant, Joint, KvNode, LinkOptions, NodeOptions, Offer, Pool, PoolUse, Prefill,
    Prepared, Pull, Push, Sources, Verdicts,
};
use rdma_core::{Access, Context, Deadline, Device, DeviceList, Memory, Region, SoftOptions, Wire};

use crate::pair::{self, CANARY, SHAPE, TOKEN, source_byte};
use crate::world;

/// Far beyond a child's time.
pub fn soon() -> Deadline {
    Deadline::after(Duration::from_secs(300))
}

/// Objects of the parent, most of them of rank 0. A child gets a copy, which it may take apart.
pub struct Fixture {
    pub engine: Engine,
    pub comm: Communicator,
    /// The communicator of rank 1, which no child calls.
    other: Communicator,
    /// An all-reduce that rank 1 has not joined.
    pub pending: Pending<Tensor<f32>>,
    pub aborter: Aborter,
    pub tensor: Tensor<f32>,
    pub other_tensor: Tensor<f32>,
    pub region: Region,
    pub store: StoreClient,
    pub server: StoreServer,
    pub ranks: LocalRanks,
    pub prefill: Prefill,
    pub decode: Decode,
    pub source: Pool,
    pub destination: Pool,
    /// A block that a reader of the parent shares.
    pub share: BlockShare,
    /// A grant of request 1, which nobody pushes.
    pub grant: Grant,
    /// A push of request 2, which nobody grants.
    pub push: Push,
    pub offer: Offer,
    pub pull: Pull,
    /// The sources of another pool than `destination`.
    pub sources: Sources,
    /// A grant there, which nobody pushes.
    pub joint: Joint,
    /// The other end of `sources`.
    _other_prefill: Prefill,
    pub verdicts: Verdicts,
    pub prepared: Prepared<Decode>,
    pub blob: Vec<u8>,
    /// A node that sends to `other_node`, over a link that is up.
    pub node: KvNode,
    pub other_node: KvNode,
}

/// Communicators of both ranks and a KV link, on the engines of a [`Fixture`].
pub struct Busy {
    pub engines: [Engine; 2],
    pub comms: [Communicator; 2],
    pub prefill: Prefill,
    pub decode: Decode,
}

/// Makes the objects, on two software devices of this process.
pub fn on_wire(wire: Wire) -> (Fixture, Busy) {
    on(move |_| Device::soft(SoftOptions { wire, ..SoftOptions::default() }).open().unwrap())
}

/// Makes the objects on the device that `ROCE_DEVICE` names, opened once for each rank.
pub fn on_named_device() -> (Fixture, Busy) {
    let name = std::env::var("ROCE_DEVICE").expect("ROCE_DEVICE names the device to test");
    println!("device: {name}");
    on(move |_| DeviceList::probe().find(&name).unwrap().open().unwrap())
}

fn on(device: impl Fn(u32) -> Context + Send + Sync + 'static) -> (Fixture, Busy) {
    let made = world::each_rank_on(2, EngineOptions::default(), device, |mut rank| {
        let named =
            |name: &str| CommunicatorOptions { name: name.to_owned(), ..CommunicatorOptions::default() };
        let (comm, busy) = (rank.communicator(named("fixture")), rank.communicator(named("busy")));
        (rank.engine, comm, busy)
    });
    let [(engine, mut comm, busy), (their_engine, other, their_busy)] = made.try_into().ok().unwrap();
    let (busy_prefill, busy_decode) = linked(&engine, &their_engine);
    let busy = Busy {
        engines: [engine.clone(), their_engine.clone()],
        comms: [busy, their_busy],
        prefill: busy_prefill,
        decode: busy_decode,
    };
    let [source, destination] = pools(&engine, &their_engine);
    let options = LinkOptions::default();
    let (prefill, decode) = pair::link((&engine, &source), (&their_engine, &destination), &options);
    let verdicts = decode.grant(9, &[9], soon()).unwrap().revoke(soon()).unwrap();
    let blob = Prefill::prepare(&engine, &source, &TOKEN, &options).unwrap().export().to_vec();
    let (other_prefill, other_decode) = linked(&engine, &their_engine);
    let sources = Sources::new(vec![other_decode]).unwrap();
    let [node, other_node] = nodes(&engine, &their_engine);
    let token = JobToken::random().unwrap();
    let server = StoreServer::bind("127.0.0.1:0".parse().unwrap(), StoreOptions::new(token, 1)).unwrap();
    let join = Join { address: server.address(), token, rank: 0, world: 1 };
    let store = StoreClient::connect(join, soon()).unwrap();
    let tensor = comm.alloc::<f32>(4).unwrap();
    let memory = Memory::allocate(4 << 20).unwrap();
    let fixture = Fixture {
        aborter: comm.aborter(),
        tensor: comm.alloc(4).unwrap(),
        other_tensor: comm.alloc(4).unwrap(),
        pending: comm.start_all_reduce(tensor, ReduceOp::Sum, soon()).unwrap(),
        region: engine.register(memory, Access::LOCAL_WRITE | Access::REMOTE_WRITE).unwrap(),
        ranks: LocalRanks::spawn(1, |_| sleeper()).unwrap(),
        share: destination.share(&[22]).unwrap(),
        grant: decode.grant(1, &[0, 1], soon()).unwrap(),
        push: prefill.push(2, &[2], soon()).unwrap(),
        offer: prefill.offer(3, &[3], soon()).unwrap(),
        pull: decode.pull(4, &[4], soon()).unwrap(),
        joint: sources.grant(5, &[5], soon()).unwrap(),
        sources,
        _other_prefill: other_prefill,
        prepared: Decode::prepare(&their_engine, &destination, &TOKEN, &options).unwrap(),
        engine,
        comm,
        other,
        store,
        server,
        prefill,
        decode,
        source,
        destination,
        verdicts,
        blob,
        node,
        other_node,
    };
    (fixture, busy)
}

fn sleeper() -> Command {
    let mut command = Command::new("sleep");
    command.arg("600");
    command
}

fn pools(at_prefill: &Engine, at_decode: &Engine) -> [Pool; 2] {
    [
        pair::pool(at_prefill, SHAPE, PoolUse::SourceToPull, source_byte),
        pair::pool(at_decode, SHAPE, PoolUse::Destination, |_, _, _| CANARY),
    ]
}

fn linked(at_prefill: &Engine, at_decode: &Engine) -> (Prefill, Decode) {
    let [source, destination] = pools(at_prefill, at_decode);
    pair::link((at_prefill, &source), (at_decode, &destination), &LinkOptions::default())
}

/// Two nodes, "p" and "d", with the link from one to the other.
fn nodes(at_prefill: &Engine, at_decode: &Engine) -> [KvNode; 2] {
    let [source, destination] = pools(at_prefill, at_decode);
    let listen = "127.0.0.1:0".parse().unwrap();
    let node = |engine, pool: &Pool, name| {
        KvNode::new(engine, &[pool], &TOKEN, &NodeOptions::new(name, listen)).unwrap()
    };
    let nodes = [node(at_prefill, &source, "p"), node(at_decode, &destination, "d")];
    nodes[0].connect(&nodes[1].export(), soon()).wait().unwrap();
    transfer(&nodes, 1);
    nodes
}

/// Moves a block from one node to the other.
fn transfer([from, to]: &[KvNode; 2], request: u64) {
    std::thread::scope(|scope| {
        let pushed = scope.spawn(|| from.push("d", request, &[0], soon()).wait().unwrap().wait().unwrap());
        let received = to.grant("p", request, &[1], soon()).wait().unwrap().wait().unwrap();
        assert!(received.verdicts.all_valid());
        pushed.join().unwrap();
    });
}

impl Fixture {
    /// Uses what children had copies of: nothing of theirs may have touched it.
    pub fn assert_whole(self) {
        let Self { mut comm, mut other, pending, mut store, server, ranks, prefill, decode, .. } = self;
        let theirs = std::thread::spawn(move || {
            let mut data = [2.0_f32; 4];
            other.all_reduce(&mut data, ReduceOp::Sum, soon()).unwrap();
            other.barrier(soon()).unwrap();
            other.close(soon()).unwrap();
        });
        let sum = pending.wait(soon()).unwrap();
        assert_eq!(sum[..], [2.0; 4], "a child changed an operation");
        comm.barrier(soon()).unwrap();
        comm.close(soon()).unwrap();
        theirs.join().unwrap();
        let pushed = prefill.push(1, &[0, 1], soon()).unwrap();
        assert!(self.grant.wait().unwrap().verdicts.all_valid());
        pushed.wait().unwrap();
        assert!(decode.grant(2, &[2], soon()).unwrap().wait().unwrap().verdicts.all_valid());
        self.push.wait().unwrap();
        pair::assert_moved(&self.destination, &[(0, 0), (1, 1), (2, 2)]);
        transfer(&[self.node, self.other_node], 2);
        store.set("key", b"value", soon()).unwrap();
        assert_eq!(store.get("key", soon()).unwrap(), b"value");
        drop(store);
        server.close(soon()).unwrap();
        let ended = ranks.wait(Deadline::after(Duration::ZERO));
        assert!(
            matches!(ended, Err(SpawnError::DeadlineExceeded { .. })),
            "a child has ended a rank: {ended:?}"
        );
    }
}
