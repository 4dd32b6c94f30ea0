//! Tests of refusals, and of servers that are no store: each error carries both sides' values.

use super::*;
use crate::bootstrap::{Elsewhere, MixedJobsKind, RankList};
use crate::env::Setting;

#[test]
fn values_beyond_their_bounds_are_refused_and_the_client_goes_on() {
    let server = server(1);
    let mut client = client(&server, 0, 1);
    let too_large = |error| match error {
        BootstrapError::TooLarge { what, bytes, bytes_max } => (what, bytes, bytes_max),
        other => panic!("{other}"),
    };
    let long_key = "k".repeat(KEY_BYTES_MAX + 1);
    let long_value = vec![0; VALUE_BYTES_MAX + 1];
    assert_eq!(too_large(client.set(&long_key, b"", long()).unwrap_err()), ("a key", 257, 256));
    assert_eq!(too_large(client.get(&long_key, long()).unwrap_err()), ("a key", 257, 256));
    assert_eq!(too_large(client.set("k", &long_value, long()).unwrap_err()), ("a value", 65537, 65536));
    assert_eq!(too_large(client.barrier(&long_key, long()).unwrap_err()), ("a name", 257, 256));
    client.set("k", b"v", long()).unwrap();
    assert_eq!(client.get("k", long()).unwrap(), b"v");
}

#[test]
fn another_token_is_refused_by_fingerprint() {
    let server = server(2);
    let token = JobToken::from_bytes([4; 16]);
    match StoreClient::connect(Join { token, ..join(&server, 0, 2) }, long()).unwrap_err() {
        BootstrapError::OtherToken { client } => assert_eq!(client, token.fingerprint()),
        other => panic!("{other}"),
    }
    client(&server, 0, 2);
}

#[test]
fn another_world_size_is_refused_with_both() {
    let server = server(2);
    match StoreClient::connect(join(&server, 0, 3), long()).unwrap_err() {
        BootstrapError::OtherWorld { store: 2, client: 3 } => {}
        other => panic!("{other}"),
    }
    client(&server, 0, 2);
}

#[test]
fn a_rank_beyond_the_world_is_refused() {
    let server = server(2);
    match StoreClient::connect(join(&server, 2, 2), long()).unwrap_err() {
        BootstrapError::NoSuchRank { rank: 2, world: 2 } => {}
        other => panic!("{other}"),
    }
}

#[test]
fn a_rank_that_joins_twice_is_refused_with_both_addresses() {
    let server = server(2);
    let mut first = client(&server, 1, 2);
    match StoreClient::connect(join(&server, 1, 2), long()).unwrap_err() {
        BootstrapError::JoinedTwice { rank: 1, first: address, second } => {
            assert_eq!(address, first.local_address().unwrap().to_string());
            assert_ne!(second.to_string(), address);
        }
        other => panic!("{other}"),
    }
    first.set("not", b"disturbed", long()).unwrap();
}

#[test]
fn another_version_is_refused_with_both_even_when_its_hello_is_longer() {
    let server = server(2);
    let mut stream = stranger(server.address());
    let mut bytes = Frame { payload: vec![7; 1000].into(), ..hello(0) }.encode();
    bytes[4] = 9;
    stream.write_all(&bytes).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    let mut reader = frame::FrameReader::new(100);
    reader.push(&answer[..frame::HEADER_BYTES]).unwrap();
    let frame = reader.push(&answer[frame::HEADER_BYTES..]).unwrap().unwrap();
    let refusal = message::Refusal::OtherVersion { store: frame::VERSION, client: 9 };
    assert_eq!(message::Reply::decode(&frame), Ok(message::Reply::Refused(refusal)));
}

#[test]
fn a_client_names_the_version_of_a_store_that_differs() {
    let listener = TcpListener::bind(any_port()).unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let (mut stream, _) = listener.accept().unwrap();
            let mut answer = message::Reply::Welcome { number: 1 }.encode(0).encode();
            answer[4] = 3;
            stream.write_all(&answer).unwrap();
            assert_dropped(&stream);
        });
        let join = Join { address, token: TOKEN, rank: 0, world: 1 };
        match StoreClient::connect(join, long()).unwrap_err() {
            BootstrapError::OtherVersion { store: 3, client: frame::VERSION } => {}
            other => panic!("{other}"),
        }
    });
}

#[test]
fn a_store_that_is_not_there_is_an_error_at_the_deadline() {
    let listener = TcpListener::bind(any_port()).unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let join = Join { address, token: TOKEN, rank: 0, world: 1 };
    let started = Instant::now();
    match StoreClient::connect(join, Deadline::after(SHORT)).unwrap_err() {
        BootstrapError::Unreachable { address: named, waited, .. } => {
            assert!(named == address && waited >= SHORT && started.elapsed() < LONG);
        }
        other => panic!("{other}"),
    }
}

#[test]
fn something_else_that_listens_is_not_a_store() {
    let listener = TcpListener::bind(any_port()).unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let (mut stream, _) = listener.accept().unwrap();
            stream.write_all(b"220 mail.example ESMTP ready\r\n").unwrap();
            assert_dropped(&stream);
        });
        let join = Join { address, token: TOKEN, rank: 0, world: 1 };
        match StoreClient::connect(join, long()).unwrap_err() {
            BootstrapError::NotAStore { source: FrameError::NotAStore, .. } => {}
            other => panic!("{other}"),
        }
    });
}

#[test]
fn a_store_that_does_not_answer_is_an_error_at_the_deadline() {
    let listener = TcpListener::bind(any_port()).unwrap();
    let address = listener.local_addr().unwrap();
    let join = Join { address, token: TOKEN, rank: 0, world: 1 };
    match StoreClient::connect(join, Deadline::after(SHORT)).unwrap_err() {
        BootstrapError::NoAnswer { waited, .. } => assert!(waited >= SHORT / 2),
        other => panic!("{other}"),
    }
}

#[test]
fn a_store_needs_a_world_and_a_free_address() {
    for world in [0, 65537] {
        let refused = StoreServer::bind(any_port(), StoreOptions::new(TOKEN, world));
        assert!(matches!(refused, Err(BootstrapError::WorldSize { world: named, .. }) if named == world));
    }
    let server = server(1);
    let taken = StoreServer::bind(server.address(), StoreOptions::new(TOKEN, 1));
    assert!(matches!(taken, Err(BootstrapError::Listen { .. })));
}

#[test]
fn errors_say_what_to_do() {
    use std::io::ErrorKind;
    let (address, waited) = (SocketAddr::from(([10, 0, 0, 1], 29500)), Duration::from_millis(5000));
    let ranks = |count, first: &[u32]| RankList::new(count, first.to_vec());
    let by = Setting { name: "MASTER_ADDR".into(), value: "head".into() };
    let elsewhere = Elsewhere { by, ip: [10, 0, 0, 7].into(), listens: ([0; 4], 29500).into() };
    let elsewhere = Some(Box::new(elsewhere));
    let errors = [
        BootstrapError::Random { reason: "not permitted".into() },
        BootstrapError::NotAToken { len: 7 },
        BootstrapError::WorldSize { world: 0, world_max: 65536 },
        BootstrapError::Listen { address, source: ErrorKind::AddrInUse.into() },
        BootstrapError::Serve { what: "start a thread", source: ErrorKind::WouldBlock.into() },
        BootstrapError::StillJoined { ranks: ranks(1, &[3]) },
        BootstrapError::Unreachable { address, waited, source: ErrorKind::ConnectionRefused.into() },
        BootstrapError::NotAStore { address, source: FrameError::NotAStore },
        BootstrapError::NoAnswer { address, waited },
        BootstrapError::Lost { address, source: ErrorKind::ConnectionReset.into() },
        BootstrapError::OtherVersion { store: 1, client: 2 },
        BootstrapError::OtherToken { client: 0xbeef },
        MixedJobsKind::OtherRun { store: "17.0".into(), client: String::new() }.into(),
        MixedJobsKind::OtherNumber { store: 0xdead, client: 0xbeef }.into(),
        MixedJobsKind::TwoJobs { address, rank: 0, pid: 4711, host: "head".into() }.into(),
        BootstrapError::OtherWorld { store: 8, client: 4 },
        BootstrapError::NoSuchRank { rank: 8, world: 8 },
        BootstrapError::JoinedTwice { rank: 1, first: "10.0.0.2:4000".into(), second: address },
        BootstrapError::TooLarge { what: "a value", bytes: 70000, bytes_max: 65536 },
        BootstrapError::Full { bytes_max: 1 << 20 },
        BootstrapError::KeyOwned { key: "comm/world/0/1/next".into(), owner: 1 },
        BootstrapError::KeyMissing { key: "leader".into(), waited, absent: ranks(2, &[0, 2]) },
        BootstrapError::KeyMissing { key: "leader".into(), waited, absent: ranks(0, &[]) },
        BootstrapError::RanksMissing {
            name: "start".into(),
            waited,
            missing: ranks(14, &[1, 5]),
            elsewhere: None,
        },
        BootstrapError::RanksMissing { name: "start".into(), waited, missing: ranks(1, &[1]), elsewhere },
        BootstrapError::RankLeft { rank: 3, name: "end".into() },
    ];
    insta::assert_snapshot!(errors.map(|error| error.to_string()).join("\n"), @r#"
        the system gives no random numbers (not permitted); see whether getrandom is allowed here
        a job token is 32 hexadecimal digits, not 7 characters; hand on what JobToken::to_hex gives
        a job of 0 ranks cannot meet here; use 1 to 65536
        the store cannot listen at 10.0.0.1:29500: address in use; choose an address of this machine, and port 0 for a free one
        the store cannot start a thread: operation would block; see the limits on descriptors, threads and memory (ulimit -a)
        rank 3 had not left the store when it closed; let every rank leave before, or allow more time
        no store at 10.0.0.1:29500 within 5.0s: connection refused; see whether the first rank runs and whether a firewall is between
        what answers at 10.0.0.1:29500 is not this library's store: the first bytes are not a frame's; check address and port
        the store at 10.0.0.1:29500 did not answer within 5.0s; see whether the process that serves it (rank 0, or the launcher) is stopped or overloaded
        the connection to the store at 10.0.0.1:29500 is lost: connection reset; see whether the process that serves it (rank 0, or the launcher) has ended
        the store speaks version 1, this process version 2; run one release on all ranks
        the store has another token than this process (0000beef…); start all ranks with one token, and each job with its own port; the fingerprint of the store's token is in the log of its process (NCCL_DEBUG=TRACE)
        the store is of the run "17.0", this process of a job without a launcher's name; this process looks on for its own job
        the store is of job number 000000000000dead, this process joined job number 000000000000beef; another store has taken its place, so start the job again
        two jobs use one port: process 4711 on head serves the job at 10.0.0.1:29500, and a second process came as rank 0; give each job its own MASTER_PORT, or its own token: export RDMA_JOB_TOKEN=$(openssl rand -hex 16)
        the store expects 8 ranks, this process was started as one of 4; start all with one number
        rank 8 is not one of 8; ranks count from 0
        rank 1 has joined from 10.0.0.2:4000 before, this process comes from 10.0.0.1:29500; give each process its own rank
        a value of 70000 bytes is longer than 65536; exchange an address and send data over links
        the store keeps 1048576 bytes for a rank, and no more; set fewer or shorter values
        key "comm/world/0/1/next" is set by rank 1 alone; choose a key that does not begin with comm/
        key "leader" was not set within 5.0s; ranks 0 and 2 have not joined, see whether they run
        key "leader" was not set within 5.0s; all ranks have joined, see which one is to set it
        ranks 1, 5 and 12 more did not come to "start" within 5.0s; see whether they run and where they wait
        rank 1 did not come to "start" within 5.0s; see whether they run and where they wait: rank 0 listens on 0.0.0.0:29500, all interfaces, since MASTER_ADDR=head (10.0.0.7) is no address of its host; unless a service or a translation leads from there to here, the others do not find it: set MASTER_ADDR to an address of rank 0's host, on all ranks
        rank 3 has left the store, and "end" needs all ranks; see why its process ended
        "#);
}
