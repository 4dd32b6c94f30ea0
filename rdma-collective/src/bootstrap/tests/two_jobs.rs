//! Two jobs at one port: their ranks never meet, and an error names the process that serves.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::net::{IpAddr, Ipv4Addr};

use super::*;
use crate::bootstrap::{MixedJobs, MixedJobsKind};

const HOST: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// Three ports that were free just now, below those that the kernel gives to connections.
fn ports() -> [u16; 3] {
    for _ in 0..100 {
        let first = 10_000 + (RandomState::new().build_hasher().finish() % 20_000) as u16;
        let ports = [first, first + 1, first + 2];
        if ports.iter().all(|port| TcpListener::bind((HOST, *port)).is_ok()) {
            return ports;
        }
    }
    panic!("no three free ports")
}

fn serve(ports: &[u16], world: u32, run: &str) -> Result<StoreServer, BootstrapError> {
    StoreServer::bind_run(HOST, ports, &StoreOptions::new(TOKEN, world), run, long())
}

fn find(ports: &[u16], rank: u32, world: u32, run: &str) -> Result<StoreClient, BootstrapError> {
    StoreClient::find_run(HOST, ports, (TOKEN, rank, world), run, long())
}

/// Fails unless the error names this process and this host, and `second` as the rank that came twice.
#[track_caller]
fn assert_two_jobs<T>(outcome: Result<T, BootstrapError>, second: u32) {
    let Err(error) = outcome else { panic!("two jobs have met") };
    let BootstrapError::Mixed(MixedJobs(MixedJobsKind::TwoJobs { rank, pid, host, .. })) = &error else {
        panic!("{error}")
    };
    let own = rustix::system::uname().nodename().to_string_lossy().into_owned();
    assert_eq!((*rank, *pid, host), (second, std::process::id(), &own), "{error}");
}

#[test]
fn a_second_rank_0_ends_a_job_whose_ranks_have_not_all_met() {
    let ports = ports();
    let _server = serve(&ports, 3, "").unwrap();
    let mut waits = find(&ports, 0, 3, "").unwrap();
    let mut busy = find(&ports, 1, 3, "").unwrap();
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| assert_two_jobs(waits.barrier("start", long()), 0));
        // The other one is most likely waiting by then; if not, the answer is the same.
        std::thread::sleep(SHORT);
        assert_two_jobs(serve(&ports, 3, ""), 0);
        waits.join().unwrap();
    });
    assert_two_jobs(busy.set("k", b"v", long()), 0);
    assert_two_jobs(find(&ports, 2, 3, ""), 0);
}

#[test]
fn a_job_whose_ranks_have_all_met_is_not_disturbed() {
    let ports = ports();
    let server = serve(&ports, 2, "").unwrap();
    let [mut first, mut other] = [0, 1].map(|rank| find(&ports, rank, 2, "").unwrap());
    assert_two_jobs(serve(&ports, 2, ""), 0);
    assert_two_jobs(find(&ports, 1, 2, ""), 1);
    first.set("k", b"v", long()).unwrap();
    assert_eq!(other.get("k", long()).unwrap(), b"v");
    drop((first, other));
    server.close(long()).unwrap();
}

#[test]
fn a_rank_that_comes_twice_ends_a_job_whose_ranks_have_not_all_met() {
    let ports = ports();
    let _server = serve(&ports, 3, "").unwrap();
    let mut first = find(&ports, 1, 3, "").unwrap();
    assert_two_jobs(find(&ports, 1, 3, ""), 1);
    assert_two_jobs(first.set("k", b"v", long()), 1);
    assert_two_jobs(find(&ports, 2, 3, ""), 1);
}

#[test]
fn a_store_that_ends_because_of_a_second_job_says_so_to_a_rank_that_asks_later() {
    let ports = ports();
    let server = serve(&ports, 3, "").unwrap();
    let mut other = find(&ports, 1, 3, "").unwrap();
    assert_two_jobs(serve(&ports, 3, ""), 0);
    drop(server);
    assert_two_jobs(other.set("k", b"v", long()), 0);
}

#[test]
fn jobs_of_other_sizes_are_told_apart_so_the_first_is_not_disturbed() {
    let ports = ports();
    let _server = serve(&ports, 2, "").unwrap();
    assert_two_jobs(serve(&ports, 3, ""), 0);
    find(&ports, 0, 2, "").unwrap().set("k", b"v", long()).unwrap();
}

#[test]
fn jobs_of_two_runs_meet_each_at_a_port_of_its_own() {
    let ports = ports();
    let one = serve(&ports, 2, "17.0").unwrap();
    let other = serve(&ports, 2, "17.1").unwrap();
    assert_eq!([one.address().port(), other.address().port()], ports[..2]);
    for (run, server) in [("17.0", one), ("17.1", other)] {
        let mut clients = [0, 1].map(|rank| find(&ports, rank, 2, run).unwrap());
        clients[0].set("k", run.as_bytes(), long()).unwrap();
        assert_eq!(clients[1].get("k", long()).unwrap(), run.as_bytes());
        drop(clients);
        server.close(long()).unwrap();
    }
}

#[test]
fn a_rank_of_another_run_looks_on_until_its_deadline_and_names_both() {
    let ports = ports();
    let long_run = "é".repeat(1000);
    let _server = serve(&ports, 2, &long_run).unwrap();
    let soon = Deadline::after(SECOND);
    match StoreClient::find_run(HOST, &ports, (TOKEN, 1, 2), "17.0", soon).unwrap_err() {
        BootstrapError::NotFound { waited, source, .. } => {
            assert!(waited >= SECOND);
            let BootstrapError::Mixed(MixedJobs(MixedJobsKind::OtherRun { store, client })) = *source else {
                panic!("{source}")
            };
            assert_eq!((store.as_str(), client.as_str()), (&long_run[..KEY_BYTES_MAX], "17.0"));
        }
        other => panic!("{other}"),
    }
}

#[test]
fn a_second_rank_0_finds_the_store_at_another_port_than_its_own() {
    let ports = ports();
    let stranger = TcpListener::bind((HOST, ports[0])).unwrap();
    let server = serve(&ports, 2, "").unwrap();
    assert_eq!(server.address().port(), ports[1]);
    let mut first = find(&ports[1..], 0, 2, "").unwrap();
    drop(stranger);
    // The first port is free now, and ranks of both jobs would look there first.
    assert_two_jobs(serve(&ports, 2, ""), 0);
    assert_two_jobs(first.barrier("start", long()), 0);
    TcpListener::bind((HOST, ports[0])).expect("the second rank 0 serves no more");
}

#[test]
fn silent_servers_at_the_ports_cost_a_second_rank_0_a_part_of_its_time() {
    let ports = ports();
    let _silent = ports.map(|port| TcpListener::bind((HOST, port)).unwrap());
    let options = StoreOptions::new(TOKEN, 2);
    let begun = Instant::now();
    let outcome = StoreServer::bind_run(HOST, &ports, &options, "", Deadline::after(LONG));
    assert!(matches!(outcome, Err(BootstrapError::NoFreePort { .. })));
    assert!(begun.elapsed() < LONG / 4, "it waited for {:?}", begun.elapsed());
}

#[test]
fn a_request_with_another_jobs_number_is_refused_with_both() {
    let server = server(2);
    let mut stream = stranger(server.address());
    let number = join_by_hand(&stream, 0);
    let set = Request::Set { key: "k".into(), value: b"v".into() }.encode(1);
    stream.write_all(&message::with_number(!number, &set).encode()).unwrap();
    let refusal = message::Refusal::OtherNumber { store: number, client: !number };
    assert_eq!(answer(&mut stream), message::Reply::Refused(refusal));
    stream.write_all(&message::with_number(number, &set).encode()).unwrap();
    assert_eq!(answer(&mut stream), message::Reply::Done);
    assert_ne!(number, join_by_hand(&stranger(self::server(2).address()), 0), "two jobs have one number");
}

#[test]
fn the_refusal_of_a_wrong_token_is_the_same_whatever_the_right_one_is() {
    let refusals = [[1; 16], [2; 16]].map(|token| {
        let options = StoreOptions::new(JobToken::from_bytes(token), 2);
        let served = StoreServer::bind_run(HOST, &ports(), &options, "a secret name", long()).unwrap();
        let mut stream = stranger(served.address());
        stream.write_all(&hello(0).encode()).unwrap();
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).unwrap();
        bytes
    });
    assert_eq!(refusals[0], refusals[1]);
    assert!(!refusals[0].windows(6).any(|bytes| bytes == b"secret"));
}

/// Reads one answer.
fn answer(stream: &mut TcpStream) -> message::Reply {
    let mut reader = frame::FrameReader::new(100);
    loop {
        let mut bytes = vec![0; reader.wanted()];
        stream.read_exact(&mut bytes).unwrap();
        if let Some(frame) = reader.push(&bytes).unwrap() {
            return message::Reply::decode(&frame).unwrap();
        }
    }
}
