//! Every state of both machines against every event, as tables for a reader to check.

use std::fmt::Write;
use std::time::{Duration, Instant};

use super::super::decision::Refusal;
use super::super::effect::{Buffer, Effect};
use super::super::keys::{Domain, KeyTable};
use super::super::message::{Nak, Reply, ReplyKind, Request, RequestOp};
use super::super::requester::{Limits, Requester, State as Sender};
use super::super::responder::{Responder, Rules, Verdict};
use super::pair::{BASE, BYTES, KEY, send};
use crate::backend::interface::{RawCompletion, RawOpcode, RawRecv, RawSend};
use crate::backend::soft::fault::Injected;
use crate::{Access, CompletionStatus, RnrRetry};

const DOMAIN: Domain = Domain(1);
const TIMEOUT: Duration = Duration::from_millis(1);

fn keys() -> KeyTable {
    let mut keys = KeyTable::default();
    let rights = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ;
    let Ok(_) = keys.insert(DOMAIN, BASE, BYTES as u64, rights, || Ok::<_, std::convert::Infallible>(KEY));
    keys
}

fn effects(requester: &mut Requester, now: Instant) -> String {
    let mut told = Vec::new();
    while let Some(effect) = requester.poll_effect(now, &keys(), DOMAIN) {
        told.push(match effect {
            Effect::Rewind => "rewind".to_owned(),
            Effect::Transmit { request, .. } => format!("send {}", request.psn),
            Effect::Complete(done) => completion(&done),
        });
    }
    if told.is_empty() { "nothing".to_owned() } else { told.join(", ") }
}

fn completion(done: &RawCompletion) -> String {
    let (status, _) = CompletionStatus(done.status).explain().unwrap();
    format!("complete {} {status}", done.wr_id)
}

/// A requester with two outstanding requests of these opcodes, from psn 5 on.
fn requester(start: Instant, opcodes: [RawOpcode; 2], last_retry: bool) -> Requester {
    let mut requester = Requester::new(8);
    let (retry_cnt, rnr_retry) = if last_retry { (0, RnrRetry::Times(0)) } else { (7, RnrRetry::Unlimited) };
    requester.start(5, Limits { ack_timeout: TIMEOUT, retry_cnt, rnr_retry, max_rd_atomic: 4 });
    for (index, opcode) in opcodes.into_iter().enumerate() {
        requester.post(RawSend { wr_id: index as u64 + 1, ..send(opcode, 0, 8, 0) }).unwrap();
    }
    effects(&mut requester, start);
    requester
}

#[test]
fn a_request_whose_completion_somebody_waits_for_asks_for_its_acknowledgement() {
    let now = Instant::now();
    for (opcode, signalled, asks) in [
        (RawOpcode::Send, true, true),
        (RawOpcode::WriteImm, true, true),
        (RawOpcode::Write, false, false),
        (RawOpcode::SendImm, false, false),
        (RawOpcode::Read, true, false),
    ] {
        let mut it = Requester::new(8);
        it.start(
            5,
            Limits { ack_timeout: TIMEOUT, retry_cnt: 7, rnr_retry: RnrRetry::Unlimited, max_rd_atomic: 4 },
        );
        it.post(RawSend { signalled, ..send(opcode, 0, 8, 0) }).unwrap();
        let Some(Effect::Transmit { request, .. }) = it.poll_effect(now, &keys(), DOMAIN) else {
            panic!("{opcode:?} is not sent")
        };
        assert_eq!(request.ack_req, asks, "{opcode:?}, signalled: {signalled}");
        it.handle_timeout(now + TIMEOUT);
        assert!(matches!(it.poll_effect(now + TIMEOUT, &keys(), DOMAIN), Some(Effect::Rewind)));
        let Some(Effect::Transmit { request, .. }) = it.poll_effect(now + TIMEOUT, &keys(), DOMAIN) else {
            panic!("{opcode:?} is not sent again")
        };
        assert_eq!(request.ack_req, opcode != RawOpcode::Read, "{opcode:?}, sent again");
    }
}

/// Each acknowledgement would otherwise send the read and all behind it again, and use up a retry.
#[test]
fn acknowledgements_behind_a_lost_answer_ask_for_it_once() {
    let now = Instant::now();
    let mut it = Requester::new(8);
    let rnr_retry = RnrRetry::Unlimited;
    it.start(5, Limits { ack_timeout: TIMEOUT, retry_cnt: 2, rnr_retry, max_rd_atomic: 4 });
    for opcode in [RawOpcode::Read, RawOpcode::Write, RawOpcode::Write, RawOpcode::Write, RawOpcode::Write] {
        it.post(RawSend { wr_id: 1, signalled: false, ..send(opcode, 0, 8, 0) }).unwrap();
    }
    effects(&mut it, now);
    let again = "rewind, send 5, send 6, send 7, send 8, send 9";
    let hear = |it: &mut Requester, psn, kind, len| {
        let landing = it.handle_reply(now, &Reply { psn, kind, len });
        if let Some(Buffer { serial, .. }) = landing {
            it.landed(now, serial);
        }
        effects(it, now)
    };
    assert_eq!(hear(&mut it, 6, ReplyKind::Ack, 0), again);
    for _ in 0..20 {
        for psn in 6..10 {
            assert_eq!(hear(&mut it, psn, ReplyKind::Ack, 0), "nothing");
        }
    }
    // The second data is lost as well: now the timer asks.
    it.handle_timeout(now + TIMEOUT);
    assert_eq!(effects(&mut it, now), again);
    assert_eq!(hear(&mut it, 5, ReplyKind::ReadData, 8), "nothing");
    assert_eq!(hear(&mut it, 9, ReplyKind::Ack, 0), "nothing");
    assert_eq!(it.len(), 0, "not all is carried out");
}

#[test]
fn sending_again_on_another_wire_does_not_put_off_the_timer() {
    let now = Instant::now();
    let mut it = requester(now, [RawOpcode::Write, RawOpcode::Write], true);
    let due = it.poll_timeout().unwrap();
    for step in 1..10 {
        it.resend();
        assert_eq!(effects(&mut it, now + TIMEOUT * step / 10), "rewind, send 5, send 6");
        assert_eq!(it.poll_timeout(), Some(due));
    }
    it.handle_timeout(due);
    assert!(it.is_error(), "it never times out");
}

#[test]
fn what_is_being_placed_is_not_once_the_responder_is_lent() {
    let mut it = responder("Expecting");
    let verdict = it.handle_request(&request(RequestOp::Write, 5), Injected::Deliver, &keys(), DOMAIN);
    let Verdict::Place { serial, .. } = verdict else { panic!("{verdict:?}") };
    assert!(it.holds(serial, &keys()));
    it.lend();
    assert!(!it.holds(serial, &keys()));
}

type Made = Box<dyn Fn(Instant) -> Requester>;

fn senders() -> Vec<(&'static str, Made)> {
    use RawOpcode::{Read, Write};
    let made = |opcodes, last| -> Made { Box::new(move |start| requester(start, opcodes, last)) };
    vec![
        ("Unready", Box::new(|_| Requester::new(8))),
        (
            "Sending, idle",
            Box::new(|start| {
                let mut it = requester(start, [Write, Write], false);
                it.handle_reply(start, &Reply { psn: 6, kind: ReplyKind::Ack, len: 0 });
                effects(&mut it, start);
                it
            }),
        ),
        ("Sending, two writes", made([Write, Write], false)),
        ("Sending, two writes, last retry", made([Write, Write], true)),
        ("Sending, a read and a write", made([Read, Write], false)),
        (
            "Backoff",
            Box::new(|start| {
                let mut it = requester(start, [Write, Write], false);
                it.handle_reply(start, &Reply { psn: 5, kind: ReplyKind::Rnr { timer: 1 }, len: 0 });
                effects(&mut it, start);
                it
            }),
        ),
        (
            "Error",
            Box::new(|start| {
                let mut it = requester(start, [Write, Write], false);
                it.fail(Some(CompletionStatus::REM_OP_ERR));
                effects(&mut it, start);
                it
            }),
        ),
    ]
}

#[test]
fn requester_by_state_and_event() {
    let start = Instant::now();
    let reply = |psn, kind, len| Some(Reply { psn, kind, len });
    let replies = [
        ("ack of the first", reply(5, ReplyKind::Ack, 0)),
        ("ack of both", reply(6, ReplyKind::Ack, 0)),
        ("ack of none", reply(4, ReplyKind::Ack, 0)),
        ("ack of what was not sent", reply(7, ReplyKind::Ack, 0)),
        ("data for the first", reply(5, ReplyKind::ReadData, 8)),
        ("data of a wrong length", reply(5, ReplyKind::ReadData, 9)),
        ("rnr of the first", reply(5, ReplyKind::Rnr { timer: 1 }, 0)),
        ("rnr of the second", reply(6, ReplyKind::Rnr { timer: 1 }, 0)),
        ("nak sequence", reply(5, ReplyKind::Nak(Nak::Sequence), 0)),
        ("nak invalid request", reply(6, ReplyKind::Nak(Nak::InvalidRequest), 0)),
        ("nak remote access", reply(5, ReplyKind::Nak(Nak::RemoteAccess), 0)),
        ("nak remote operational", reply(5, ReplyKind::Nak(Nak::RemoteOperational), 0)),
        ("timer", None),
    ];
    let mut table = String::new();
    for (name, make) in senders() {
        writeln!(table, "{name}").unwrap();
        for (event, reply) in &replies {
            let mut it = make(start);
            match reply {
                Some(reply) => {
                    let landing = it.handle_reply(start, reply);
                    if let Some(Buffer { serial, .. }) = landing {
                        it.landed(start, serial);
                    }
                }
                None => it.handle_timeout(start + TIMEOUT),
            }
            let did = effects(&mut it, start);
            writeln!(table, "  {event}: {did} -> {}", sender_state(&it, start)).unwrap();
        }
        for (event, act) in [("post", true), ("fail", false)] {
            let mut it = make(start);
            if act {
                it.post(RawSend { wr_id: 9, ..send(RawOpcode::Write, 0, 8, 0) }).unwrap();
            } else {
                it.fail(None);
            }
            let did = effects(&mut it, start);
            writeln!(table, "  {event}: {did} -> {}", sender_state(&it, start)).unwrap();
        }
    }
    insta::assert_snapshot!(table);
}

fn sender_state(it: &Requester, start: Instant) -> String {
    let timer = it.poll_timeout().map_or("no timer".to_owned(), |at| format!("{:?}", at - start));
    let state = match it.state {
        Sender::Backoff { .. } => "Backoff".to_owned(),
        state => format!("{state:?}"),
    };
    format!("{state}, {timer}")
}

fn responder(state: &str) -> Responder {
    let mut it = Responder::new(4);
    let rules = Rules { access: Access::REMOTE_WRITE | Access::REMOTE_READ, rnr_timer: 1 };
    if state != "Unready" {
        it.start(5, rules);
    }
    match state {
        "Awaiting" => {
            it.handle_request(&request(RequestOp::Write, 9), Injected::Deliver, &keys(), DOMAIN);
        }
        "Error" => it.fail(),
        _ => {}
    }
    it
}

fn request(op: RequestOp, psn: u32) -> Request {
    Request { psn, op, imm: None, remote_addr: BASE, rkey: KEY, len: 8, ack_req: false }
}

#[test]
fn responder_by_state_and_event() {
    let write = request(RequestOp::Write, 5);
    let read = request(RequestOp::Read, 5);
    let sent = request(RequestOp::Send, 5);
    let events = [
        ("write", write),
        ("write with immediate", Request { imm: Some(1), ..write }),
        ("write of nothing", Request { len: 0, rkey: 0, ..write }),
        ("write beyond the end", Request { remote_addr: BASE + BYTES as u64, ..write }),
        ("write again", Request { psn: 4, ..write }),
        ("write too early", Request { psn: 6, ..write }),
        ("read", read),
        ("read again", Request { psn: 4, ..read }),
        ("read with a wrong key", Request { rkey: KEY + 1, ..read }),
        ("send", sent),
        ("send longer than the receive", Request { len: 17, ..sent }),
        ("send again", Request { psn: 4, ..sent }),
    ];
    let mut table = String::new();
    for state in ["Unready", "Expecting", "Awaiting", "Error"] {
        for receives in [0, 1] {
            writeln!(table, "{state}, receives: {receives}").unwrap();
            for (event, request) in &events {
                let mut it = responder(state);
                for wr_id in 0..receives {
                    it.post(RawRecv { wr_id, addr: BASE, len: 16, lkey: KEY }).unwrap();
                }
                let mut verdict = it.handle_request(request, Injected::Deliver, &keys(), DOMAIN);
                let mut placed = "";
                if let Verdict::Place { serial, .. } = verdict {
                    placed = "place, ";
                    verdict = it.placed(serial, &keys());
                }
                if let Verdict::Answer { refused: Some(_), .. } = verdict {
                    it.fail();
                }
                let flushed = it.next_flushed().map_or("", |_| ", then a flush");
                let verdict = describe(&verdict);
                writeln!(table, "  {event}: {placed}{verdict}{flushed} -> {:?}", it.state).unwrap();
            }
        }
    }
    insta::assert_snapshot!(table);
}

fn describe(verdict: &Verdict) -> String {
    let reply = |reply: &Reply| format!("{:?} {}", reply.kind, reply.psn);
    let took =
        |done: &Option<RawCompletion>| done.map_or(String::new(), |done| format!(", {}", completion(&done)));
    match verdict {
        Verdict::Silence => "silence".to_owned(),
        Verdict::Place { .. } => "place".to_owned(),
        Verdict::Serve { reply: it, .. } => reply(it),
        Verdict::Answer { reply: it, receive, refused } => {
            let event = refused.and_then(Refusal::event);
            let event = event.map_or(String::new(), |event| format!(", event: {event}"));
            format!("{}{}{event}", reply(it), took(receive))
        }
    }
}
