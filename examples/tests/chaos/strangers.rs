//! Strangers that connect to the port where a job meets and say nothing: who belongs there joins as fast as ever.

use std::collections::VecDeque;
use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::common::{LONG, Running, TOKEN, free_port, start_with};
use crate::{Over, alone, is_full, slack};

const ALLREDUCE: &str = env!("CARGO_BIN_EXE_allreduce");
const KVCACHE: &str = env!("CARGO_BIN_EXE_kvcache_transfer");
const STRANGERS: usize = 1000;
/// Threads that connect them, each as many.
const THREADS: usize = 20;
/// Joins with strangers, and as many without; the middle one of each counts.
const JOINS: usize = 5;
const DELAY_MAX: Duration = Duration::from_millis(100);

/// Ranks of a job in a soak, and in another run; the descriptors that each may have (`ulimit -n`).
const RANKS_MAX: [u32; 2] = [8, 2];
const DESCRIPTORS: u32 = 256;

/// Processes: the one that waits at a port, and those that belong there.
struct Meeting {
    waits: fn(u16) -> Running,
    join: fn(u16) -> Vec<Running>,
}

fn ranks() -> u32 {
    RANKS_MAX[usize::from(!is_full())]
}

fn rank(rank: u32, port: u16) -> Running {
    let (rank, ranks, port) = (rank.to_string(), ranks().to_string(), port.to_string());
    let place = [
        ("RANK", rank.as_str()),
        ("WORLD_SIZE", &ranks),
        ("MASTER_ADDR", "127.0.0.1"),
        ("MASTER_PORT", &port),
    ];
    let line = format!("--nofile={DESCRIPTORS} {ALLREDUCE} --device soft -b 64 -e 64 -n 1 -w 0 -T 120");
    start_with("prlimit", &line, &place)
}

fn side(role: &str) -> Running {
    start_with(KVCACHE, &format!("--device soft --prompt 64 -T 120 {role}"), &[TOKEN])
}

const RANKS: Meeting = Meeting {
    waits: |port| rank(0, port),
    join: |port| (1..ranks()).map(|other| rank(other, port)).collect(),
};

const SIDES: Meeting = Meeting {
    waits: |port| side(&format!("--role decode --listen 127.0.0.1:{port}")),
    join: |port| vec![side(&format!("--role prefill --peer 127.0.0.1:{port}"))],
};

impl Meeting {
    /// How long all take from when the others are started, with so many strangers there before.
    fn take_place(&self, strangers: usize) -> Duration {
        let port = free_port();
        let waits = (self.waits)(port);
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        let listens = Instant::now() + LONG;
        while let Err(error) = TcpStream::connect(address) {
            assert!(Instant::now() < listens, "nobody listens: {error}");
            sleep(Duration::from_millis(5));
        }
        let silent = connect(address, strangers);
        let since = Instant::now();
        for joins in (self.join)(port) {
            joins.finish().expect(0);
        }
        waits.finish().expect(0);
        drop(silent);
        since.elapsed()
    }
}

/// Connects so many strangers, by several threads, because the kernel lets a connection that meets a full backlog try
/// again only after a second.
fn connect(address: SocketAddr, strangers: usize) -> Vec<TcpStream> {
    let some = |strangers| (0..strangers).map(|_| TcpStream::connect(address).unwrap()).collect::<Vec<_>>();
    thread::scope(|scope| {
        let begun: Vec<_> = (0..THREADS).map(|_| scope.spawn(move || some(strangers / THREADS))).collect();
        begun.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    })
}

/// Does something while strangers keep coming to a port: silent ones that stay, and others that send what is no
/// message.
pub fn beside_strangers<T>(port: u16, meanwhile: impl FnOnce() -> T) -> T {
    const STAY_MAX: usize = 100;
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let flood = scope.spawn(|| {
            let (mut there, mut came) = (VecDeque::new(), 0_u32);
            while !over.load(Ordering::Relaxed) {
                // Nobody listens any more once the one that did is gone.
                if let Ok(mut stranger) = TcpStream::connect(("127.0.0.1", port)) {
                    came += 1;
                    if came % 2 == 0 {
                        let _ = stranger.write_all(&came.wrapping_mul(0x9e37_79b9).to_le_bytes().repeat(64));
                    }
                    there.push_back(stranger);
                }
                if there.len() > STAY_MAX {
                    there.pop_front();
                }
                sleep(Duration::from_millis(2));
            }
            came
        });
        let until = Over(&over);
        sleep(Duration::from_millis(50));
        let result = meanwhile();
        drop(until);
        assert!(flood.join().unwrap() > 0, "no stranger came");
        result
    })
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

/// With and without by turns, so that both meet the same machine.
fn assert_not_delayed(meeting: &Meeting) {
    let _alone = alone();
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }).unwrap();
    let (with, without): (Vec<_>, Vec<_>) =
        (0..JOINS).map(|_| (meeting.take_place(STRANGERS), meeting.take_place(0))).unzip();
    let (with, without) = (median(with), median(without));
    println!("joining takes {without:?}, and {with:?} beside {STRANGERS} strangers");
    assert!(with < without + slack(DELAY_MAX), "{without:?} without strangers, {with:?} with {STRANGERS}");
}

#[test]
fn a_thousand_silent_strangers_do_not_keep_a_rank_from_joining() {
    assert_not_delayed(&RANKS);
}

#[test]
fn a_thousand_silent_strangers_do_not_keep_prefill_from_decode() {
    assert_not_delayed(&SIDES);
}
