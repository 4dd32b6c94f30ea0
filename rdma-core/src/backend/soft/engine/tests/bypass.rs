//! The way past the send queue, compared with the way through it: both must leave the requester in the same state.

use std::time::Instant;

use proptest::prelude::*;

use super::super::effect::{Buffer, Effect};
use super::super::keys::{Domain, KeyTable};
use super::super::message::{Nak, Reply, ReplyKind, Request, RequestOp};
use super::super::requester::{Limits, Requester};
use super::pair::{BASE, BYTES, KEY, limits, send};
use crate::Access;
use crate::backend::interface::{RawCompletion, RawOpcode, RawSend};

const DOMAIN: Domain = Domain(1);

fn keys() -> KeyTable {
    let mut keys = KeyTable::default();
    let Ok(_) = keys
        .insert(DOMAIN, BASE, BYTES as u64, Access::LOCAL_WRITE, || Ok::<_, std::convert::Infallible>(KEY));
    keys
}

fn requester(psn: u32, limits: Limits) -> Requester {
    let mut requester = Requester::new(4);
    requester.start(psn, limits);
    requester
}

/// Through the queue, and carried out at once: the request, and the completion if there is one.
fn through(it: &mut Requester, now: Instant, send: RawSend) -> (Request, Option<RawCompletion>) {
    it.post(send).unwrap();
    let Some(Effect::Transmit { request, .. }) = it.poll_effect(now, &keys(), DOMAIN) else {
        panic!("nothing is handed out");
    };
    let (kind, len) = match request.op {
        RequestOp::Read => (ReplyKind::ReadData, request.len),
        RequestOp::Send | RequestOp::Write => (ReplyKind::Ack, 0),
    };
    if let Some(Buffer { serial, .. }) = it.handle_reply(now, &Reply { psn: request.psn, kind, len }) {
        it.landed(now, serial);
    }
    match it.poll_effect(now, &keys(), DOMAIN) {
        None => (request, None),
        Some(Effect::Complete(done)) => (request, Some(done)),
        Some(other) => panic!("{other:?}"),
    }
}

proptest! {
    #[test]
    fn who_is_passed_goes_on_as_who_was_acknowledged(
        psn in 0_u32..1 << 24,
        steps in prop::collection::vec((0_usize..5, 0_u32..64, any::<bool>(), any::<bool>()), 0..40),
    ) {
        use RawOpcode::{Read, Send, SendImm, Write, WriteImm};
        let now = Instant::now();
        let (mut passed, mut queued) = (requester(psn, limits()), requester(psn, limits()));
        for (wr_id, (opcode, len, signalled, ahead)) in (0..).zip(steps) {
            let opcode = [Read, Send, SendImm, Write, WriteImm][opcode];
            let send = RawSend { wr_id, signalled, ..send(opcode, 0, len, 0) };
            let done = if ahead {
                let request = passed.bypass_request(&send, &keys(), DOMAIN).unwrap();
                (request, passed.complete_bypassed(&send))
            } else {
                through(&mut passed, now, send)
            };
            prop_assert_eq!(format!("{done:?}"), format!("{:?}", through(&mut queued, now, send)));
        }
        prop_assert_eq!(format!("{passed:?}"), format!("{queued:?}"));
    }
}

#[test]
fn nothing_goes_ahead_of_what_is_in_the_queue_nor_after_the_end_nor_against_the_rules() {
    let now = Instant::now();
    let write = send(RawOpcode::Write, 0, 8, 0);
    let ahead = |it: &Requester, send: &RawSend| it.bypass_request(send, &keys(), DOMAIN).is_some();
    assert!(!ahead(&Requester::new(4), &write), "before RTS");

    let mut it = requester(5, limits());
    assert!(ahead(&it, &write));
    for wrong in [RawSend { lkey: KEY + 1, ..write }, send(RawOpcode::Write, BYTES as u64, 1, 0)] {
        assert!(!ahead(&it, &wrong), "{wrong:?}");
    }
    assert!(it.bypass_request(&write, &keys(), Domain(2)).is_none(), "of another domain");
    it.post(write).unwrap();
    assert!(!ahead(&it, &write), "it is not handed out");
    it.poll_effect(now, &keys(), DOMAIN);
    assert!(!ahead(&it, &write), "it is outstanding");
    it.handle_reply(now, &Reply { psn: 5, kind: ReplyKind::Rnr { timer: 1 }, len: 0 });
    assert!(!ahead(&it, &write), "the peer is to be left alone for a while");
    it.fail(None);
    while it.poll_effect(now, &keys(), DOMAIN).is_some() {}
    assert!(!ahead(&it, &write), "after the end");

    let none = requester(5, Limits { max_rd_atomic: 0, ..limits() });
    assert!(!ahead(&none, &send(RawOpcode::Read, 0, 8, 0)), "no reads were agreed on");

    let mut refused = requester(5, limits());
    refused.post(write).unwrap();
    refused.poll_effect(now, &keys(), DOMAIN);
    let nak = ReplyKind::Nak(Nak::RemoteAccess);
    refused.handle_reply(now, &Reply { psn: 5, kind: nak, len: 0 });
    assert!(!ahead(&refused, &write));
}
