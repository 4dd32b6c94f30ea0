//! Two processes: this executable runs itself once more, as the peer.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rdma_core::{
    Access, AckTimeout, CompletionStatus, Endpoint, Gid, Init, Lid, Mtu, Psn, QpNum, RemoteKey, RemoteMemory,
    RetryOptions, Segment, Work,
};

use super::end::{self, End, soon};

pub const BYTES: usize = 8 << 20;

/// Encodes everything that the peer must know, as one line.
pub fn line(endpoint: &Endpoint, memory: RemoteMemory) -> String {
    let gid = u128::from_be_bytes(endpoint.gid.0);
    let (num, psn, rkey) = (endpoint.qp_num.0, endpoint.psn.value(), memory.rkey.0);
    format!("peer {num} {psn} {gid} {} {} {rkey}\n", memory.addr, memory.len)
}

/// Decodes such a line; `None` for any other.
pub fn parse(line: &str) -> Option<(Endpoint, RemoteMemory)> {
    let (_, fields) = line.split_once("peer ")?;
    let fields: Vec<u128> = fields.split_whitespace().map(|field| field.parse().unwrap()).collect();
    let endpoint = Endpoint {
        qp_num: QpNum(fields[0] as u32),
        psn: Psn::new(fields[1] as u32),
        lid: Lid(0),
        gid: Gid(fields[2].to_be_bytes()),
        mtu: Mtu::MTU_1024,
    };
    let rkey = RemoteKey(fields[5] as u32);
    Some((endpoint, RemoteMemory { addr: fields[3] as u64, len: fields[4] as u64, rkey }))
}

pub struct Peer {
    pub child: Child,
    pub endpoint: Endpoint,
    pub memory: RemoteMemory,
}

impl Peer {
    /// Starts the peer, and sends it the endpoint to connect to.
    pub fn start(ours: &Endpoint, memory: RemoteMemory) -> Self {
        Self::start_as("processes::the_peer_of_the_other_tests", ours, memory)
    }

    /// Starts the peer by another test than the one below.
    pub fn start_as(test: &str, ours: &Endpoint, memory: RemoteMemory) -> Self {
        Self::start_by(Command::new(std::env::current_exe().unwrap()), test, ours, memory)
    }

    /// Starts the peer by that command and test.
    pub fn start_by(mut command: Command, test: &str, ours: &Endpoint, memory: RemoteMemory) -> Self {
        let mut child = command
            .args(["--exact", test, "--ignored", "--nocapture"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        child.stdin.as_mut().unwrap().write_all(line(ours, memory).as_bytes()).unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let said = lines.map_while(Result::ok).find_map(|line| parse(&line));
        let (endpoint, memory) = said.expect("the peer says where it is");
        Self { child, endpoint, memory }
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Peer process: writes all of its memory to the other side at each message, until it is killed.
#[test]
#[ignore = "it is one end of two: the other tests start it"]
fn the_peer_of_the_other_tests() {
    serve(End::new());
}

/// The work of the peer.
pub fn serve(end: End<Init>) {
    let region = {
        let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
        end.pd.alloc_region(BYTES, access).unwrap()
    };
    print!("{}", line(&end.endpoint(), region.remote()));
    std::io::stdout().flush().unwrap();
    let mut said = String::new();
    std::io::stdin().read_line(&mut said).unwrap();
    let (endpoint, memory) = parse(&said).expect("the other end says where it is");
    let mut end = end.connect(&endpoint);
    let source = end.worker.attach(&region);
    loop {
        end.worker.post(&end.qp, Work::recv(Segment::Empty)).unwrap();
        match end.worker.wait(soon()) {
            Ok(done) if done.result.is_ok() => {}
            _ => return,
        }
        let len = memory.len as usize;
        end.transfer(Work::write(source.range(0, len), memory).with_imm(len as u32));
    }
}

#[test]
fn bytes_go_to_another_process_and_come_back() {
    let idle = End::new();
    let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
    let region = idle.pd.alloc_region(BYTES, access).unwrap();
    let peer = Peer::start(&idle.endpoint(), region.remote());
    let mut end = idle.connect(&peer.endpoint);
    assert_eq!(end.qp.peer_access(&mut end.worker).unwrap(), crate::ACCESS);
    for round in 1..5 {
        end.transfer(Work::write(end.filled(BYTES, round), peer.memory));
        end.worker.post(&end.qp, Work::recv(Segment::Empty)).unwrap();
        end.worker.post(&end.qp, Work::send(Segment::Empty).unsignalled()).unwrap();
        let done = loop {
            let done = end.worker.wait(soon()).unwrap();
            if done.result.unwrap().imm.is_some() {
                break done;
            }
        };
        assert_eq!(done.result.unwrap().imm, Some(BYTES as u32));
        end::assert_holds(&region, 0..BYTES, round);
    }
}

#[test]
fn a_process_that_is_killed_is_silence_until_the_retries_are_used_up() {
    let mut idle = End::new();
    // Some four seconds of silence, so that a peer that shares the processors with other tests is not taken for dead.
    idle.retry = RetryOptions { ack_timeout: AckTimeout::new(18), retry_cnt: 3, ..RetryOptions::default() };
    let region = idle.pd.alloc_region(64, Access::LOCAL_WRITE).unwrap();
    let mut peer = Peer::start(&idle.endpoint(), region.remote());
    let mut end = idle.connect(&peer.endpoint);
    end.transfer(Work::write(end.filled(BYTES, 1), peer.memory));
    end.worker.post(&end.qp, Work::write(end.filled(BYTES, 2), peer.memory)).unwrap();
    peer.child.kill().unwrap();
    peer.child.wait().unwrap();
    let (mut status, since) = (end.status(), Instant::now());
    // Through mapped memory, writes succeed until this process notices the peer's end, because the pages stay mapped
    // here.
    while status == CompletionStatus::SUCCESS && since.elapsed() < Duration::from_secs(60) {
        end.worker.post(&end.qp, Work::write(end.filled(BYTES, 3), peer.memory)).unwrap();
        status = end.status();
    }
    end.worker.post(&end.qp, Work::write(end.filled(BYTES, 4), peer.memory)).unwrap();
    assert_eq!([status, end.status()], [CompletionStatus::RETRY_EXC_ERR, CompletionStatus::WR_FLUSH_ERR]);
}
