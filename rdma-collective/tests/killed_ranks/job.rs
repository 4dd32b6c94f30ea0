//! Job of ranks that are processes of this host, of which one is killed or stopped.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, TcpListener};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use rdma_collective::bootstrap::JobToken;
use rustix::process::{Pid, Signal, kill_process};

use crate::Case;
use crate::rank::{MEET_WITHIN, POINTS, Point, STAYS_AT, WIRE};

/// The last line of each rank.
const SILENT: &str = "silent";
/// Far beyond what a round takes.
const PATIENCE: Duration = Duration::from_secs(60);

/// The end of a rank, in its words.
#[derive(Debug, Clone)]
pub struct Ended {
    pub at: Instant,
    /// The ranks that it names as those at fault, and its error; `None` if it has ended well.
    pub error: Option<(Vec<u32>, String)>,
}

/// The news of a rank.
#[derive(Debug, Clone, Default)]
pub struct News {
    pub point: Option<Point>,
    pub ended: Option<Ended>,
    /// The words in which it says what it keeps.
    kept: Option<String>,
    /// Whether it says nothing more.
    is_silent: bool,
}

pub struct Job {
    token: String,
    port: u16,
    ranks: Vec<Child>,
    lines: Receiver<(usize, Instant, String)>,
    pub news: Vec<News>,
}

impl Job {
    pub fn start(case: &Case) -> Self {
        let token = JobToken::random().unwrap().to_hex();
        let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = free.local_addr().unwrap().port();
        drop(free);
        let (sender, lines) = channel();
        let start = |rank: u32| {
            let mut command = Command::new(std::env::current_exe().unwrap());
            command.args(["--exact", "rank::one_rank", "--ignored", "--nocapture"]);
            command.env("RANK", rank.to_string()).env("WORLD_SIZE", case.ranks.to_string());
            command.env("MASTER_ADDR", "127.0.0.1").env("MASTER_PORT", port.to_string());
            command.env("RDMA_JOB_TOKEN", &token).env(WIRE, case.wire);
            command.env(MEET_WITHIN, case.meet_within().as_millis().to_string());
            if case.stays_at_point(rank) {
                command.env(STAYS_AT, format!("{:?}", case.phase.point()));
            }
            let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
            listen(rank as usize, &mut child, sender.clone());
            child
        };
        let ranks = (0..case.ranks).map(start).collect();
        Self { token, port, ranks, lines, news: vec![News::default(); case.ranks as usize] }
    }

    /// Hears the ranks until `until` is so.
    pub fn hear(&mut self, what: &str, until: impl Fn(&[News]) -> bool) {
        let patience = Instant::now() + PATIENCE;
        while !until(&self.news) {
            let left = patience.saturating_duration_since(Instant::now());
            let Ok((rank, at, line)) = self.lines.recv_timeout(left) else {
                panic!("{what} for {PATIENCE:?}: {:?}", self.news)
            };
            let news = &mut self.news[rank];
            if line == SILENT {
                news.is_silent = true;
            } else if line.starts_with("ended well") {
                news.ended = Some(Ended { at, error: None });
            } else if let Some((named, text)) =
                line.strip_prefix("ended [").and_then(|of| of.split_once("] "))
            {
                let named = named.split(',').flat_map(str::parse).collect();
                news.ended = Some(Ended { at, error: Some((named, text.to_owned())) });
            } else if line.starts_with("keeps ") {
                news.kept = Some(line);
            } else if let Some((_, point)) = line.split_once("at ") {
                news.point = POINTS.into_iter().find(|is| format!("{is:?}") == point).or(news.point);
            }
        }
    }

    /// Lets a rank go on that stays at a point.
    pub fn go_on(&mut self, rank: u32) {
        self.ranks[rank as usize].stdin.as_mut().unwrap().write_all(b"\n").unwrap();
    }

    pub fn signal(&self, rank: u32, signal: Signal) {
        let pid = Pid::from_child(&self.ranks[rank as usize]);
        kill_process(pid, signal).unwrap();
    }

    /// Waits until all but `victim` have ended, asserts that they keep nothing, and hears how far the victim had come.
    pub fn hear_survivors(&mut self, victim: u32) {
        let victim = victim as usize;
        self.hear("no end", |news| {
            (0..).zip(news).all(|(rank, news)| rank == victim || news.ended.is_some() && news.kept.is_some())
        });
        let _ = self.ranks[victim].kill();
        self.hear("no end of the victim", |news| news[victim].is_silent);
        for (rank, news) in (0..).zip(&self.news).filter(|(rank, _)| *rank != victim) {
            assert_eq!(news.kept.as_deref(), Some("keeps nothing"), "rank {rank}: {:?}", self.news);
        }
    }

    /// Ends all processes, and asserts that nothing of the job is left on this host.
    pub fn end(mut self) {
        for rank in &mut self.ranks {
            // A stopped process is killed, too.
            let _ = rank.kill();
            let _ = rank.wait();
        }
        let mark = format!("RDMA_JOB_TOKEN={}", self.token).into_bytes();
        for process in fs::read_dir("/proc").unwrap().flatten() {
            let environment = fs::read(process.path().join("environ")).unwrap_or_default();
            let is_of_job = environment.split(|byte| *byte == 0).any(|variable| variable == mark);
            assert!(!is_of_job, "a child is left: {}", process.path().display());
        }
        TcpListener::bind((Ipv4Addr::LOCALHOST, self.port)).expect("nobody listens at the job's port");
        let shared = fs::read_dir("/dev/shm").into_iter().flatten().flatten();
        let left: Vec<_> =
            shared.map(|file| file.file_name()).filter(|name| is_ours(&name.to_string_lossy())).collect();
        assert!(left.is_empty(), "{left:?} is left in /dev/shm");
    }
}

fn is_ours(name: &str) -> bool {
    name.contains("rdma")
}

impl Drop for Job {
    fn drop(&mut self) {
        for rank in &mut self.ranks {
            let _ = rank.kill();
            let _ = rank.wait();
        }
    }
}

/// Passes a rank's lines on, with the time of each.
fn listen(rank: usize, child: &mut Child, sender: Sender<(usize, Instant, String)>) {
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    thread::spawn(move || {
        for line in lines.map_while(Result::ok) {
            let _ = sender.send((rank, Instant::now(), line));
        }
        let _ = sender.send((rank, Instant::now(), SILENT.to_owned()));
    });
}
