//! Runs one list of operations on the engine's responder and on a remote responder, and compares every outcome.

use std::collections::BTreeSet;

use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;

use super::{ALL, BASE, DOMAIN, Rig, execute, export, terms, try_execute_small};
use crate::backend::interface::{RawCompletion, RawRecv};
use crate::backend::soft::engine::decision::Refusal;
use crate::backend::soft::engine::keys::{Domain, KeyTable, Registered};
use crate::backend::soft::engine::message::{Reply, ReplyKind, Request, RequestOp};
use crate::backend::soft::engine::responder::{Responder, Verdict};
use crate::backend::soft::engine::sequence;
use crate::backend::soft::fault::Injected;
use crate::backend::soft::wire::shm::Outcome;
use crate::{Access, EventKind};

/// Bytes of the memory.
const BYTES: usize = 8192;
/// Bytes of the longest message.
const LOCAL: usize = 9000;
const DEPTH: usize = 3;
/// Keys that the list may name; higher ones were never registered.
const KEYS: u32 = 6;

#[derive(Debug, Clone)]
enum Op {
    Register {
        key: u32,
        domain: u32,
        addr: u64,
        len: u64,
        access: Access,
    },
    Deregister {
        key: u32,
    },
    PostRecv {
        addr: u64,
        len: u32,
        lkey: u32,
    },
    Request {
        request: Request,
        ahead: i32,
        not_ready: bool,
        /// Tries the fast path first, and the general path when that declines.
        try_small: bool,
    },
    /// The owner moves the queue pair to ERR.
    Fail,
}

fn key() -> impl Strategy<Value = u32> {
    1..=KEYS + 1
}

/// Addresses mostly around the positions where registrations begin and end.
fn addr() -> impl Strategy<Value = u64> {
    prop_oneof![
        6 => (0u64..8, 0u64..80).prop_map(|(page, byte)| BASE + 1024 * page + byte),
        2 => (0u64..BYTES as u64 + 64).prop_map(|byte| BASE + byte),
        1 => Just(u64::MAX - 3),
        1 => any::<u64>(),
    ]
}

fn len() -> impl Strategy<Value = u32> {
    prop_oneof![8 => 0u32..80, 1 => Just(1024u32), 1 => 0u32..LOCAL as u32]
}

fn access() -> impl Strategy<Value = Access> {
    let (local, read) = (Access::LOCAL_WRITE, Access::LOCAL_WRITE | Access::REMOTE_READ);
    prop_oneof![5 => Just(ALL), 1 => Just(local), 1 => Just(read), 1 => Just(Access::empty())]
}

fn request() -> impl Strategy<Value = Request> {
    let op = prop_oneof![Just(RequestOp::Send), Just(RequestOp::Write), Just(RequestOp::Read)];
    (op, any::<Option<u32>>(), addr(), key(), len()).prop_map(|(op, imm, remote_addr, rkey, len)| {
        let imm = imm.filter(|_| op != RequestOp::Read);
        Request { psn: 0, op, imm, remote_addr, rkey, len, ack_req: false }
    })
}

fn op() -> impl Strategy<Value = Op> {
    let domain = prop_oneof![7 => Just(DOMAIN.0), 1 => Just(DOMAIN.0 + 1)];
    let begin = (0u64..8).prop_map(|page| BASE + 1024 * page);
    let ahead = prop_oneof![8 => Just(0i32), 1 => -2i32..=2];
    let not_ready = prop_oneof![9 => Just(false), 1 => Just(true)];
    prop_oneof![
        3 => (1..=KEYS, domain, begin, 1u64..4096, access()).prop_map(|(key, domain, addr, len, access)| {
            Op::Register { key, domain, addr, len: len.min(BASE + BYTES as u64 - addr), access }
        }),
        1 => (1..=KEYS).prop_map(|key| Op::Deregister { key }),
        3 => (addr(), len(), key()).prop_map(|(addr, len, lkey)| Op::PostRecv { addr, len, lkey }),
        10 => (request(), ahead, not_ready, any::<bool>()).prop_map(|(request, ahead, not_ready, try_small)| {
            Op::Request { request, ahead, not_ready, try_small: try_small && !not_ready }
        }),
    ]
}

/// A completion in a form that compares.
pub(super) fn told(done: Option<RawCompletion>) -> Option<String> {
    done.map(|done| format!("{done:?}"))
}

/// The outcome of one request.
#[derive(Debug, PartialEq)]
pub(super) struct Came {
    pub(super) outcome: Outcome,
    pub(super) completion: Option<String>,
    pub(super) refusal: Option<Option<EventKind>>,
    pub(super) read: Option<Vec<u8>>,
}

/// The engine's responder, with the keys and memory of its device.
pub(super) struct Model {
    pub(super) responder: Responder,
    pub(super) keys: KeyTable,
    pub(super) memory: Vec<u8>,
    pub(super) failed: bool,
}

impl Model {
    /// Carries out a request as the wire inside a process does.
    pub(super) fn request(&mut self, request: &Request, payload: &[u8], not_ready: bool) -> Came {
        let injected = if not_ready { Injected::NotReady } else { Injected::Deliver };
        let mut verdict = self.responder.handle_request(request, injected, &self.keys, DOMAIN);
        if let Verdict::Place { addr, len, serial } = verdict {
            let (at, len) = ((addr - BASE) as usize, len as usize);
            self.memory[at..at + len].copy_from_slice(&payload[..len]);
            verdict = self.responder.placed(serial, &self.keys);
        }
        let mut came = Came { outcome: Outcome::Silence, completion: None, refusal: None, read: None };
        match verdict {
            Verdict::Silence | Verdict::Place { .. } => {}
            Verdict::Serve { reply, addr, .. } => {
                came.outcome = Outcome::Reply(reply);
                let at = addr.wrapping_sub(BASE) as usize;
                let bytes = if reply.len == 0 { &[][..] } else { &self.memory[at..at + reply.len as usize] };
                came.read = Some(bytes.to_vec());
            }
            Verdict::Answer { reply, receive, refused } => {
                came.outcome = Outcome::Reply(reply);
                came.completion = told(receive);
                came.refusal = refused.map(Refusal::event);
            }
        }
        came
    }
}

/// Both responders, side by side.
struct Pair {
    model: Model,
    rig: Rig,
    psn: u32,
    serial: u64,
    salt: u8,
    /// Kinds of outcomes so far.
    seen: BTreeSet<String>,
}

impl Pair {
    fn new(access: Access) -> Self {
        let mut terms = terms(DEPTH);
        terms.rules.access = access;
        let mut responder = Responder::new(DEPTH);
        responder.start(terms.expected, terms.rules);
        let keys = KeyTable::default();
        let model = Model { responder, keys, memory: vec![0; BYTES], failed: false };
        let rig = Rig::new(BYTES, terms);
        let psn = rig.psn;
        let mut pair = Self { model, rig, psn, serial: 0, salt: 0, seen: BTreeSet::new() };
        let len = BYTES as u64;
        pair.register(1, Registered { domain: DOMAIN, addr: BASE, len, access: ALL, serial: 0 });
        pair
    }

    fn register(&mut self, key: u32, registered: Registered) {
        if self.model.keys.get(key).is_some() {
            return;
        }
        self.serial += 1;
        let Registered { domain, addr, len, access, .. } = registered;
        let drawn = self.model.keys.insert(domain, addr, len, access, || Ok::<_, ()>(key));
        assert_eq!(drawn, Ok(key));
        assert!(self.rig.keys.insert(&export(key, Registered { serial: self.serial, ..registered })));
    }

    fn deregister(&mut self, key: u32) {
        if let Some(removed) = self.model.keys.remove(key) {
            self.rig.keys.remove(key, removed.serial);
        }
    }

    fn request(
        &mut self,
        request: Request,
        (ahead, not_ready, try_small): (i32, bool, bool),
    ) -> Result<(), TestCaseError> {
        let psn = sequence::add(self.psn, (ahead & 0x00ff_ffff) as usize);
        let request = Request { psn, ..request };
        self.salt = self.salt.wrapping_add(1);
        let mut local: Vec<u8> = (0..LOCAL).map(|i| (i as u8).wrapping_mul(7) ^ self.salt).collect();
        let expected = self.model.request(&request, &local, not_ready);
        let injected = if not_ready { Injected::NotReady } else { Injected::Deliver };
        let tried =
            if try_small { try_execute_small(&mut self.rig.responder, &request, &mut local) } else { None };
        if tried.is_some() {
            self.seen.insert(format!("{:?} at once", request.op));
        }
        let executed = match tried {
            Some(executed) => executed,
            None => execute(&mut self.rig.responder, &request, &mut local, injected),
        };
        let is_read = matches!(executed.outcome, Outcome::Reply(Reply { kind: ReplyKind::ReadData, .. }));
        let refusal = self.rig.mailbox.refusal();
        prop_assert_eq!(executed.nudge, refusal.is_some());
        let came = Came {
            outcome: executed.outcome,
            completion: told(self.rig.mailbox.take()),
            refusal,
            read: is_read.then(|| local[..request.len as usize].to_vec()),
        };
        prop_assert_eq!(&came, &expected, "{:?}", request);
        prop_assert!(self.rig.mailbox.take().is_none());
        self.see(&request, ahead, &expected);
        let carried_out = matches!(
            expected.outcome,
            Outcome::Reply(Reply { kind: ReplyKind::Ack | ReplyKind::ReadData, psn, .. }) if psn == self.psn
        );
        self.psn = if carried_out { sequence::add(self.psn, 1) } else { self.psn };
        if expected.refusal.is_some() {
            self.fail()?;
        }
        Ok(())
    }

    fn see(&mut self, request: &Request, ahead: i32, came: &Came) {
        let kind = match came.outcome {
            Outcome::Reply(reply) => format!("{:?}", reply.kind),
            other => format!("{other:?}"),
        };
        let event = came.refusal.map(|event| event.map_or(0, |event| event.0));
        let order = if ahead == 0 { "next" } else { "other" };
        self.seen.insert(format!("{:?} {order}: {kind} {event:?}", request.op));
    }

    fn fail(&mut self) -> Result<(), TestCaseError> {
        self.model.failed = true;
        self.model.responder.fail();
        self.rig.mailbox.close();
        self.flush()
    }

    fn flush(&mut self) -> Result<(), TestCaseError> {
        while let Some(expected) = self.model.responder.next_flushed() {
            prop_assert_eq!(told(self.rig.mailbox.next_flushed()), told(Some(expected)));
        }
        prop_assert!(self.rig.mailbox.next_flushed().is_none());
        prop_assert!(!self.model.failed || self.rig.mailbox.receives.is_empty());
        Ok(())
    }

    fn step(&mut self, index: usize, op: &Op) -> Result<(), TestCaseError> {
        match *op {
            Op::Register { key, domain, addr, len, access } => {
                self.register(key, Registered { domain: Domain(domain), addr, len, access, serial: 0 });
            }
            Op::Deregister { key } => self.deregister(key),
            Op::PostRecv { addr, len, lkey } => {
                let recv = RawRecv { wr_id: index as u64, addr, len, lkey };
                let (theirs, ours) = (self.model.responder.post(recv), self.rig.mailbox.post_recv(recv));
                prop_assert_eq!(theirs.is_ok(), ours.is_ok());
                self.flush()?;
            }
            Op::Request { request, ahead, not_ready, try_small } => {
                self.request(request, (ahead, not_ready, try_small))?
            }
            Op::Fail => self.fail()?,
        }
        Ok(())
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    #[test]
    fn a_port_does_what_the_engine_does(
        ops in prop::collection::vec(op(), 1..64),
        access in access(),
        fails in prop::option::of(0usize..64),
    ) {
        let mut pair = Pair::new(access);
        for (index, op) in ops.iter().enumerate() {
            if fails == Some(index) {
                pair.step(index, &Op::Fail)?;
            }
            pair.step(index, op)?;
        }
        prop_assert!(pair.rig.bytes()[..BYTES] == pair.model.memory, "memory differs");
    }
}

/// Snapshot of the outcomes that random lists reach: it shows that they cover every row of the responder's table.
#[test]
fn random_lists_reach_every_outcome() {
    let mut runner = TestRunner::deterministic();
    let mut seen = BTreeSet::new();
    let lists = (prop::collection::vec(op(), 1..64), access());
    for _ in 0..400 {
        let (ops, access) = lists.new_tree(&mut runner).unwrap().current();
        let mut pair = Pair::new(access);
        for (index, op) in ops.iter().enumerate() {
            pair.step(index, op).unwrap();
        }
        seen.append(&mut pair.seen);
    }
    insta::assert_snapshot!(seen.into_iter().collect::<Vec<_>>().join("\n"));
}
