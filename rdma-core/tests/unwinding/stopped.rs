//! A process that is stopped in the midst of a write, so that the memory it writes cannot be released.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rdma_core::{
    Access, Endpoint, Exported, Gid, Init, Lid, Mtu, Psn, QpNum, Region, RemoteKey, RemoteMemory, Work,
    quarantined,
};
use rustix::process::{Pid, Signal, kill_process};

use super::end::{End, soon};
use super::raw;
use super::subscriber::is_reached;

const BYTES: usize = 8 << 20;
/// Attempts at stopping the process in the midst of an access.
const ROUNDS: u64 = 400;

struct Peer(Child);

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn line(end: &Endpoint, memory: RemoteMemory) -> String {
    let gid = u128::from_be_bytes(end.gid.0);
    format!("peer {} {} {gid} {} {}\n", end.qp_num.0, end.psn.value(), memory.addr, memory.rkey.0)
}

fn parse(line: &str) -> Option<(Endpoint, RemoteMemory)> {
    let (_, fields) = line.split_once("peer ")?;
    let fields: Vec<u128> = fields.split_whitespace().map(|field| field.parse().unwrap()).collect();
    let (qp_num, psn) = (QpNum(fields[0] as u32), Psn::new(fields[1] as u32));
    let gid = Gid(fields[2].to_be_bytes());
    let endpoint = Endpoint { qp_num, psn, lid: Lid(0), gid, mtu: Mtu::MTU_1024 };
    let memory =
        RemoteMemory { addr: fields[3] as u64, len: BYTES as u64, rkey: RemoteKey(fields[4] as u32) };
    Some((endpoint, memory))
}

/// Starts a process that writes to `memory` again and again.
fn start(end: End<Init>, memory: RemoteMemory) -> (End, Peer) {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "stopped::a_writer", "--ignored", "--nocapture"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.as_mut().unwrap().write_all(line(&end.endpoint(), memory).as_bytes()).unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let peer = Peer(child);
    let (endpoint, _) = lines.map_while(Result::ok).find_map(|line| parse(&line)).expect("the writer's end");
    (end.connect(&endpoint), peer)
}

#[test]
#[ignore = "it is one end of two: the other tests start it"]
fn a_writer() {
    let end = End::new();
    let region = end.pd.alloc_region(BYTES, Access::LOCAL_WRITE).unwrap();
    print!("{}", line(&end.endpoint(), region.remote()));
    std::io::stdout().flush().unwrap();
    let mut said = String::new();
    std::io::stdin().read_line(&mut said).unwrap();
    let (endpoint, memory) = parse(&said).expect("the other end says where it is");
    let mut end = end.connect(&endpoint);
    let source = end.worker.attach(&region);
    loop {
        end.worker.post(&end.qp, Work::write(source.range(0, BYTES), memory)).unwrap();
        if !end.worker.wait(soon()).is_ok_and(|done| done.result.is_ok()) {
            return;
        }
    }
}

/// Drops by `release` beside a writer that is stopped at some point of a write, until the line says that something of
/// it was kept. Then the writer is ended, and what was quarantined must be released.
fn until_kept(mut release: impl FnMut(End, Region, Exported)) {
    for round in 0..ROUNDS {
        let end = End::new();
        let memory = raw::at_an_address(BYTES);
        let region = end.pd.register(memory, Access::LOCAL_WRITE | Access::REMOTE_WRITE).unwrap();
        let exported = end.pd.export(&region, Access::LOCAL_WRITE | Access::REMOTE_WRITE).unwrap();
        // Either key names the memory; the right that the peer uses is that of the export or of the region by turns.
        let told = if round % 2 == 0 { exported.remote() } else { region.remote() };
        let (end, peer) = start(end, told);
        let (mut first, deadline) = ([7], soon());
        while first == [7] {
            assert!(!deadline.expired(), "nothing is written");
            region.copy_out(0, &mut first).unwrap();
        }
        std::thread::sleep(Duration::from_micros(100 * (round % 16)));
        kill_process(Pid::from_child(&peer.0), Signal::STOP).unwrap();
        release(end, region, exported);
        let is_kept = is_reached();
        drop(peer);
        let deadline = soon();
        while quarantined().memories > 0 {
            assert!(!deadline.expired(), "memory of an ended process is kept");
            std::thread::sleep(Duration::from_millis(1));
        }
        if is_kept {
            return;
        }
    }
    panic!("no write was met");
}

pub fn quarantines_an_export() {
    until_kept(|end, region, exported| {
        drop(exported);
        drop((region, end));
    });
}

pub fn quarantines_a_region() {
    until_kept(|end, region, exported| {
        drop((exported, region));
        drop(end);
    });
}

pub fn leaks_a_queue_pair() {
    until_kept(|end, region, exported| {
        drop(end);
        drop((exported, region));
    });
}

pub fn quarantines_without_a_thread() {
    until_kept(|end, region, exported| {
        raw::crowded(|| drop((exported, region)));
        drop(end);
    });
}
