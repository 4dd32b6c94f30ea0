//! A peer that has the token and breaks the protocol: every message that cannot be ends the link, and nothing else.

mod kept;
mod late;
mod leases;
mod ranges;
mod resumed;
mod unlocked;

use std::net::TcpListener;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use rdma_core::{Deadline, Device, SoftOptions, Wire};

use super::layout::{Attention, CacheType, HeadOrder, Layout, Order, Shape, TensorParallel};
use super::message::{
    BEGIN, Begin, CHECKSUMS, DONE, Done, GRANT, QUIESCED, Quiesced, REFUSE, REVOKE, Reason, Refusal, Refuse,
    Revoke, STAGING, StagingAt, UNPACKED, Unpacked, write_checksums,
};
use super::{Decode, LinkOptions, Pool, PoolUse, Prefill, message};
use crate::bootstrap::JobToken;
use crate::engine::{Driver, Engine, EngineOptions};
use crate::kv::plan::Route;
use crate::kv::{KvError, RequestId};
use crate::link::LaneFailure;
use crate::link::Meet;
use crate::link::codec::{NoRoom, Writer};
use crate::link::control::Kind;
use crate::link::imm::Imm;

pub(super) const SHAPE: Shape = Shape {
    layers: 2,
    blocks: 4,
    block_tokens: 2,
    attention: Attention::Grouped { kv_heads: 1, head_dim: 4 },
    cache_type: CacheType::Bf16,
    order: Order::LayerBlockPart,
    head_order: HeadOrder::Nhd,
    tensor_parallel: TensorParallel::WHOLE,
};
const TOKEN: JobToken = JobToken::from_bytes([1; 16]);

fn soon() -> Deadline {
    Deadline::after(Duration::from_secs(20))
}

fn engine() -> Engine {
    let options = SoftOptions { wire: Wire::Local, ..SoftOptions::default() };
    // The tests say when it is driven.
    let engine = EngineOptions { driver: Driver::Caller, ..EngineOptions::default() };
    Engine::new(&Device::soft(options).open().unwrap(), engine).unwrap()
}

pub(super) fn pair() -> (Prefill, Decode) {
    pair_of(SHAPE, LinkOptions { checksums: true, ..LinkOptions::default() })
}

pub(super) fn pair_of(shape: Shape, options: LinkOptions) -> (Prefill, Decode) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let linger = Duration::from_millis(20);
    let options = LinkOptions { linger, ..options };
    let other = options.clone();
    let pool = move |engine: &Engine, purpose| {
        Pool::allocate(engine, &Layout::new(shape).unwrap(), purpose).unwrap()
    };
    let prefill = thread::spawn(move || {
        let engine = engine();
        let pool = pool(&engine, PoolUse::SourceToPull);
        Prefill::new(&engine, &pool, &Meet::Connect(address), &TOKEN, &other, soon()).unwrap()
    });
    let engine = engine();
    let pool = pool(&engine, PoolUse::Destination);
    let decode = Decode::new(&engine, &pool, &Meet::Accept(&listener), &TOKEN, &options, soon()).unwrap();
    (prefill.join().unwrap(), decode)
}

pub(super) const TOLD: message::Grant = message::Grant {
    grant: 1,
    request: RequestId::digit(5),
    time_to_live_ms: 9000,
    transfer: 0,
    checksums: false,
    partial: false,
    tokens: false,
    note: false,
    blocks: 2,
};

/// The beginning of [`TOLD`].
const BEGIN_OF_TWO: Begin = Begin {
    grant: 1,
    lease: 1,
    writes: 2,
    write_bytes_max: 1 << 20,
    pack_bytes: 0,
    slots: 0,
    by_layer: false,
    tokens: false,
    note: false,
};

/// Something that one end sends.
type Wrong = (&'static str, Kind, Box<dyn Fn(&mut Writer<'_>) -> Result<(), NoRoom>>);

fn wrong(
    expected: &'static str,
    kind: Kind,
    body: impl Fn(&mut Writer<'_>) -> Result<(), NoRoom> + 'static,
) -> Wrong {
    (expected, kind, Box::new(body))
}

#[test]
fn what_a_decode_cannot_be_told_ends_its_link_and_frees_its_blocks() {
    let begin = BEGIN_OF_TWO;
    let cases = [
        wrong("does not belong", Kind(99), |_| Ok(())),
        wrong("does not belong", GRANT, |_| Ok(())),
        wrong("malformed", BEGIN, |body| body.u64(1)),
        wrong("grant that is not open", BEGIN, move |body| {
            Begin { grant: 2, ..begin }.write(body, &[0, 1], 0, 9)
        }),
        wrong("no plan can be made", BEGIN, move |body| begin.write(body, &[0], 0, 9)),
        wrong("out of order", BEGIN, move |body| begin.write(body, &[0, 1], 1, 9)),
        wrong("no plan can be made", BEGIN, move |body| begin.write(body, &[3, 3], 0, 9)),
        wrong("no plan can be made", BEGIN, move |body| begin.write(body, &[0, 4], 0, 9)),
        wrong("another number of writes", BEGIN, move |body| {
            Begin { writes: 3, ..begin }.write(body, &[0, 1], 0, 9)
        }),
        wrong("no plan can be made", BEGIN, move |body| {
            Begin { write_bytes_max: 0, ..begin }.write(body, &[0, 1], 0, 9)
        }),
        wrong("other slots", BEGIN, move |body| Begin { slots: 1, ..begin }.write(body, &[0, 1], 0, 9)),
        wrong("do not belong", CHECKSUMS, |body| write_checksums(body, 1, 5, 0, &[1])),
        wrong("do not belong", CHECKSUMS, |body| write_checksums(body, 1, 4, 1, &[1])),
        wrong("malformed", CHECKSUMS, |body| write_checksums(body, 1, 4, 3, &[1, 2])),
        wrong("malformed", REFUSE, |_| Ok(())),
        wrong("grant that is not open", REFUSE, |body| {
            Refuse { grant: 7, blocks: 1, refusal: Refusal::Plan }.write(body)
        }),
        wrong("malformed", QUIESCED, |body| body.u64(1)),
        wrong("grant that was not made", QUIESCED, |body| {
            Quiesced { grant: 2, reason: Reason::Revoked, writes: 0 }.write(body)
        }),
    ];
    for (expected, kind, body) in cases {
        let (prefill, decode) = pair();
        let grant = decode.grant(5, &[1, 2], soon()).unwrap();
        let told = prefill
            .shared()
            .engine
            .lock_with(|core| prefill.shared().lock().link.send(core, kind, |writer| body(writer)));
        assert!(told);
        let error = grant.wait().unwrap_err();
        let KvError::PeerFailed { cause: LaneFailure::Violation(what), .. } = &*error.cause else {
            panic!("{expected}: {error}")
        };
        assert!(what.contains(expected), "{what}, not {expected}");
        assert_eq!(error.verdicts.count(super::BlockVerdict::Missing), 4);
        assert!((0..4).all(|block| decode.pool().held(block).is_none()));
        assert!(matches!(decode.grant(6, &[0], soon()), Err(KvError::LinkEnded { .. })));
    }
}

#[test]
fn immediates_that_a_decode_cannot_get_end_its_link() {
    for (imm, expected) in [
        (Imm::Block { transfer: 9, index: 0 }, "slot that is not open"),
        (Imm::Message { slot: 0, turn: 0 }, "does not belong"),
        (Imm::Freed { count: 1 }, "does not belong"),
    ] {
        let (prefill, decode) = pair();
        let grant = decode.grant(5, &[1, 2], soon()).unwrap();
        prefill.shared().engine.lock_with(|core| {
            prefill.shared().lock().link.lane(core).unwrap().note(imm);
        });
        let error = grant.wait().unwrap_err();
        assert!(error.to_string().contains(expected), "{error}");
    }
    // Twice the same write, though of no bytes.
    let (prefill, decode) = pair();
    let grant = decode.grant(5, &[1, 2], soon()).unwrap();
    prefill.shared().engine.lock_with(|core| {
        let shared = prefill.shared().lock();
        let lane = shared.link.lane(core).unwrap();
        lane.note(Imm::Block { transfer: 0, index: 1 });
        lane.note(Imm::Block { transfer: 0, index: 1 });
    });
    assert!(grant.wait().unwrap_err().to_string().contains("arrived before"));
}

#[test]
fn writes_of_another_length_than_was_planned_end_their_link() {
    let (prefill, decode) = pair();
    let grant = decode.grant(5, &[1, 2], soon()).unwrap();
    let begin = BEGIN_OF_TWO;
    prefill.shared().engine.lock_with(|core| {
        let state = prefill.shared().lock();
        assert!(state.link.send(core, BEGIN, |body| begin.write(body, &[0, 1], 0, 9)));
        // As many as were announced, with nothing in them.
        let lane = state.link.lane(core).unwrap();
        (0..2).for_each(|index| lane.note(Imm::Block { transfer: 0, index }));
    });
    let error = grant.wait().unwrap_err();
    let KvError::PeerFailed { cause: LaneFailure::Violation(what), .. } = &*error.cause else {
        panic!("{error}")
    };
    assert!(what.contains("another length"), "{what}");
    assert_eq!(error.verdicts.count(super::BlockVerdict::Missing), 4);
}

#[test]
fn what_a_prefill_cannot_be_told_ends_its_link_and_frees_its_blocks() {
    let grant = message::Grant { time_to_live_ms: 1000, ..TOLD };
    let cases = [
        wrong("does not belong", Kind(99), |_| Ok(())),
        wrong("malformed", GRANT, |body| body.u64(1)),
        wrong("no blocks", GRANT, move |body| message::Grant { blocks: 0, ..grant }.write(body, &[], 0, 9)),
        wrong("more than there are", GRANT, move |body| {
            message::Grant { blocks: 5, ..grant }.write(body, &[0; 5], 0, 9)
        }),
        wrong("another length", GRANT, move |body| grant.write(body, &[0, 1, 2], 0, 9)),
        wrong("another length", GRANT, move |body| {
            message::Grant { partial: true, ..grant }.write(body, &[0, 1], 0, 9)
        }),
        wrong("wrong bit", GRANT, move |body| {
            message::Grant { partial: true, ..grant }.write(body, &[0, 1, 1 << 4], 0, 9)
        }),
        wrong("out of order", GRANT, move |body| grant.write(body, &[0, 1], 1, 9)),
        wrong("malformed", DONE, |body| body.u64(1)),
        wrong("confirmation of a grant that was not made", DONE, |body| {
            Done { grant: 1, lease: 1, missing: 0, corrupt: 0 }.write(body)
        }),
        wrong("malformed", REVOKE, |body| body.u64(1)),
        wrong("revocation of a grant that was not made", REVOKE, |body| {
            Revoke { grant: 1, reason: Reason::Revoked }.write(body)
        }),
        wrong("malformed", STAGING, |body| body.u64(1)),
        wrong("staging memory", STAGING, |body| StagingAt { addr: u64::MAX - 9, rkey: 1 }.write(body)),
        wrong("malformed", UNPACKED, |body| body.u64(1)),
        wrong("unpacked writes of a grant that was not made", UNPACKED, |body| {
            Unpacked { grant: 1, writes: 0 }.write(body)
        }),
    ];
    for (expected, kind, body) in cases {
        let (prefill, decode) = pair();
        let push = prefill.push(5, &[1, 2], soon()).unwrap();
        let told = decode
            .shared()
            .engine
            .lock_with(|core| decode.shared().lock().link.send(core, kind, |writer| body(writer)));
        assert!(told);
        let error = push.wait().unwrap_err();
        let KvError::PeerFailed { cause: LaneFailure::Violation(what), .. } = &error else {
            panic!("{expected}: {error}")
        };
        assert!(what.contains(expected), "{what}, not {expected}");
        assert!(matches!(prefill.push(6, &[0], soon()), Err(KvError::LinkEnded { .. })));
    }
}

#[test]
fn granted_blocks_that_are_not_there_are_refused_before_anything_is_written() {
    let (prefill, decode) = pair();
    let push = prefill.push(5, &[1, 2], soon()).unwrap();
    let grant = message::Grant { ..TOLD };
    decode.shared().engine.lock_with(|core| {
        assert!(decode.shared().lock().link.send(core, GRANT, |body| grant.write(body, &[0, 4], 0, 9)));
    });
    let error = push.wait().unwrap_err();
    assert!(matches!(error, KvError::Plan(_)) && error.to_string().contains("block 4"), "{error}");
}

#[test]
fn a_grant_that_has_expired_is_not_begun() {
    let (prefill, decode) = pair();
    let grant = message::Grant { time_to_live_ms: 5, ..TOLD };
    decode.shared().engine.lock_with(|core| {
        assert!(decode.shared().lock().link.send(core, GRANT, |body| grant.write(body, &[0, 1], 0, 9)));
    });
    // The message arrives, and gets old.
    let deadline = Instant::now() + Duration::from_secs(10);
    while !prefill.shared().lock().has_grant(0) && Instant::now() < deadline {
        prefill.shared().engine.drive(Instant::now(), 16).unwrap();
    }
    thread::sleep(Duration::from_millis(10));
    let error = prefill.push(5, &[1, 2], soon()).unwrap().wait().unwrap_err();
    assert!(matches!(error, KvError::GrantExpired { request, .. } if request == 5.into()), "{error}");
}

#[test]
fn links_come_and_go_and_leave_nothing_behind() {
    // Room for two lanes and a little: one that stayed would keep the next ones from being made.
    let options = EngineOptions { max_cqe: 1000, ..EngineOptions::default() };
    let context = |wire| Device::soft(SoftOptions { wire, ..SoftOptions::default() }).open().unwrap();
    let (at_prefill, at_decode) = (
        Engine::new(&context(Wire::Local), options.clone()).unwrap(),
        Engine::new(&context(Wire::Local), options).unwrap(),
    );
    let layout = Layout::new(SHAPE).unwrap();
    let source = Pool::allocate(&at_prefill, &layout, PoolUse::Source).unwrap();
    let destination = Pool::allocate(&at_decode, &layout, PoolUse::Destination).unwrap();
    let options = LinkOptions::default();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    for round in 0..20 {
        if round % 4 == 0 {
            let late = Deadline::after(Duration::from_millis(1));
            let nobody = Meet::Accept(&listener);
            Decode::new(&at_decode, &destination, &nobody, &TOKEN, &options, late).unwrap_err();
        }
        thread::scope(|scope| {
            scope.spawn(|| {
                let meet = Meet::Connect(address);
                let prefill = Prefill::new(&at_prefill, &source, &meet, &TOKEN, &options, soon()).unwrap();
                prefill.push(round, &[0, 3], soon()).unwrap().wait().unwrap();
            });
            let meet = Meet::Accept(&listener);
            let decode = Decode::new(&at_decode, &destination, &meet, &TOKEN, &options, soon()).unwrap();
            assert!(decode.grant(round, &[2, 1], soon()).unwrap().wait().unwrap().verdicts.all_valid());
        });
    }
}

/// Moves one request, both ends driven.
fn assert_goes_on(prefill: &Prefill, decode: &Decode, request: u64) {
    thread::scope(|scope| {
        scope.spawn(|| prefill.push(request, &[0, 3], soon()).unwrap().wait().unwrap());
        assert!(decode.grant(request, &[2, 1], soon()).unwrap().wait().unwrap().verdicts.all_valid());
    });
}

#[test]
fn the_length_of_a_list_that_is_only_announced_takes_no_memory() {
    [1 << 30, u32::MAX].into_iter().for_each(announced);
}

/// Grants the first piece of a list of `blocks`, as a peer whose pool claims so many.
fn announced(blocks: u32) {
    let (prefill, decode) = pair();
    let theirs = Layout::new(Shape { blocks, ..SHAPE }).unwrap();
    let route = Route::new(&Layout::new(SHAPE).unwrap(), &theirs).unwrap();
    prefill.shared().lock().link.route = Arc::new(route);
    decode.shared().engine.lock_with(|core| {
        assert!(decode.shared().lock().link.send(core, GRANT, |body| {
            body.u64(1)?;
            body.put(&[1, b'5'])?;
            body.u32(9000)?;
            body.put(&[0; 5])?;
            body.u32(blocks)?;
            [blocks, 0, 1, 2].into_iter().try_for_each(|number| body.u32(number))
        }));
    });
    while !prefill.shared().lock().has_grant(0) {
        prefill.shared().engine.drive(Instant::now(), 16).unwrap();
    }
    assert!(prefill.shared().lock().grant_capacity(0) < 1000);
}

#[test]
fn a_grant_or_a_push_that_is_late_from_the_start_ends_alone() {
    let (prefill, decode) = pair();
    let late = Deadline::after(Duration::ZERO);
    for _ in 0..3 {
        let error = decode.grant(5, &[1, 2], late).unwrap().wait().unwrap_err();
        assert!(
            matches!(*error.cause, KvError::DeadlineExceeded { request, .. } if request == 5.into()),
            "{error}"
        );
        assert_eq!(error.verdicts.count(super::BlockVerdict::Missing), 4);
        assert_eq!(decode.pool().held(1), None);
        drop(decode.grant(5, &[1, 2], late).unwrap());
    }
    assert_goes_on(&prefill, &decode, 6);
    // The grant of a push that is late is there already, and waits for one that is not.
    let grant = decode.grant(5, &[1, 2], soon()).unwrap();
    while !prefill.shared().lock().has_grant(0) {
        prefill.shared().engine.drive(Instant::now(), 16).unwrap();
    }
    let error = prefill.push(5, &[1, 2], late).unwrap().wait().unwrap_err();
    assert!(matches!(error, KvError::DeadlineExceeded { request, .. } if request == 5.into()), "{error}");
    thread::scope(|scope| {
        scope.spawn(|| prefill.push(5, &[1, 2], soon()).unwrap().wait().unwrap());
        assert!(grant.wait().unwrap().verdicts.all_valid());
    });
    assert_goes_on(&prefill, &decode, 7);
}

#[test]
fn all_that_has_arrived_is_told_so_though_the_peer_cannot_be() {
    let (prefill, decode) = pair_of(SHAPE, LinkOptions { credits: 8, ..LinkOptions::default() });
    let started = Instant::now();
    let grant = decode.grant(5, &[1, 2], Deadline::after(Duration::from_millis(600))).unwrap();
    while !prefill.shared().lock().has_grant(0) {
        prefill.shared().engine.drive(Instant::now(), 16).unwrap();
    }
    // No receive is left for what decode has to say, and prefill is driven no more.
    decode.shared().engine.lock_with(|core| {
        let shared = decode.shared().lock();
        let lane = shared.link.lane(core).unwrap();
        while lane.room() > 0 {
            lane.note(Imm::Freed { count: 0 });
        }
    });
    let _pushed = prefill.push(5, &[1, 2], soon()).unwrap();
    let received = grant.wait().unwrap();
    assert!(received.verdicts.all_valid());
    assert!(started.elapsed() >= Duration::from_millis(599), "the peer had time to listen");
    assert!((0..4).all(|block| decode.pool().held(block).is_none()));
    assert!(matches!(decode.grant(6, &[0], soon()), Err(KvError::LinkEnded { .. })));
}

#[test]
fn control_messages_longer_than_their_envelope_can_say_are_cut_to_what_it_can() {
    let shape = Shape { layers: 1, blocks: 40_000, block_tokens: 1, ..SHAPE };
    let options = LinkOptions { control_bytes_max: 1 << 20, credits: 16, ..LinkOptions::default() };
    let (prefill, decode) = pair_of(shape, options);
    let blocks: Vec<u32> = (0..20_000).map(|block| block * 2).collect();
    thread::scope(|scope| {
        scope.spawn(|| prefill.push(1, &blocks, soon()).unwrap().wait().unwrap());
        assert!(decode.grant(1, &blocks, soon()).unwrap().wait().unwrap().verdicts.all_valid());
    });
}

#[test]
fn a_write_is_no_longer_than_any_device_takes() {
    let (prefill, _decode) =
        pair_of(SHAPE, LinkOptions { write_bytes_max: u32::MAX, ..LinkOptions::default() });
    assert!(prefill.shared().lock().write_bytes_max() <= 1 << 31);
}
