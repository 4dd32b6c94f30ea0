//! Tests with a rank that has the job's token and breaks the protocol: the other ranks must blame it, and use nothing
//! that it sent.

use std::thread;
use std::time::{Duration, Instant};

use rdma_core::{Deadline, Device, SoftOptions, Wire};

use crate::bootstrap::{JobToken, Join, StoreClient, StoreOptions, StoreServer};
use crate::collective::call::staging;
use crate::collective::communicator::{Communicator, CommunicatorOptions, Link, Links};
use crate::collective::operation::{ABORT, Header, OPERATION, WAITS};
use crate::collective::schedule::Staging;
use crate::collective::{CollectiveError, ReduceOp};
use crate::engine::{Engine, EngineOptions, EngineState};
use crate::link::LaneFailure;
use crate::link::control::Kind;
use crate::link::imm::Imm;
use crate::link::mailbox::HEADER_BYTES;

#[test]
fn the_defaults_are_the_schedules() {
    assert_eq!(staging(&CommunicatorOptions::default()), Staging::default());
}

fn soon() -> Deadline {
    Deadline::after(Duration::from_secs(20))
}

/// Runs `body` for `world` ranks, each in a thread of its own with a client of one store.
pub(super) fn each_client(world: u32, body: impl Fn(u32, &mut StoreClient) + Copy + Send + 'static) {
    let token = JobToken::from_bytes([7; 16]);
    let server = StoreServer::bind("127.0.0.1:0".parse().unwrap(), StoreOptions::new(token, world)).unwrap();
    let address = server.address();
    let rank = move |rank| {
        let deadline = Deadline::after(Duration::from_secs(60));
        body(rank, &mut StoreClient::connect(Join { address, token, rank, world }, deadline).unwrap());
    };
    let ranks: Vec<_> = (0..world).map(|number| thread::spawn(move || rank(number))).collect();
    ranks.into_iter().for_each(|rank| rank.join().unwrap());
}

/// Elements that do not fit an eager message: 40 kB, and a message has at most 32 KiB.
const COUNT: usize = 10_000;
const HEADER: Header =
    Header { rank: 1, sequence: 0, count: COUNT as u64, collective: 1, data_type: 1, reduction: 1, root: 0 };

const SLOT_BYTES: usize = 256 * 1024;

/// The link to the other rank.
fn next(links: &mut Links) -> &mut Link {
    links.table.link_mut(links.next).unwrap()
}

/// Puts a message to the other rank.
fn put(core: &mut EngineState, links: &mut Links, header: &[u8; HEADER_BYTES], message: &[u8]) {
    let room = next(links).room(core).unwrap();
    assert!(room.put_with(Some(header), message.len(), |slot| slot.copy_from_slice(message)));
}

/// The error of rank 0 of two in its first operation, if the other rank does `wrong` instead.
fn against(wrong: impl FnOnce(&mut EngineState, &mut Links) + Send + 'static) -> CollectiveError {
    against_on((Wire::Tcp, SLOT_BYTES), COUNT, |comm| comm.with_links(wrong).unwrap())
}

#[test]
fn who_goes_around_the_ring_before_it_can_know_is_named() {
    // Slots this short exclude the pipelined protocol, so the windows carry only headers.
    let error = against_on((Wire::Local, 16 * 1024), COUNT, |comm| {
        comm.with_links(|core, links| {
            put(core, links, &HEADER.in_slot(), &[7; 2000]);
        });
    });
    assert_violation(&error, "before it could know");
}

/// The error of rank 0 in an operation of `count` elements, between ranks of one host.
fn against_in(count: usize, wrong: impl FnOnce(&mut Communicator) + Send + 'static) -> CollectiveError {
    against_on((Wire::Local, SLOT_BYTES), count, wrong)
}

fn against_on(
    (wire, slot_bytes): (Wire, usize),
    count: usize,
    wrong: impl FnOnce(&mut Communicator) + Send + 'static,
) -> CollectiveError {
    let token = JobToken::from_bytes([2; 16]);
    let server = StoreServer::bind("127.0.0.1:0".parse().unwrap(), StoreOptions::new(token, 2)).unwrap();
    let address = server.address();
    let communicator = move |rank| {
        let mut store = StoreClient::connect(Join { address, token, rank, world: 2 }, soon()).unwrap();
        let context = Device::soft(SoftOptions { wire, ..SoftOptions::default() }).open().unwrap();
        let engine = Engine::new(&context, EngineOptions::default()).unwrap();
        let linger = Duration::from_millis(20);
        let options = CommunicatorOptions { linger, slot_bytes, ..CommunicatorOptions::default() };
        (Communicator::new(&engine, &mut store, options, soon()).unwrap(), store)
    };
    let other = thread::spawn(move || {
        let (mut comm, mut store) = communicator(1);
        wrong(&mut comm);
        let until = Instant::now() + Duration::from_secs(20);
        // Stay until rank 0 has seen the violation: a lane that closes earlier would be the reason instead.
        while store.get("seen", Deadline::after(Duration::from_millis(20))).is_err() && Instant::now() < until
        {
            comm.engine().drive(Instant::now(), 16).unwrap();
        }
    });
    let (mut comm, mut store) = communicator(0);
    let mut data = vec![1.0_f32; count];
    let error = comm.all_reduce(&mut data, ReduceOp::Sum, soon()).unwrap_err();
    let again = comm.all_reduce(&mut data, ReduceOp::Sum, soon()).unwrap_err();
    assert!(matches!(again, CollectiveError::Ended { .. }), "{again}");
    assert!(data.iter().all(|element| *element == 1.0), "what a rank sent wrongly was used");
    store.set("seen", b"", soon()).unwrap();
    other.join().unwrap();
    error
}

fn far_ahead(core: &mut EngineState, links: &mut Links) {
    let lane = core.lane(next(links).lanes.first).unwrap();
    for sequence in 1..8 {
        let header = Header { sequence: sequence << 32, ..HEADER };
        // Send as many as there is room for; a refusal is fine.
        let _ = lane.control(OPERATION, |body| header.write(body));
    }
}

fn assert_violation(error: &CollectiveError, expected: &str) {
    match error {
        CollectiveError::PeerFailed { rank: 1, cause: LaneFailure::Violation(what), .. } => {
            assert!(what.contains(expected), "{what}, not {expected}");
        }
        other => panic!("{expected}: {other}"),
    }
}

#[test]
fn immediates_that_cannot_be_end_the_operation() {
    for imm in [
        Imm::Message { slot: 8, turn: 0 },
        Imm::Message { slot: 4095, turn: 0 },
        Imm::Message { slot: 0, turn: 1 },
        Imm::Block { transfer: 0, index: 0 },
    ] {
        let error = against(move |core, links| core.lane(next(links).lanes.first).unwrap().note(imm));
        assert_violation(&error, "an immediate that cannot be");
    }
    // Rank 0 has not sent so many messages that rank 1 could give back.
    for imm in [Imm::Freed { count: 9 }, Imm::Freed { count: u32::MAX >> 4 }] {
        let error = against(move |core, links| core.lane(next(links).lanes.first).unwrap().note(imm));
        assert_violation(&error, "an immediate that cannot be");
    }
}

#[test]
fn one_slot_announced_twice_ends_the_operation() {
    let error = against(|core, links| {
        let lane = core.lane(next(links).lanes.first).unwrap();
        lane.note(Imm::Message { slot: 3, turn: 0 });
        lane.note(Imm::Message { slot: 3, turn: 0 });
    });
    assert_violation(&error, "an immediate that cannot be");
}

#[test]
fn messages_of_another_length_and_damaged_headers_end_the_operation() {
    for (len, expected) in [(0, "another length"), (4, "another length"), (256 * 1024, "another length")] {
        let error = against(move |core, links| {
            put(core, links, &HEADER.in_slot(), &vec![7; len]);
        });
        assert_violation(&error, expected);
    }
    let error = against(|core, links| {
        put(core, links, &[0xff; 64], &[7; 2000]);
    });
    assert_violation(&error, "a header that is damaged");
}

#[test]
fn control_messages_that_do_not_belong_to_a_ring_end_the_operation() {
    for kind in [Kind(2), Kind(19), Kind(32), Kind(255)] {
        let error = against(move |core, links| {
            assert_eq!(core.lane(next(links).lanes.first).unwrap().control(kind, |_| Ok(())), Ok(true));
        });
        assert_violation(&error, "a control message that does not belong here");
    }
    for kind in [ABORT, OPERATION, WAITS] {
        let error = against(move |core, links| {
            assert_eq!(
                core.lane(next(links).lanes.first).unwrap().control(kind, |body| body.u64(1)),
                Ok(true)
            );
        });
        assert_violation(&error, "a control message that does not belong here");
    }
}

#[test]
fn whatever_differs_is_another_operation() {
    for theirs in [
        Header { count: COUNT as u64 + 1, ..HEADER },
        Header { count: u64::MAX, ..HEADER },
        Header { collective: 2, ..HEADER },
        Header { collective: 9, ..HEADER },
        Header { root: 1, ..HEADER },
        Header { root: u32::MAX, ..HEADER },
        Header { data_type: 2, ..HEADER },
        Header { data_type: 255, ..HEADER },
        Header { reduction: 2, ..HEADER },
        Header { reduction: 255, ..HEADER },
    ] {
        let error = against(move |core, links| {
            let lane = core.lane(next(links).lanes.first).unwrap();
            assert_eq!(lane.control(OPERATION, |body| theirs.write(body)), Ok(true));
        });
        let CollectiveError::Mismatch { rank: 0, peer: 1, ours, theirs: told } = &error else {
            panic!("{theirs:?}: {error}")
        };
        assert_ne!(ours.to_string(), told.to_string(), "{theirs:?}: {error}");
    }
}

/// Elements that fit an eager message.
const FEW: usize = 3;

#[test]
fn a_message_between_ranks_of_a_host_without_a_header_ends_the_operation() {
    for count in [FEW, COUNT] {
        let error = against_in(count, |comm| {
            comm.fast_path(soon(), |_| Duration::ZERO)
                .unwrap()
                .host
                .spoil(0, &Header { count: FEW as u64, ..HEADER });
        });
        assert_violation(&error, "a header that is damaged");
    }
}

#[test]
fn who_goes_around_the_ring_instead_is_not_waited_for() {
    let error = against_in(FEW, |comm| {
        comm.with_links(|core, links| {
            put(core, links, &[0xff; 64], &[7; 2000]);
        });
    });
    assert_violation(&error, "a header that is damaged");
    let error = against_in(FEW, |comm| comm.with_links(far_ahead).unwrap());
    assert!(matches!(error, CollectiveError::Mismatch { rank: 0, peer: 1, .. }), "{error}");
}

#[test]
fn operations_far_ahead_are_another_operation_and_take_no_memory() {
    let error = against(far_ahead);
    assert!(matches!(error, CollectiveError::Mismatch { rank: 0, peer: 1, .. }), "{error}");
}
