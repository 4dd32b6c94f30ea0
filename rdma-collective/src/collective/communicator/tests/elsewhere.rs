//! A neighbour on another host, whose death this kernel does not report: a process that claims to be there.

use std::process::{Child, Command, Stdio};

use super::*;

/// The address of the store, for the other rank.
const STORE: &str = "TEST_STORE";
const TOKEN: JobToken = JobToken::from_bytes([4; 16]);

fn communicator(address: std::net::SocketAddr, rank: u32) -> (Communicator, StoreClient) {
    let mut store = StoreClient::connect(Join { address, token: TOKEN, rank, world: 2 }, soon()).unwrap();
    // Neither the peer timeout nor an unanswered request ends a lane within the time of the test.
    let retry = rdma_core::RetryOptions {
        ack_timeout: rdma_core::AckTimeout::at_least(60 * SECOND),
        ..rdma_core::RetryOptions::default()
    };
    let options =
        EngineOptions { retry: Some(retry), peer_timeout: 600 * SECOND, ..EngineOptions::default() };
    let engine = Engine::new(&Device::soft(SoftOptions::default()).open().unwrap(), options).unwrap();
    if rank == 1 {
        engine.lock().move_elsewhere();
    }
    let comm = Communicator::new(&engine, &mut store, CommunicatorOptions::default(), soon()).unwrap();
    (comm, store)
}

fn reduce(comm: &mut Communicator) -> Result<(), CollectiveError> {
    comm.all_reduce(&mut vec![1.0_f32; 100_000], ReduceOp::Sum, Deadline::after(60 * SECOND))
}

#[test]
#[ignore = "the rank that the other tests start"]
fn rank_1() {
    let (mut comm, mut store) = communicator(std::env::var(STORE).unwrap().parse().unwrap(), 1);
    reduce(&mut comm).unwrap();
    store.set("reduced", b"", soon()).unwrap();
    thread::sleep(120 * SECOND);
}

/// Rank 0, and the process of rank 1, after their first reduction.
fn meet() -> (Communicator, Child) {
    let server = StoreServer::bind("127.0.0.1:0".parse().unwrap(), StoreOptions::new(TOKEN, 2)).unwrap();
    let address = server.address();
    let mut command = Command::new(std::env::current_exe().unwrap());
    let test = concat!(module_path!(), "::rank_1");
    let test = test.split_once("::").unwrap().1;
    command.args(["--ignored", "--exact", test]).env(STORE, address.to_string()).stdout(Stdio::null());
    let child = command.spawn().unwrap();
    let (mut comm, mut store) = communicator(address, 0);
    reduce(&mut comm).unwrap();
    store.get("reduced", soon()).unwrap();
    (comm, child)
}

fn assert_disconnected(error: &CollectiveError) {
    let CollectiveError::PeerFailed { rank: 1, cause: LaneFailure::Disconnected, .. } = error else {
        panic!("{error}");
    };
}

#[test]
fn a_death_on_another_host_ends_the_operation_under_way_at_once() {
    let (mut comm, mut child) = meet();
    let killer = thread::spawn(move || {
        thread::sleep(SECOND / 5);
        child.kill().unwrap();
        child.wait().unwrap();
    });
    assert_disconnected(&reduce(&mut comm).unwrap_err());
    killer.join().unwrap();
}

#[test]
fn a_death_on_another_host_is_known_between_operations() {
    let (comm, mut child) = meet();
    assert!(comm.failure(Deadline::after(SECOND / 5)).is_none());
    child.kill().unwrap();
    child.wait().unwrap();
    assert_disconnected(&comm.failure(soon()).unwrap());
}
