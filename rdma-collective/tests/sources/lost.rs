//! A rank of prefill, of four that are processes, is killed at a random moment of a transfer: the verdicts are true
//! byte for byte, and a replica of the rank brings the rest.

use std::io::{BufRead, BufReader, Lines, Write};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::thread;
use std::time::Duration;

use rdma_collective::engine::Engine;
use rdma_collective::kv::{BlockVerdict, Decode, KvError, LinkOptions, Pool, Prefill, Sources};
use rdma_collective::link::PeerName;
use rdma_core::Wire;
use rustix::process::Signal;

use super::common::long;
use super::pair::{TOKEN, engine, line, parse};
use super::ranks::{assert_moved, assert_true, room, source};

const RANK: &str = "SOURCE_RANK";
const WIRE: &str = "SOURCE_WIRE";
const RANKS: u32 = 4;
/// The kill comes within that much of the begin, and mostly before the end.
const SPAN: Duration = Duration::from_millis(12);

/// Blocks of the request: at prefill and at decode.
fn pairs() -> Vec<(u32, u32)> {
    (0..60).map(|at| (at, 63 - at)).collect()
}

/// A rank of prefill, as decode has it; killed when it is dropped.
struct Rank {
    child: Child,
    hears: Lines<BufReader<ChildStdout>>,
}

impl Rank {
    fn start(rank: u32, wire: Wire) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "lost::a_rank_of_prefill", "--ignored", "--nocapture"])
            .env(RANK, rank.to_string())
            .env(WIRE, format!("{wire:?}"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let hears = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { child, hears }
    }

    fn connect(&mut self, engine: &Engine, room: &Pool) -> Decode {
        let mut decode = Decode::prepare(engine, room, &TOKEN, &LinkOptions::default()).unwrap();
        let said = self.hears.by_ref().map_while(Result::ok).find_map(|line| parse(&line));
        let theirs = said.expect("the rank says what it is");
        self.say(&line(decode.export()));
        decode.connect(&theirs, long()).unwrap()
    }

    fn say(&mut self, line: &str) {
        self.child.stdin.as_mut().unwrap().write_all(line.as_bytes()).expect("the rank listens");
    }
}

impl Drop for Rank {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The next line of decode; `None` when it has ended.
fn hear() -> Option<String> {
    let mut said = String::new();
    let read = std::io::stdin().lock().read_line(&mut said);
    read.is_ok_and(|bytes| bytes > 0).then_some(said)
}

#[test]
#[ignore = "it is one end of two: the other test starts it"]
fn a_rank_of_prefill() {
    // Not longer than the thread that started it, however that ends.
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL)).unwrap();
    let rank = std::env::var(RANK).unwrap().parse().unwrap();
    let wire = if std::env::var(WIRE).unwrap() == "Tcp" { Wire::Tcp } else { Wire::Mapped };
    let engine = engine(wire, None);
    let pool = source(&engine, rank, RANKS);
    let mut prepared = Prefill::prepare(&engine, &pool, &TOKEN, &LinkOptions::default()).unwrap();
    print!("{}", line(prepared.export()));
    std::io::stdout().flush().unwrap();
    let Some(theirs) = hear() else { return };
    let prefill = prepared.connect(&parse(&theirs).unwrap(), long()).unwrap();
    let blocks: Vec<u32> = pairs().iter().map(|(from, _)| *from).collect();
    // The rank pushes what it is told, until it is killed or decode has ended.
    while let Some(said) = hear() {
        prefill.push(said.trim(), &blocks, long()).unwrap().wait().unwrap();
    }
}

/// SplitMix64.
fn random(seed: u64) -> u64 {
    let mixed = seed.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb) >> 8
}

/// Loses a rank, and returns how many of its blocks had arrived, of all layers.
fn round(wire: Wire, seed: u64) -> usize {
    let engine = engine(wire, None);
    let room = room(&engine);
    let mut ranks: Vec<_> = (0..RANKS).map(|rank| Rank::start(rank, wire)).collect();
    let links = ranks.iter_mut().map(|rank| rank.connect(&engine, &room)).collect();
    let sources = Sources::new(links).unwrap();
    let blocks: Vec<u32> = pairs().iter().map(|(_, to)| *to).collect();
    let grant = sources.grant(1, &blocks, long()).unwrap();
    ranks.iter_mut().for_each(|rank| rank.say("1\n"));
    let victim = (seed % u64::from(RANKS)) as usize;
    thread::sleep(Duration::from_nanos(random(seed) % SPAN.as_nanos() as u64));
    let pid = ranks[victim].child.id();
    ranks[victim].child.kill().unwrap();
    let (verdicts, lost) = match grant.wait() {
        Ok(received) => (received.verdicts, false),
        Err(error) => {
            let KvError::OfSource { peer, cause } = &*error.cause else { panic!("{error}") };
            assert!(matches!(peer, PeerName::Process { pid: of, .. } if *of == pid), "{error}");
            assert!(matches!(**cause, KvError::PeerFailed { .. }), "{error}");
            (error.verdicts, true)
        }
    };
    for rank in 0..RANKS {
        let part = verdicts.of_source(rank as usize).unwrap();
        assert!(part.all_valid() || lost && rank as usize == victim, "seed {seed}, rank {rank}: {part:?}");
        assert_true(&room, &pairs(), (rank, RANKS), part);
    }
    let arrived = verdicts.of_source(victim).unwrap().count(BlockVerdict::Valid);
    let verdicts = if lost {
        let mut links = sources.into_links();
        ranks[victim] = Rank::start(victim as u32, wire);
        links[victim] = ranks[victim].connect(&engine, &room);
        let sources = Sources::new(links).unwrap();
        let rest = sources.grant_missing(2, &verdicts, long()).unwrap();
        ranks[victim].say("2\n");
        rest.wait().unwrap().verdicts
    } else {
        verdicts
    };
    assert_moved(&room, &pairs(), &verdicts);
    arrived
}

#[test]
fn one_of_four_ranks_is_lost_and_a_replica_brings_the_rest() {
    const ROUNDS: usize = 50;
    let first = random(u64::from(std::process::id()));
    println!("seeds from {first}");
    let wires = [Wire::Mapped, Wire::Tcp];
    let rounds = (0..ROUNDS).map(|at| round(wires[at % 2], first.wrapping_add(at as u64)));
    println!("blocks of the lost rank that had arrived, of {}: {:?}", 60 * 8, rounds.collect::<Vec<_>>());
}
