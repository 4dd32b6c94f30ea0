//! Links that are opened by blobs alone: in either order, and with every blob that is none of theirs.

use std::thread;
use std::time::{Duration, Instant};

use crate::common::{WIRES, long};
use crate::pair::{CANARY, SHAPE, TOKEN, assert_moved, engine, pool, source_byte, transfer};
use rdma_collective::bootstrap::JobToken;
use rdma_collective::engine::Engine;
use rdma_collective::engine::SetupError;
use rdma_collective::kv::LinkError;
use rdma_collective::kv::layout::LayoutError;
use rdma_collective::kv::layout::{CacheType, Shape};
use rdma_collective::kv::{Decode, LinkOptions, Pool, PoolUse, Prefill, Prepared};
use rdma_collective::link::BlobError;
use rdma_core::{Deadline, Wire};

/// The offset of the version in a blob, as `docs/wire.md` has it.
const BLOB_VERSION: usize = 4;

/// Both ends before they are connected, each on an engine of its own.
struct Ends {
    prefill: Prepared<Prefill>,
    decode: Prepared<Decode>,
    destination: Pool,
    _source: Pool,
    _engines: [Engine; 2],
}

fn ends(wire: Wire) -> Ends {
    let (at_prefill, at_decode) = (engine(wire, None), engine(wire, None));
    let source = pool(&at_prefill, SHAPE, PoolUse::Source, source_byte);
    let destination = pool(&at_decode, SHAPE, PoolUse::Destination, |_, _, _| CANARY);
    let options = LinkOptions::default();
    let prefill = Prefill::prepare(&at_prefill, &source, &TOKEN, &options).unwrap();
    let decode = Decode::prepare(&at_decode, &destination, &TOKEN, &options).unwrap();
    Ends { prefill, decode, destination, _source: source, _engines: [at_prefill, at_decode] }
}

/// The blob of a decode that goes at once.
fn decode_blob(engine: &Engine, shape: Shape, token: &JobToken, options: &LinkOptions) -> Vec<u8> {
    let pool = pool(engine, shape, PoolUse::Destination, |_, _, _| CANARY);
    Decode::prepare(engine, &pool, token, options).unwrap().export().to_vec()
}

fn soon() -> Deadline {
    Deadline::after(Duration::from_millis(200))
}

#[test]
fn either_end_connects_first_and_the_first_words_are_not_lost() {
    for wire in WIRES {
        for prefill_first in [true, false] {
            let Ends { mut prefill, mut decode, destination, _source, _engines } = ends(wire);
            let (to_decode, to_prefill) = (prefill.export().to_vec(), decode.export().to_vec());
            assert!(to_decode.len().max(to_prefill.len()) <= 2048);
            // Longer than the device repeats anything by itself, which here is some 30 ms.
            let pause = |first| if first { Duration::ZERO } else { Duration::from_millis(400) };
            let started = Instant::now();
            let (prefill, decode) = thread::scope(|scope| {
                let prefill = scope.spawn(|| {
                    thread::sleep(pause(prefill_first));
                    prefill.connect(&to_prefill, long()).unwrap()
                });
                thread::sleep(pause(!prefill_first));
                let decode = decode.connect(&to_decode, long()).unwrap();
                // Far below the timeout by which the device alone would have repeated it.
                assert!(started.elapsed() < Duration::from_secs(6), "{:?}", started.elapsed());
                // Before the other has had time to begin anything.
                let grant = decode.grant(1, &[4], long()).unwrap();
                let prefill = prefill.join().unwrap();
                let push = prefill.push(1, &[3], long()).unwrap();
                let pushed = scope.spawn(|| push.wait().unwrap());
                assert!(grant.wait().unwrap().verdicts.all_valid());
                pushed.join().unwrap();
                (prefill, decode)
            });
            transfer(&prefill, &decode, 2, &[(0, 23), (1, 0)]);
            assert_moved(&destination, &[(3, 4), (0, 23), (1, 0)]);
            assert!(
                prefill.peer().to_string().contains(&std::process::id().to_string()),
                "{}",
                prefill.peer()
            );
        }
    }
}

#[test]
fn a_blob_that_is_of_no_end_of_this_link_is_refused_by_name_and_a_better_one_connects() {
    let Ends { mut prefill, mut decode, destination, _source, _engines } = ends(Wire::Local);
    let stranger = engine(Wire::Local, None);
    let good = decode.export().to_vec();
    let options = LinkOptions::default();
    let refused = |prefill: &mut Prepared<Prefill>, blob: &[u8]| prefill.connect(blob, long()).unwrap_err();

    let other_job = decode_blob(&stranger, SHAPE, &JobToken::from_bytes([9; 16]), &options);
    let error = refused(&mut prefill, &other_job);
    assert!(matches!(error, LinkError::Setup(SetupError::Blob(BlobError::OtherJob))), "{error}");
    let other = Shape { cache_type: CacheType::Fp8E5m2, ..SHAPE };
    let error = refused(&mut prefill, &decode_blob(&stranger, other, &TOKEN, &options));
    let LinkError::Layout(LayoutError::Differs { field, ours, theirs }) = &error else { panic!("{error}") };
    assert_eq!((*field, &**ours, &**theirs), ("cache type", "bfloat16", "fp8_e5m2"));
    let own = prefill.export().to_vec();
    let error = refused(&mut prefill, &own);
    assert!(matches!(error, LinkError::SameUse(PoolUse::Source)), "{error}");

    let mut version = good.clone();
    version[BLOB_VERSION] += 1;
    let error = refused(&mut prefill, &version);
    assert!(matches!(error, LinkError::Setup(SetupError::Blob(BlobError::OtherVersion { .. }))), "{error}");
    for len in 0..good.len() {
        let error = refused(&mut prefill, &good[..len]);
        assert!(
            matches!(error, LinkError::Setup(SetupError::Blob(BlobError::Truncated { .. }))),
            "{len} bytes: {error}"
        );
    }
    let error = refused(&mut prefill, &[&good[..], b"\n"].concat());
    assert!(matches!(error, LinkError::Setup(SetupError::Blob(BlobError::Malformed { .. }))), "{error}");
    let mut altered = good.clone();
    altered[60] ^= 1;
    let error = refused(&mut prefill, &altered);
    assert!(matches!(error, LinkError::Setup(SetupError::Blob(BlobError::Altered))), "{error}");
    let error = refused(&mut prefill, b"{\"blob\": null}");
    assert!(matches!(error, LinkError::Setup(SetupError::Blob(BlobError::NotABlob))), "{error}");

    let to_decode = prefill.export().to_vec();
    let (prefill, decode) = thread::scope(|scope| {
        let prefill = scope.spawn(|| prefill.connect(&good, long()).unwrap());
        let decode = decode.connect(&to_decode, long()).unwrap();
        (prefill.join().unwrap(), decode)
    });
    transfer(&prefill, &decode, 1, &[(5, 6)]);
    assert_moved(&destination, &[(5, 6)]);
}

#[test]
fn a_peer_that_does_not_connect_is_an_error_at_the_deadline() {
    for wire in WIRES {
        let Ends { mut prefill, decode, .. } = ends(wire);
        let started = Instant::now();
        let error = prefill.connect(decode.export(), soon()).unwrap_err();
        assert!(matches!(error, LinkError::Setup(SetupError::PeerSilent { .. })), "{error}");
        assert!((200..10_000).contains(&started.elapsed().as_millis()));
        let error = prefill.connect(decode.export(), soon()).unwrap_err();
        assert!(matches!(error, LinkError::Setup(SetupError::LaneGone)), "{error}");
    }
}

#[test]
fn a_blob_of_an_end_that_is_gone_connects_to_nobody() {
    let refused = |wire| {
        let Ends { prefill, mut decode, _engines, .. } = ends(wire);
        let gone = prefill.export().to_vec();
        drop(prefill);
        let error = decode.connect(&gone, Deadline::after(Duration::from_secs(5))).unwrap_err();
        assert!(
            matches!(
                error,
                LinkError::Setup(SetupError::PeerLost { .. })
                    | LinkError::Setup(SetupError::PeerSilent { .. })
            ),
            "{error}"
        );
    };
    thread::scope(|scope| WIRES.iter().for_each(|wire| drop(scope.spawn(|| refused(*wire)))));
}

#[test]
fn ends_that_are_never_connected_leave_no_lane_behind() {
    let engine = engine(Wire::Local, None);
    let pool = pool(&engine, SHAPE, PoolUse::Source, source_byte);
    // More receives in all than the completion queue has room for.
    for _ in 0..50 {
        drop(Prefill::prepare(&engine, &pool, &TOKEN, &LinkOptions::default()).unwrap());
    }
    pool.close(long()).unwrap().remove(0).deregister().unwrap();
}
