//! Links, pools and engines that come and go leave nothing behind. One test to a process, whose books it reads.

mod common;
mod pair;

use std::collections::BTreeMap;
use std::thread;

use common::{assert_books, long, settled_books};
use pair::{CANARY, SHAPE, TOKEN, engine, link, pool, source_byte, transfer};
use rdma_collective::engine::Engine;
use rdma_collective::kv::{Decode, LinkOptions, Pool, PoolUse, Prefill};
use rdma_core::Wire;

/// Both ends, without a socket.
fn by_blob(source: (&Engine, &Pool), room: (&Engine, &Pool)) -> (Prefill, Decode) {
    let options = LinkOptions::default();
    let mut prefill = Prefill::prepare(source.0, source.1, &TOKEN, &options).unwrap();
    let mut decode = Decode::prepare(room.0, room.1, &TOKEN, &options).unwrap();
    let (to_decode, to_prefill) = (prefill.export().to_vec(), decode.export().to_vec());
    thread::scope(|scope| {
        let prefill = scope.spawn(move || prefill.connect(&to_prefill, long()).unwrap());
        let decode = decode.connect(&to_decode, long()).unwrap();
        (prefill.join().unwrap(), decode)
    })
}

/// Connects, moves two blocks and closes, so often; every tenth time with engines and pools of its own.
fn rounds(wire: Wire, count: u64) {
    let standing = (engine(wire, None), engine(wire, None));
    let source = pool(&standing.0, SHAPE, PoolUse::Source, source_byte);
    let room = pool(&standing.1, SHAPE, PoolUse::Destination, |_, _, _| CANARY);
    let mut before = BTreeMap::new();
    // The first rounds fill what is kept for ever, as tables of a thread and of the device.
    let warm = 20;
    for round in 0..warm + count {
        if round == warm {
            before = settled_books();
        }
        if round % 10 == 9 {
            let fresh = (engine(wire, None), engine(wire, None));
            let source = pool(&fresh.0, SHAPE, PoolUse::Source, source_byte);
            let room = pool(&fresh.1, SHAPE, PoolUse::Destination, |_, _, _| CANARY);
            let (prefill, decode) = link((&fresh.0, &source), (&fresh.1, &room), &LinkOptions::default());
            transfer(&prefill, &decode, round, &[(3, 4), (5, 6)]);
            continue;
        }
        let ends = ((&standing.0, &source), (&standing.1, &room));
        let (prefill, decode) = by_blob(ends.0, ends.1);
        transfer(&prefill, &decode, round, &[(3, 4), (5, 6)]);
    }
    assert_books(&before, &format!("after {count} rounds"));
    source.close(long()).unwrap().remove(0).deregister().unwrap();
    room.close(long()).unwrap().remove(0).deregister().unwrap();
}

#[test]
fn a_thousand_rounds_leave_nothing_behind() {
    rounds(Wire::Local, 900);
    rounds(Wire::Mapped, 100);
    rounds(Wire::Tcp, 100);
}

/// The full count, for a soak.
#[test]
#[ignore = "takes minutes"]
fn ten_thousand_rounds_leave_nothing_behind() {
    rounds(Wire::Local, 9000);
    rounds(Wire::Mapped, 1000);
    rounds(Wire::Tcp, 1000);
}
