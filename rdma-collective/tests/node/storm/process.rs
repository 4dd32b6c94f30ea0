//! A process of the storm: a node that grants, or one that pushes, told by lines what to do.

use std::collections::BTreeMap;
use std::io::Write;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use rdma_collective::engine::{Engine, EngineOptions};
use rdma_collective::kv::layout::{Attention, Layout, Shape};
use rdma_collective::kv::{KvError, KvNode, NodeError, Pool, PoolUse};
use rdma_core::Deadline;
use rustix::process::Signal;

use super::{DEVICE, NAME};
use crate::common::random::Random;
use crate::common::{books, long, named_device, rdma_books};
use crate::job::options;
use crate::pair::{self, TOKEN, line, parse};

/// 16 KiB a layer.
const SHAPE: Shape = Shape {
    layers: 2,
    blocks: 128,
    block_tokens: 16,
    attention: Attention::Grouped { kv_heads: 4, head_dim: 64 },
    ..pair::SHAPE
};
/// Blocks of a request.
const BLOCKS: usize = 2;
/// Threads of a decode that each have a request under way.
const ASKERS: u64 = 2;

struct Member {
    /// Absent once the node has left.
    node: Mutex<Option<KvNode>>,
    pool: Pool,
    /// Whether the kernel keeps books on the device, which all processes share.
    has_nic: bool,
    free: Mutex<Vec<u32>>,
    /// Threads that push, and connect.
    busy: AtomicUsize,
    is_quiet: AtomicBool,
}

/// The deadline of a request.
fn soon() -> Deadline {
    Deadline::after(Duration::from_secs(20))
}

fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    // A test that has ended hears nothing more, and this process is killed then.
    let _ = writeln!(out, "\n{line}").and_then(|()| out.flush());
}

/// The bytes of one block of a request in one layer.
fn content(request: u64, layer: u32, place: usize) -> Vec<u8> {
    let mut random = Random::of(request ^ u64::from(layer) << 62 ^ (place as u64) << 60);
    let bytes = Layout::new(SHAPE).unwrap().layer_block_bytes();
    (0..bytes / 8).flat_map(|_| random.below(u64::MAX).to_le_bytes()).collect()
}

impl Member {
    fn new(name: &str, device: &str) -> Self {
        let purpose = if name.starts_with('p') { PoolUse::Source } else { PoolUse::Destination };
        // With the retries of the other tests a process that waits for a core would be lost.
        let engine = Engine::new(&named_device(device), EngineOptions::default()).unwrap();
        let pool = Pool::allocate(&engine, &Layout::new(SHAPE).unwrap(), purpose).unwrap();
        let node = KvNode::new(&engine, &[&pool], &TOKEN, &options(name)).unwrap();
        let free = Mutex::new((0..SHAPE.blocks).collect());
        let (node, busy, is_quiet) = (Mutex::new(Some(node)), AtomicUsize::new(0), AtomicBool::new(false));
        let has_nic = !engine.context().is_soft();
        Self { node, pool, has_nic, free, busy, is_quiet }
    }

    /// Calls the node, unless it has left. Nothing waits with a handle, so that the node ends when it leaves.
    fn with<T>(&self, call: impl FnOnce(&KvNode) -> T) -> Option<T> {
        self.node.lock().unwrap().as_ref().map(call)
    }

    fn peers(&self) -> Vec<String> {
        let peers = self.with(KvNode::peers).unwrap_or_default();
        peers.iter().map(ToString::to_string).collect()
    }

    /// Takes free blocks. Prefill may have to wait, because decode asks for more before the pushes that it has
    /// confirmed are found to have ended.
    fn take_blocks(&self) -> Vec<u32> {
        let patience = long();
        loop {
            let mut free = self.free.lock().unwrap();
            if let Some(at) = free.len().checked_sub(BLOCKS) {
                return free.split_off(at);
            }
            drop(free);
            assert!(!patience.expired(), "blocks of requests that have ended are never free");
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// Puts blocks back that the library must have freed.
    fn give_back(&self, blocks: Vec<u32>) {
        assert!(blocks.iter().all(|block| self.pool.held(*block).is_none()), "{blocks:?} are still held");
        self.free.lock().unwrap().extend(blocks);
    }

    /// Has blocks filled by a peer, and says what came of it.
    fn ask(&self, peer: &str, request: u64) {
        let blocks = self.take_blocks();
        match self.filled(peer, request, &blocks) {
            Some(Ok(())) => say(&format!("moved {peer} {request}")),
            Some(Err(error)) => say(&format!("failed {peer} {request} {error}")),
            None => {}
        }
        self.give_back(blocks);
    }

    fn filled(&self, peer: &str, request: u64, blocks: &[u32]) -> Option<Result<(), String>> {
        let begun = self.with(|node| node.grant(peer, request, blocks, soon()))?.wait();
        let grant = match begun {
            Ok(grant) => grant,
            Err(NodeError::Closed) => return None,
            Err(error) => return Some(Err(error.to_string())),
        };
        say(&format!("want {peer} {request}"));
        if let Err(error) = grant.wait() {
            return Some(Err(error.to_string()));
        }
        for (place, block) in blocks.iter().enumerate() {
            for layer in 0..SHAPE.layers {
                let expected = content(request, layer, place);
                let mut found = vec![0; expected.len()];
                self.pool.read(layer, *block, 0, &mut found).unwrap();
                assert!(found == expected, "wrong bytes of request {request}, from {peer}");
            }
        }
        Some(Ok(()))
    }

    /// Asks random peers, until it is to be quiet.
    fn ask_on(&self, seed: u64) {
        let mut random = Random::of(seed);
        while !self.is_quiet.load(Ordering::Relaxed) {
            match &self.peers()[..] {
                [] => thread::sleep(Duration::from_millis(1)),
                peers => self.ask(&peers[random.below(peers.len() as u64) as usize], random.below(u64::MAX)),
            }
        }
    }

    fn push(&self, peer: &str, request: u64) {
        let blocks = self.take_blocks();
        for (place, block) in blocks.iter().enumerate() {
            for layer in 0..SHAPE.layers {
                self.pool.write(layer, *block, 0, &content(request, layer, place)).unwrap();
            }
        }
        let begun = self.with(|node| node.push(peer, request, &blocks, soon()));
        let pushed = begun.map(|begun| begun.wait().map(|push| push.wait()));
        let failed = match pushed {
            None | Some(Ok(Ok(_)) | Err(NodeError::Closed)) => None,
            // Decode has said so, and why.
            Some(Ok(Err(KvError::PeerRevoked { .. }))) => None,
            Some(Ok(Err(error))) => Some(error.to_string()),
            Some(Err(error)) => Some(error.to_string()),
        };
        failed.into_iter().for_each(|error| say(&format!("unpushed {peer} {request} {error}")));
        self.give_back(blocks);
    }

    /// Connects to the blob of a peer.
    fn meet(&self, peer: &str, generation: &str, blob: &[u8]) {
        let Some(connecting) = self.with(|node| node.connect(blob, long())) else { return };
        match connecting.wait() {
            Ok(_) | Err(NodeError::Closed) => {}
            Err(error) => say(&format!("unmet {peer} {generation} {error}")),
        }
    }

    /// The books once nothing is under way and this node has so many peers.
    fn books(&self, peers: usize) -> String {
        let patience = long();
        while (self.busy.load(Ordering::SeqCst) > 0 || self.peers().len() != peers) && !patience.expired() {
            thread::sleep(Duration::from_millis(1));
        }
        let held = (0..SHAPE.blocks).filter(|block| self.pool.held(*block).is_some()).count();
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap().lines().count();
        let on_device = if self.has_nic { rdma_books() } else { BTreeMap::new() };
        format!("{} peers, {held} held, {:?} {on_device:?}; maps {maps}", self.peers().len(), books())
    }

    fn spawn(self: &Arc<Self>, work: impl FnOnce(&Self) + Send + 'static) {
        let member = Arc::clone(self);
        member.busy.fetch_add(1, Ordering::SeqCst);
        thread::spawn(move || {
            // A panic of a thread is the end of its process, which the test notices.
            let worked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| work(&member)));
            worked.unwrap_or_else(|_| std::process::exit(1));
            member.busy.fetch_sub(1, Ordering::SeqCst);
        });
    }
}

#[test]
#[ignore = "a process of the storm, which starts it"]
fn one_process() {
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL)).unwrap();
    let [name, device] = [NAME, DEVICE].map(|name| std::env::var(name).unwrap());
    let member = Arc::new(Member::new(&name, &device));
    say(line(&member.with(KvNode::export).unwrap()).trim());
    for told in std::io::stdin().lines().map_while(Result::ok) {
        let words: Vec<String> = told.split(' ').map(str::to_owned).collect();
        let number = |at: usize| words[at].parse::<u64>().unwrap();
        match &words[0][..] {
            "ask" => {
                member.is_quiet.store(false, Ordering::Relaxed);
                for asker in 0..ASKERS {
                    let seed = number(1) + asker;
                    member.spawn(move |member| member.ask_on(seed));
                }
            }
            "quiet" => member.is_quiet.store(true, Ordering::Relaxed),
            "meet" => member.spawn(move |member| member.meet(&words[1], &words[2], &parse(&told).unwrap())),
            "push" => {
                let request = number(2);
                member.spawn(move |member| member.push(&words[1], request));
            }
            "last" => {
                let request = number(2);
                member.spawn(move |member| {
                    let patience = long();
                    while !member.peers().contains(&words[1]) && !patience.expired() {
                        thread::sleep(Duration::from_millis(1));
                    }
                    member.ask(&words[1], request);
                });
            }
            "books" => say(&format!("books {}", member.books(number(1) as usize))),
            "leave" => break,
            other => panic!("{other:?}"),
        }
    }
    *member.node.lock().unwrap() = None;
    say("left");
    // Requests of the node that is gone end meanwhile.
    thread::sleep(Duration::from_millis(100));
    std::process::exit(0);
}
