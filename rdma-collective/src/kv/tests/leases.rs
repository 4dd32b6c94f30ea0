//! Messages about leases that one end cannot receive.

use super::*;
use crate::kv::message::{
    EXTEND, Extend, LEASE_CHECKSUMS, OFFER, Offer, RECALL, RELEASE, Recall, Release, TAKE, Take,
    write_checksums,
};

const OFFERED: Offer =
    Offer { lease: 1, request: RequestId::digit(9), time_to_live_ms: 9000, tokens: false, note: false };
const EXTENDED: Extend = Extend { id: 1, time_to_live_ms: 9000 };

#[test]
fn what_a_decode_cannot_be_told_of_leases_ends_its_link_and_frees_its_blocks() {
    let cases = [
        wrong("malformed", OFFER, |body| body.u64(1)),
        wrong("no blocks", OFFER, |body| OFFERED.write(body, &[], 0, 9)),
        wrong("more than there are", OFFER, |body| OFFERED.write(body, &[0; 5], 0, 9)),
        wrong("out of order", OFFER, |body| OFFERED.write(body, &[0, 1], 1, 9)),
        wrong("malformed", RECALL, |body| body.u64(1)),
        wrong("recall of a lease that was not offered", RECALL, |body| {
            Recall { lease: 1, reason: Reason::Revoked }.write(body)
        }),
        wrong("malformed", EXTEND, |body| body.u64(1)),
        wrong("extension of a lease that was not offered", EXTEND, |body| EXTENDED.write(body)),
        wrong("malformed", LEASE_CHECKSUMS, |body| body.u64(1)),
        wrong("lease that was not offered", LEASE_CHECKSUMS, |body| write_checksums(body, 1, 4, 0, &[1])),
    ];
    for (expected, kind, body) in cases {
        let (prefill, decode) = pair();
        let grant = decode.grant(5, &[1, 2], soon()).unwrap();
        let shared = prefill.shared();
        assert!(shared.engine.lock_with(|core| shared.lock().link.send(core, kind, |writer| body(writer))));
        let error = grant.wait().unwrap_err();
        assert!(error.to_string().contains(expected), "{error}, not {expected}");
        assert!((0..4).all(|block| decode.pool().held(block).is_none()));
    }
}

#[test]
fn what_a_prefill_cannot_be_told_of_leases_ends_its_link_and_frees_its_blocks() {
    let release = Release { lease: 1, done: true, reads: 0, corrupt: 0, bytes: 0 };
    let cases = [
        wrong("malformed", TAKE, |body| body.u64(1)),
        wrong("not given", TAKE, |body| Take { lease: 1, checksums: true }.write(body)),
        wrong("malformed", EXTEND, |body| body.u64(1)),
        wrong("extension of a grant that was not made", EXTEND, |body| EXTENDED.write(body)),
        wrong("malformed", RELEASE, |body| body.u64(1)),
        wrong("lease that is not open", RELEASE, move |body| release.write(body)),
    ];
    for (expected, kind, body) in cases {
        let (prefill, decode) = pair();
        let push = prefill.push(5, &[1, 2], soon()).unwrap();
        let shared = decode.shared();
        assert!(shared.engine.lock_with(|core| shared.lock().link.send(core, kind, |writer| body(writer))));
        let error = push.wait().unwrap_err();
        assert!(error.to_string().contains(expected), "{error}, not {expected}");
        assert!(matches!(prefill.push(6, &[0], soon()), Err(KvError::LinkEnded { .. })));
    }
}

#[test]
fn more_than_was_offered_cannot_have_been_read() {
    let (prefill, decode) = pair();
    let offer = prefill.offer(9, &[1, 2], soon()).unwrap();
    let release = Release { lease: 1, done: true, reads: 1, corrupt: 0, bytes: 1 << 40 };
    let shared = decode.shared();
    assert!(
        shared.engine.lock_with(|core| shared.lock().link.send(core, RELEASE, |body| release.write(body)))
    );
    let error = offer.wait().unwrap_err();
    assert!(error.to_string().contains("more than was offered"), "{error}");
}
