//! Every state of a responder against every request. The outcome is the recorded one, in this process and in shared
//! memory.
//!
//! The record is older than [`decide`](crate::backend::soft::engine::decision::decide): it was made at 2f7198b of the
//! three responders that decided for themselves then.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::oracle::{Came, Model, told};
use super::{ALL, BASE, DOMAIN, Rig, execute, export, terms, try_execute_small};
use crate::Access;
use crate::backend::interface::RawRecv;
use crate::backend::soft::engine::keys::{Domain, KeyTable, Registered};
use crate::backend::soft::engine::message::{Reply, ReplyKind, Request, RequestOp};
use crate::backend::soft::engine::responder::Responder;
use crate::backend::soft::engine::sequence;
use crate::backend::soft::fault::Injected;
use crate::backend::soft::wire::shm::{Executed, Mailbox, Outcome};

const BYTES: usize = 4096;
const UNKNOWN: u32 = 6;
/// The registrations by key, from 1 on: domain and rights. Each has 64 bytes at `BASE`.
const REGISTERED: [(Domain, Access); 6] = [
    (DOMAIN, ALL),
    (DOMAIN, Access::LOCAL_WRITE.union(Access::REMOTE_READ)),
    (DOMAIN, Access::LOCAL_WRITE.union(Access::REMOTE_WRITE)),
    (DOMAIN, Access::LOCAL_WRITE),
    (Domain(DOMAIN.0 + 1), ALL),
    (DOMAIN, Access::empty()),
];
const NO_LOCAL_WRITE: u32 = 7;

#[derive(Debug, Clone, Copy, PartialEq)]
enum Standing {
    Fresh,
    /// A gap was complained about.
    Awaiting,
    /// A request was refused, and the owner does not know yet.
    Refused,
    Closed,
}

#[derive(Debug, Clone, Copy)]
struct Before {
    standing: Standing,
    grants: Access,
    receive: Option<RawRecv>,
}

#[derive(Debug, Clone, Copy)]
struct Asked {
    request: Request,
    not_ready: bool,
}

fn key_of(index: usize) -> u32 {
    // Key 6 stays unknown.
    if index + 1 < UNKNOWN as usize { index as u32 + 1 } else { NO_LOCAL_WRITE }
}

fn states() -> Vec<(String, Before)> {
    let recv = |len, lkey| Some(RawRecv { wr_id: 77, addr: BASE, len, lkey });
    let receives = [
        ("no receive", None),
        ("a receive", recv(64, 1)),
        ("a short receive", recv(8, 1)),
        ("an unknown receive", recv(64, UNKNOWN)),
        ("a foreign receive", recv(64, 5)),
        ("a receive without right", recv(64, NO_LOCAL_WRITE)),
    ];
    let (read, write) = (Access::REMOTE_READ, Access::REMOTE_WRITE);
    let grants = [("none", Access::empty()), ("read", read), ("write", write), ("both", read | write)];
    let mut states = Vec::new();
    for standing in [Standing::Fresh, Standing::Awaiting, Standing::Refused, Standing::Closed] {
        for (granted, grants) in grants {
            for (has, receive) in receives {
                let name = format!("{standing:?}, grants {granted}, {has}");
                states.push((name, Before { standing, grants, receive }));
            }
        }
    }
    states
}

fn requests(psn: u32) -> Vec<Asked> {
    let targets = [
        (1, BASE),
        (1, BASE + 40),
        (1, BASE - 1),
        (1, u64::MAX - 3),
        (2, BASE),
        (3, BASE),
        (4, BASE),
        (5, BASE),
        (UNKNOWN, BASE),
    ];
    let mut asked = Vec::new();
    for (op, imm) in [
        (RequestOp::Send, None),
        (RequestOp::Send, Some(9)),
        (RequestOp::Write, None),
        (RequestOp::Write, Some(9)),
        (RequestOp::Read, None),
    ] {
        let targets = if op == RequestOp::Send { &targets[..1] } else { &targets[..] };
        for &(rkey, remote_addr) in targets {
            for (ahead, not_ready) in [(-1, false), (0, false), (0, true), (1, false), (1 << 23, false)] {
                for len in [0, 8, 16, 64] {
                    let psn = sequence::add(psn, (ahead & 0x00ff_ffff) as usize);
                    asked.push(Asked {
                        request: Request { psn, op, imm, remote_addr, rkey, len, ack_req: false },
                        not_ready,
                    });
                }
            }
        }
    }
    asked
}

/// Both responders, in one state. The keys and the memory are those of all pairs.
struct Pair {
    model: Model,
    rig: Rig,
    psn: u32,
}

impl Pair {
    fn new() -> Self {
        let (mut keys, mut rig) = (KeyTable::default(), Rig::new(BYTES, terms(1)));
        for (index, (domain, access)) in REGISTERED.into_iter().enumerate() {
            let (key, serial) = (key_of(index), index as u64 + 1);
            let registered = Registered { domain, addr: BASE, len: 64, access, serial };
            assert_eq!(keys.insert(domain, BASE, 64, access, || Ok::<_, ()>(key)), Ok(key));
            assert!(rig.keys.insert(&export(key, registered)));
        }
        let model = Model { responder: Responder::new(1), keys, memory: vec![0; BYTES], failed: false };
        Self { model, psn: rig.psn, rig }
    }

    /// Puts both responders into a state.
    fn begin(&mut self, before: &Before) {
        let mut terms = terms(1);
        terms.rules.access = before.grants;
        self.model.responder = Responder::new(1);
        self.model.responder.start(terms.expected, terms.rules);
        self.rig.mailbox = Mailbox::create(&terms, DOMAIN).unwrap();
        self.rig.responder = self.rig.another_responder();
        if let Some(recv) = before.receive {
            self.model.responder.post(recv).unwrap();
            self.rig.mailbox.post_recv(recv).unwrap();
        }
        match before.standing {
            Standing::Fresh => {}
            Standing::Awaiting => {
                self.gap();
            }
            Standing::Refused => {
                let request = Request {
                    psn: self.psn,
                    op: RequestOp::Write,
                    imm: None,
                    remote_addr: BASE,
                    rkey: UNKNOWN,
                    len: 8,
                    ack_req: false,
                };
                let asked = Asked { request, not_ready: false };
                self.engine(&asked);
                self.shared(&asked);
            }
            Standing::Closed => {
                self.model.responder.fail();
                self.rig.mailbox.close();
            }
        }
    }

    fn engine(&mut self, asked: &Asked) -> Came {
        let came = self.model.request(&asked.request, &[0; 64], asked.not_ready);
        if came.refusal.is_some() {
            self.model.responder.fail();
        }
        came
    }

    fn shared(&mut self, asked: &Asked) -> Came {
        let (mut local, injected) = (vec![0; 64], injected(asked.not_ready));
        let executed = execute(&mut self.rig.responder, &asked.request, &mut local, injected);
        self.concluded(asked, &executed, local)
    }

    /// The outcome of the path of small requests, where that takes the request.
    fn small(&mut self, asked: &Asked) -> Option<Came> {
        let mut local = vec![0; 64];
        let executed = try_execute_small(&mut self.rig.responder, &asked.request, &mut local)?;
        Some(self.concluded(asked, &executed, local))
    }

    fn concluded(&mut self, asked: &Asked, executed: &Executed, mut local: Vec<u8>) -> Came {
        let is_read = matches!(executed.outcome, Outcome::Reply(Reply { kind: ReplyKind::ReadData, .. }));
        local.truncate(asked.request.len as usize);
        let completion = told(self.rig.mailbox.take());
        let refusal = self.rig.mailbox.refusal();
        Came { outcome: executed.outcome, completion, refusal, read: is_read.then_some(local) }
    }

    /// Sends a request far ahead, whose answer shows what is expected next and whether that was said before.
    fn gap(&mut self) -> [String; 2] {
        let psn = sequence::add(self.psn, 1000);
        let request =
            Request { psn, op: RequestOp::Send, imm: None, remote_addr: 0, rkey: 0, len: 0, ack_req: false };
        let asked = Asked { request, not_ready: false };
        [format!("{:?}", self.engine(&asked).outcome), format!("{:?}", self.shared(&asked).outcome)]
    }
}

fn injected(not_ready: bool) -> Injected {
    if not_ready { Injected::NotReady } else { Injected::Deliver }
}

/// An outcome as text, without the names of types.
fn text(came: &Came) -> String {
    let Came { outcome, completion, refusal, read } = came;
    format!("{outcome:?} {completion:?} {:?} {read:?}", refusal)
}

/// FNV-1a, which stays the same from one toolchain to the next.
fn digest(digest: u64, text: &str) -> u64 {
    text.bytes().fold(digest, |digest, byte| (digest ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

/// The name of an outcome, to count by.
fn kind(came: &Came) -> String {
    match came.outcome {
        Outcome::Reply(Reply { kind, .. }) => format!("{kind:?}"),
        other => format!("{other:?}"),
    }
}

#[test]
fn every_pair_of_state_and_request_has_the_recorded_outcome() {
    let (mut pair, mut record, mut differ) = (Pair::new(), String::new(), Vec::new());
    for (name, before) in states() {
        let (mut counts, mut all) = (BTreeMap::<String, u32>::new(), 0xcbf2_9ce4_8422_2325);
        for asked in requests(pair.psn) {
            pair.begin(&before);
            let (engine, shared) = (pair.engine(&asked), pair.shared(&asked));
            let [after, after_shared] = pair.gap();
            pair.begin(&before);
            let small = if asked.not_ready { None } else { pair.small(&asked) };
            if (&engine, &after) != (&shared, &after_shared) || small.as_ref().is_some_and(|it| *it != engine)
            {
                differ.push(format!(
                    "{name}, {asked:?}: {engine:?} {shared:?} {small:?} {after} {after_shared}"
                ));
            }
            *counts.entry(kind(&engine)).or_default() += 1;
            *counts.entry("at once".to_owned()).or_default() += u32::from(small.is_some());
            all = digest(all, &format!("{} {after};", text(&engine)));
        }
        let counts: Vec<_> = counts.iter().map(|(kind, count)| format!("{count} {kind}")).collect();
        writeln!(record, "{name}: {} [{all:016x}]", counts.join(", ")).unwrap();
    }
    assert!(differ.is_empty(), "{} pairs differ: {:#?}", differ.len(), &differ[..differ.len().min(20)]);
    insta::assert_snapshot!(record);
}
