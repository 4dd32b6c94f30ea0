//! The process that pushes for ever, whatever becomes of its pushes.

use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::io::{BufRead, BufReader, Lines, Write};
use std::pin::Pin;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::task::Poll;
use std::thread;
use std::time::Duration;

use rdma_collective::kv::{KvError, KvNode, NodeError, NodeOptions, Push};
use rdma_collective::link::LaneFailure;
use rdma_core::Deadline;
use rustix::process::{Pid, Signal, WaitOptions, getpid, kill_process, waitpid};

use crate::common::{block_on, long};
use crate::pair::{TOKEN, line, parse};
use crate::pools::{self, REQUEST};

const DEVICE: &str = "REVOCATION_DEVICE";
/// The name of decode's node.
pub const DECODE: &str = "d";
/// Requests that prefill has begun to push, so that one waits for each grant. As many as come to nothing in a row,
/// because decode took them back before prefill heard of them.
const AHEAD: usize = 32;

/// A prefill, as decode has it; killed when it is dropped.
pub struct Prefill {
    child: Child,
    hears: Lines<BufReader<ChildStdout>>,
    /// Requests that decode has granted.
    granted: u64,
    was_stopped: bool,
}

impl Prefill {
    pub fn start(device: &str) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "prefill::one_that_pushes_for_ever", "--ignored", "--nocapture"])
            .env(DEVICE, device)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let hears = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { child, hears, granted: 0, was_stopped: false }
    }

    /// The name of its node.
    pub fn name(&self) -> String {
        name(self.child.id())
    }

    /// Connects decode to it, and has it begin.
    pub fn begin(&mut self, decode: &KvNode) {
        let said = self.hears.by_ref().map_while(Result::ok).find_map(|line| parse(&line));
        decode.connect(&said.expect("prefill says where it is"), long()).wait().unwrap();
        self.child.stdin.take().unwrap().write_all(b"go\n").expect("prefill listens");
    }

    /// Whether its first link has been made, and has not ended.
    pub fn has_first_link(&self) -> bool {
        self.granted > 0 && !self.was_stopped
    }

    pub fn next_request(&mut self) -> u64 {
        self.granted += 1;
        self.granted - 1
    }

    fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    pub fn kill(&self) {
        kill_process(self.pid(), Signal::KILL).unwrap();
    }

    /// Stops it; it executes nothing more when this returns.
    pub fn stop(&mut self) {
        self.was_stopped = true;
        kill_process(self.pid(), Signal::STOP).unwrap();
        let (_, status) = waitpid(Some(self.pid()), WaitOptions::UNTRACED).unwrap().unwrap();
        assert!(status.stopped(), "prefill has ended: {status:?}");
    }

    pub fn resume(&self) {
        kill_process(self.pid(), Signal::CONT).unwrap();
    }
}

impl Drop for Prefill {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn name(pid: u32) -> String {
    format!("p{pid}")
}

#[test]
#[ignore = "one end of two: the other tests start it"]
fn one_that_pushes_for_ever() {
    // Not longer than the thread that started it, however that ends.
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL)).unwrap();
    let engine = pools::engine(&std::env::var(DEVICE).unwrap());
    let pool = pools::source(&engine);
    let listen = "127.0.0.1:0".parse().unwrap();
    let name = name(getpid().as_raw_nonzero().get().cast_unsigned());
    let node = KvNode::new(&engine, &[&pool], &TOKEN, &NodeOptions::new(&name, listen)).unwrap();
    print!("\n{}", line(&node.export()));
    std::io::stdout().flush().unwrap();
    std::io::stdin().lock().read_line(&mut String::new()).unwrap();
    while node.peers().is_empty() {
        thread::sleep(Duration::from_millis(1));
    }
    push_for_ever(&node);
}

fn push_for_ever(node: &KvNode) {
    let [place, packed] = pools::groups();
    let blocks = [&place[..REQUEST[0]], &packed[..REQUEST[1]]].concat();
    // No push ends because it has waited long.
    let never = Deadline::after(Duration::from_secs(7200));
    let push = |request| node.push(DECODE, request, &blocks, never).wait();
    let mut window = VecDeque::<(u64, Push)>::new();
    // Requests whose push has ended with its link; decode may not have granted them yet.
    let mut again = VecDeque::new();
    let mut next = 0;
    loop {
        while window.len() + again.len() < AHEAD {
            again.push_back(next);
            next += 1;
        }
        for request in again.drain(..) {
            match push(request) {
                Ok(push) => window.push_back((request, push)),
                // Decode has taken it back before.
                Err(NodeError::Transfer { source: KvError::PeerRevoked { .. }, .. }) => {}
                Err(_) => return,
            }
        }
        let (at, ended) = block_on(poll_fn(|context| {
            let looked = window.iter_mut().enumerate().find_map(|(at, (_, push))| {
                if let Poll::Ready(ended) = Pin::new(push).poll(context) { Some((at, ended)) } else { None }
            });
            looked.map_or(Poll::Pending, Poll::Ready)
        }));
        // Decode has ended the lane, and makes the next one, which tells prefill so.
        if let Err(error @ KvError::PeerFailed { cause: LaneFailure::Fenced, .. }) = &ended {
            panic!("this end was dropped under its pushes: {error}");
        }
        let (request, _) = window.remove(at).unwrap();
        if matches!(ended, Err(KvError::PeerFailed { .. } | KvError::LinkEnded { .. })) {
            again.push_back(request);
        } else {
            // Decode grants one after the other, so it is done with those before.
            window.retain(|(other, _)| *other > request);
        }
    }
}
