//! The meeting of up to 1,024 ranks: the store's decisions on a simulated network, with the requests that a
//! communicator makes until its ring is set up.

use std::fmt::Write as _;

use super::super::frame::HEADER_BYTES;
use super::super::message::Reply;
use super::super::store::{Effect, Served, Store};
use super::*;
use crate::tests::netsim::{Network, Wire};

/// The size of a rank's description and of a blob, in bytes, with names of a usual length.
const INTRODUCTION_BYTES: usize = 80;
const BLOB_BYTES: usize = 160;

/// The resources that a run needed.
#[derive(Debug, PartialEq, Eq)]
struct Report {
    time: u64,
    /// Frames to and from the store, and their bytes; and the bytes that come to a rank.
    frames: [u64; 2],
    bytes: [u64; 2],
    bytes_a_rank: u64,
    lost: u64,
    trace: u64,
}

/// The requests of a rank, each made when the one before was answered.
fn requests(rank: u32, world: u32) -> Vec<Request> {
    let key = |what: &str| format!("comm/world/0/{what}");
    let end = |rank: u32, end: &str| key(&format!("{rank}/{end}"));
    let gather = |what, bytes| Request::Gather { wait_ms: 10_000, name: key(what), value: vec![7; bytes] };
    let get = |key| Request::Get { wait_ms: 10_000, key };
    vec![
        Request::Hello(Hello { token: TOKEN, rank, world, attempt: 1, run: message::run_hash(""), pid: 1 }),
        gather("ranks", INTRODUCTION_BYTES),
        Request::Set { key: end(rank, "next"), value: vec![8; BLOB_BYTES] },
        Request::Set { key: end(rank, "previous"), value: vec![9; BLOB_BYTES] },
        gather("blobs", 0),
        get(end((rank + 1) % world, "previous")),
        get(end((rank + world - 1) % world, "next")),
        gather("connected", 0),
    ]
}

fn meet(world: u32, wire: Wire) -> Report {
    let (mut store, begun) = (Store::new(TOKEN, world, Served::default()), Instant::now());
    // The store's host is the last one.
    let mut network: Network<(u32, bool, Frame)> = Network::new(world as usize + 1, wire);
    let len = |frame: &Frame| HEADER_BYTES + frame.payload.len();
    let mut to_come: Vec<_> = (0..world).map(|rank| requests(rank, world).into_iter()).collect();
    let mut asked = vec![0_u32; world as usize];
    let mut report = Report { time: 0, frames: [0; 2], bytes: [0; 2], bytes_a_rank: 0, lost: 0, trace: 0 };
    let mut received = vec![0; world as usize];
    let mut ask = |network: &mut Network<_>, now, rank: u32| {
        let Some(request) = to_come[rank as usize].next() else { return };
        asked[rank as usize] += 1;
        let frame = request.encode(asked[rank as usize]);
        let is_hello = matches!(request, Request::Hello(_));
        let frame = if is_hello { frame } else { message::with_number(0, &frame) };
        network.send(now, rank, world, len(&frame), (rank, false, frame));
    };
    (0..world).for_each(|rank| ask(&mut network, 0, rank));
    while let Some((at, (rank, is_answer, frame))) = network.next() {
        report.time = at;
        let way = usize::from(is_answer);
        (report.frames[way], report.bytes[way]) =
            (report.frames[way] + 1, report.bytes[way] + len(&frame) as u64);
        if is_answer {
            received[rank as usize] += len(&frame) as u64;
            assert!(!matches!(frame.kind, 133 | 134), "rank {rank} is told {:?}", Reply::decode(&frame));
            ask(&mut network, at, rank);
            continue;
        }
        let (connection, now) = (rank.into(), begun + Duration::from_nanos(at / 1000));
        let hello = Request::decode(&frame).ok().filter(|request| matches!(request, Request::Hello(_)));
        let request =
            hello.unwrap_or_else(|| Request::decode(&message::take_number(&frame).unwrap().1).unwrap());
        if let Request::Hello(hello) = &request {
            store.join(connection, any_port(), hello).unwrap();
        }
        store.handle_request(now, connection, frame.id, request);
        while let Some(effect) = store.poll_effect() {
            let Effect::Send { connection, frame } = effect else { panic!("{effect:?}") };
            network.send(at, world, connection as u32, len(&frame), (connection as u32, true, frame));
        }
    }
    for rank in 0..world {
        assert_eq!(to_come[rank as usize].next(), None, "rank {rank} was not answered");
    }
    assert_eq!(store.present().count, world);
    report.bytes_a_rank = received.into_iter().max().unwrap_or(0);
    (report.lost, report.trace) = (network.lost(), network.trace());
    report
}

#[test]
fn up_to_1024_ranks_meet() {
    let mut table =
        String::from("ranks frames in  bytes in frames out   bytes out a rank gets          us\n");
    for world in [2, 16, 100, 1024] {
        let Report { time, frames, bytes, bytes_a_rank, .. } = meet(world, Wire::FAST);
        let us = time as f64 / 1e6;
        let ([frames_in, frames_out], [bytes_in, bytes_out]) = (frames, bytes);
        writeln!(
            table,
            "{world:5} {frames_in:9} {bytes_in:9} {frames_out:10} {bytes_out:11} {bytes_a_rank:11} {us:11.1}"
        )
        .unwrap();
        assert_eq!(frames, [8 * u64::from(world); 2]);
    }
    insta::assert_snapshot!(table, @r"
    ranks frames in  bytes in frames out   bytes out a rank gets          us
        2        16      1608         16        1304         652        80.2
       16       128     12888        128       31040        1940        82.3
      100       800     80760        800      966800        9668       155.2
     1024      8192    831144       8192    96948224       94676      7829.1
    ");
}

#[test]
fn what_is_lost_on_the_way_to_a_meeting_costs_time_alone_and_by_the_seed() {
    let quiet = meet(100, Wire::FAST);
    let lossy = |seed| meet(100, Wire { lost_of_million: 10_000, seed, ..Wire::FAST });
    let (first, other) = (lossy(1), lossy(2));
    assert!(first.lost > 0 && first.time > quiet.time);
    assert_eq!((first.frames, first.bytes), (quiet.frames, quiet.bytes));
    assert_eq!(first, lossy(1));
    assert_ne!(first.trace, other.trace);
}
