//! Strangers: connections that a test makes to every port of a process, and keeps as long as the process lets it.

use std::collections::{BTreeSet, VecDeque};
use std::fs;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

use rdma_collective::bootstrap::{JobToken, StoreOptions, StoreServer};

/// The job's token, which the strangers know: many jobs have one that anybody can compute.
pub const TOKEN: [u8; 16] = *b"no token was set";
/// Connections that one look at the ports makes, so that the job gets a processor in between.
const AT_ONCE: usize = 32;
const PAUSE: Duration = Duration::from_millis(5);
/// The pause once the crowd is there: fewer connections a second, because each costs the job and the test a processor.
const CALM: Duration = Duration::from_millis(20);
/// The time between two looks for new ports: a look reads all descriptors of the job, and takes as long as its work.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// The rate of a slow stranger: a byte a second.
const SLOW: Duration = Duration::from_secs(1);

/// The length of a Hello without its header.
const HELLO_BYTES: u32 = 44;

/// The header of a Hello to the store. Its version must be right, because otherwise the store reads nothing behind it.
fn of_store(length: u32) -> Vec<u8> {
    [&b"rcst"[..], &[2, 0, 1, 0, 0, 0, 0, 0], &length.to_le_bytes()].concat()
}

/// A way to be a stranger.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Says nothing.
    Idle,
    /// Says the beginning of a right greeting, a byte a second.
    Slow,
    /// Says what is no message.
    Garbage,
    /// Says nothing, and ends its direction.
    HalfOpen,
    /// Shows the token, and says nothing more or garbage.
    Token,
    /// Announces the greatest length that a frame can have.
    Huge,
}

impl Kind {
    pub const ALL: [Self; 6] =
        [Self::Idle, Self::Slow, Self::Garbage, Self::HalfOpen, Self::Token, Self::Huge];

    /// The first words of this kind at each of the three listeners; the strangers say them in turns.
    fn openings(self) -> Vec<Vec<u8>> {
        let hello = [&of_store(HELLO_BYTES)[..], &TOKEN].concat();
        let greeting = [&b"RDMH"[..], &[1, 0, 0, 0], &TOKEN].concat();
        let blob = |length: u32| [&b"RDML"[..], &[2, 0, 2, 0], &length.to_le_bytes()].concat();
        let wire = [&b"rdmasoft"[..], &[1, 0, 0, 0]].concat();
        match self {
            Self::Idle | Self::HalfOpen => vec![Vec::new()],
            Self::Slow => vec![hello, greeting, wire],
            Self::Garbage => vec![
                b"GET / HTTP/1.1\r\nHost: a\r\n\r\n".to_vec(),
                vec![0xff; 4096],
                vec![0; 64],
                [0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc].to_vec(),
                [greeting, vec![0x77; 3000]].concat(),
            ],
            Self::Token => vec![greeting.clone(), [greeting, blob(2048)].concat(), hello],
            Self::Huge => vec![
                [of_store(u32::MAX), vec![1; 4000]].concat(),
                [greeting, blob(u32::MAX), vec![1; 4000]].concat(),
                [wire, vec![0xff; 4000]].concat(),
            ],
        }
    }
}

/// A stranger that is connected, and what it has left to say.
struct Stranger {
    stream: TcpStream,
    rest: VecDeque<u8>,
}

impl Stranger {
    fn come(port: u16, kind: Kind, opening: &[u8]) -> Option<Self> {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).ok()?;
        stream.set_nonblocking(true).ok()?;
        let mut rest: VecDeque<u8> = VecDeque::new();
        match kind {
            Kind::Slow => rest.extend(opening),
            // A listener may have closed already.
            _ => drop(stream.write(opening)),
        }
        if kind == Kind::HalfOpen {
            let _ = stream.shutdown(Shutdown::Write);
        }
        Some(Self { stream, rest })
    }

    fn say_more(&mut self) {
        if let Some(byte) = self.rest.pop_front() {
            let _ = self.stream.write(&[byte]);
        }
    }
}

/// Does `work` while strangers of a kind come to every TCP port that the processes of `pids` listen at, and to `first`;
/// at each port up to `crowd` of them are there. `work` is given the number of those that have come.
pub fn beside(kind: Kind, crowd: usize, first: u16, pids: &PidList, work: impl FnOnce(&AtomicUsize)) {
    let (over, came) = (AtomicBool::new(false), AtomicUsize::new(0));
    thread::scope(|scope| {
        scope.spawn(|| flood(kind, crowd, first, pids, (&over, &came)));
        let _over = Over(&over);
        work(&came);
    });
}

/// The processes under attack, which a test adds as it starts them.
#[derive(Default)]
pub struct PidList(std::sync::Mutex<Vec<u32>>);

impl PidList {
    pub fn add(&self, pid: u32) {
        self.0.lock().unwrap().push(pid);
    }
}

/// Ends the flood though the test fails, because the thread is waited for.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn flood(kind: Kind, crowd: usize, first: u16, pids: &PidList, (over, came): (&AtomicBool, &AtomicUsize)) {
    let openings = kind.openings();
    let mut there: VecDeque<Stranger> = VecDeque::new();
    let (mut spoke, mut looked) = (Instant::now(), None::<Instant>);
    let mut ports = BTreeSet::new();
    while !over.load(Ordering::Relaxed) {
        if looked.is_none_or(|looked| looked.elapsed() > LOOK_EVERY) {
            ports = pids.0.lock().unwrap().iter().flat_map(|pid| listens_at(*pid)).collect();
            ports.insert(first);
            looked = Some(Instant::now());
        }
        for port in &ports {
            for _ in 0..AT_ONCE {
                let opening = &openings[came.load(Ordering::Relaxed) % openings.len()];
                // Nobody listens yet, or any more.
                let Some(stranger) = Stranger::come(*port, kind, opening) else { break };
                came.fetch_add(1, Ordering::Relaxed);
                there.push_back(stranger);
            }
        }
        let is_whole = there.len() > crowd * ports.len();
        while there.len() > crowd * ports.len() {
            there.pop_front();
        }
        if spoke.elapsed() > SLOW {
            spoke = Instant::now();
            there.iter_mut().for_each(Stranger::say_more);
        }
        sleep(if is_whole { CALM } else { PAUSE });
    }
}

/// The TCP ports at which a process listens; none once it has ended.
fn listens_at(pid: u32) -> Vec<u16> {
    let Ok(descriptors) = fs::read_dir(format!("/proc/{pid}/fd")) else { return Vec::new() };
    let sockets: BTreeSet<String> = descriptors
        .filter_map(|entry| fs::read_link(entry.ok()?.path()).ok()?.into_os_string().into_string().ok())
        .filter_map(|target| Some(target.strip_prefix("socket:[")?.strip_suffix(']')?.to_owned()))
        .collect();
    let table = fs::read_to_string("/proc/net/tcp").unwrap_or_default();
    let of_process = |line: &str| {
        let columns: Vec<&str> = line.split_whitespace().collect();
        // The state 0A is LISTEN; the second column ends in the port, and the tenth is the inode.
        let is_own = columns.get(3) == Some(&"0A") && sockets.contains(*columns.get(9)?);
        let port = columns.get(1)?.rsplit_once(':')?.1;
        is_own.then(|| u16::from_str_radix(port, 16).ok())?
    };
    table.lines().filter_map(of_process).collect()
}

#[test]
fn the_store_reads_what_strangers_say_as_far_as_the_token() {
    const OTHER_TOKEN: u8 = 2;
    let options = StoreOptions::new(JobToken::from_bytes([7; 16]), 1);
    let server = StoreServer::bind("127.0.0.1:0".parse().unwrap(), options).unwrap();
    let mut stream = TcpStream::connect(server.address()).unwrap();
    let hello = [&of_store(HELLO_BYTES)[..], &TOKEN, &[0; HELLO_BYTES as usize - TOKEN.len()]].concat();
    stream.write_all(&hello).unwrap();
    let mut refused = [0; 17];
    stream.read_exact(&mut refused).unwrap();
    assert_eq!(refused[16], OTHER_TOKEN, "{refused:?}");
}

#[test]
fn the_ports_of_a_process_are_found() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    assert!(listens_at(std::process::id()).contains(&port));
    drop(listener);
    assert!(!listens_at(std::process::id()).contains(&port));
}
