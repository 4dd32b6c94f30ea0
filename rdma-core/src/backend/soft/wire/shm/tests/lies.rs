//! Random words wherever the other side may write: no panic, no access out of bounds, and every receive completed
//! once.

use std::sync::atomic::Ordering;

use proptest::prelude::*;

use super::super::layout::{OF_WRITE, ring_offsets};
use super::super::shared_slice::SharedSlice;
use super::chunks::Word;
use super::{ALL, BASE, DOMAIN, Rig, execute, export, mapped, terms, try_execute_small};
use crate::backend::soft::engine::keys::Registered;
use crate::backend::soft::engine::message::{Request, RequestOp};
use crate::backend::soft::engine::sequence;
use crate::backend::soft::fault::Injected;
use crate::backend::soft::wire::shm::RemoteResponder;
use crate::backend::soft::wire::shm::segment::READ_WRITE;
use crate::{Access, CompletionStatus, EventKind, RemoteKey, RemoteMemory};

const DEPTH: usize = 4;
/// Words of the mailbox up to the end of its rings.
const WORDS: usize = (256 + 2 * 32 * DEPTH) / 4;
/// Words of the key table entries that the test uses.
const KEY_WORDS: usize = 64 * 4 / 4;

#[derive(Debug, Clone)]
enum Act {
    Lie { word: usize, value: u32 },
    LieOfKeys { word: usize, value: u32 },
    Request { op: RequestOp, imm: Option<u32>, key: u32, addr: u64, len: u32, not_ready: bool },
    Window { key: u32, addr: u64, len: u64 },
    Post { len: u32, lkey: u32 },
    Take,
    Close,
}

fn value() -> impl Strategy<Value = u32> {
    prop_oneof![4 => 0u32..8, 1 => Just(u32::MAX), 1 => Just(0x7000_0000), 2 => any::<u32>()]
}

fn act() -> impl Strategy<Value = Act> {
    let op = prop_oneof![Just(RequestOp::Send), Just(RequestOp::Write), Just(RequestOp::Read)];
    let addr = prop_oneof![3 => (0u64..4096).prop_map(|byte| BASE + byte), 1 => any::<u64>()];
    let request = (op, any::<Option<u32>>(), 0u32..4, addr.clone(), 0u32..5000, prop::bool::weighted(0.1));
    let window = (0u32..4, addr, prop_oneof![4 => 0u64..5000, 1 => any::<u64>()]);
    prop_oneof![
        6 => (0..WORDS, value()).prop_map(|(word, value)| Act::Lie { word, value }),
        3 => (0..KEY_WORDS, value()).prop_map(|(word, value)| Act::LieOfKeys { word, value }),
        6 => request.prop_map(|(op, imm, key, addr, len, not_ready)| {
            Act::Request { op, imm, key, addr, len, not_ready }
        }),
        3 => window.prop_map(|(key, addr, len)| Act::Window { key, addr, len }),
        3 => (0u32..5000, 0u32..4).prop_map(|(len, lkey)| Act::Post { len, lkey }),
        4 => Just(Act::Take),
        1 => prop::bool::weighted(0.05).prop_map(|closes| if closes { Act::Close } else { Act::Take }),
    ]
}

/// The owner's view: receives in order, each completed once, none lost.
struct Owner {
    rig: Rig,
    posted: Vec<u32>,
    told: u64,
}

impl Owner {
    fn take(&mut self) -> Result<(), TestCaseError> {
        let next = self.rig.mailbox.take().or_else(|| self.rig.mailbox.next_flushed());
        if let Some(done) = next {
            prop_assert_eq!(done.wr_id, self.told);
            let known = [
                CompletionStatus::SUCCESS,
                CompletionStatus::LOC_LEN_ERR,
                CompletionStatus::LOC_PROT_ERR,
                CompletionStatus::LOC_QP_OP_ERR,
                CompletionStatus::WR_FLUSH_ERR,
            ];
            prop_assert!(known.contains(&CompletionStatus(done.status)), "{:?}", done);
            let posted = self.posted[self.told as usize];
            prop_assert!(done.write_imm || done.byte_len <= posted, "{:?} {}", done, posted);
            self.told += 1;
        }
        let lied = done_cannot_be(next.map(|done| done.status));
        prop_assert!(!lied || self.rig.mailbox.refusal().is_some(), "a lie was not told");
        let _ = self.rig.mailbox.refusal();
        Ok(())
    }

    fn post(&mut self, len: u32, lkey: u32) {
        let wr_id = self.posted.len() as u64;
        let recv = crate::backend::interface::RawRecv { wr_id, addr: BASE, len, lkey };
        if self.rig.mailbox.post_recv(recv).is_ok() {
            self.posted.push(len);
        }
    }
}

fn done_cannot_be(status: Option<u32>) -> bool {
    status == Some(CompletionStatus::LOC_QP_OP_ERR.0)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1500))]

    #[test]
    fn a_lying_peer_gets_nothing_but_nonsense(acts in prop::collection::vec(act(), 1..96)) {
        let mut owner = Owner { rig: Rig::new(4096, terms(DEPTH)), posted: vec![], told: 0 };
        owner.rig.expose(1, 1);
        owner.rig.expose(2, 2);
        let of_window = Registered { domain: DOMAIN, addr: BASE, len: 4096, access: ALL | Access::WINDOW, serial: 3 };
        prop_assert!(owner.rig.keys.insert(&export(3, of_window)));
        let words: SharedSlice<Word> = SharedSlice::new(owner.rig.mailbox.segment(), 0, WORDS).unwrap();
        let keys: SharedSlice<Word> = SharedSlice::new(owner.rig.keys.segment(), 0, KEY_WORDS).unwrap();
        let theirs = mapped(owner.rig.mailbox.segment(), READ_WRITE);
        let mut local = vec![0; 5000];
        for act in acts {
            match act {
                Act::Lie { word, value } => words[word].0.store(value, Ordering::Relaxed),
                Act::LieOfKeys { word, value } => keys[word].0.store(value, Ordering::Relaxed),
                Act::Request { op, imm, key, addr, len, not_ready } => {
                    let (psn, rkey) = (owner.rig.psn, key);
                    let request = Request { psn, op, imm, remote_addr: addr, rkey, len, ack_req: false };
                    let injected = if not_ready { Injected::NotReady } else { Injected::Deliver };
                    if not_ready || try_execute_small(&mut owner.rig.responder, &request, &mut local).is_none() {
                        execute(&mut owner.rig.responder, &request, &mut local, injected);
                    }
                    owner.rig.psn = sequence::add(psn, 1);
                    // A writer that connects now must survive these words, too.
                    let _ = RemoteResponder::new(&theirs, owner.rig.keys.segment());
                }
                Act::Window { key, addr, len } => {
                    let memory = RemoteMemory { addr, len, rkey: RemoteKey(key) };
                    // Everything inside the window can be accessed.
                    if let Ok(window) = owner.rig.responder.window(memory) {
                        prop_assert_eq!(window.len() as u64, len);
                        window.copy_in(0, &vec![1; window.len()]).unwrap();
                    }
                }
                Act::Post { len, lkey } => owner.post(len, lkey),
                Act::Take => owner.take()?,
                Act::Close => owner.rig.mailbox.close(),
            }
        }
        // Whatever happened, the end comes: every receive is completed once.
        owner.rig.mailbox.close();
        owner.rig.mailbox.mark_writer_gone();
        for _ in 0..2 * owner.posted.len() + 1 {
            owner.take()?;
        }
        prop_assert_eq!(owner.told, owner.posted.len() as u64);
        prop_assert!(owner.rig.mailbox.receives.is_empty());
    }
}

#[test]
fn a_completion_that_cannot_be_fails_the_queue_pair() {
    const LEN: u32 = 8;
    // Status, length and flags of a completion, and the expected result; the third is of a write.
    let impossible = Some((CompletionStatus::LOC_QP_OP_ERR, Some(EventKind::QP_FATAL)));
    let cases = [
        (1, (0, LEN, 0), Some((CompletionStatus::SUCCESS, None))),
        (1, (0, LEN + 1, 0), impossible),
        (1, (0, LEN + 1, OF_WRITE), Some((CompletionStatus::SUCCESS, None))),
        (1, (77, 0, 0), impossible),
        (1, (CompletionStatus::WR_FLUSH_ERR.0, 0, 0), impossible),
        (1, (CompletionStatus::LOC_PROT_ERR.0, 0, 0), Some((CompletionStatus::LOC_PROT_ERR, None))),
        (0, (0, 0, 0), None),
    ];
    for (receives, (status, byte_len, flags), expected) in cases {
        let mut rig = Rig::new(1, terms(DEPTH));
        (0..receives).for_each(|wr_id| rig.post(wr_id, BASE, LEN, 1));
        let completions = ring_offsets(DEPTH).unwrap().completions;
        let entry: SharedSlice<Word> = SharedSlice::new(rig.mailbox.segment(), completions, 6).unwrap();
        for (word, value) in [(2, status), (3, byte_len), (5, flags), (0, 1)] {
            entry[word].0.store(value, Ordering::Relaxed);
        }
        let done = rig.mailbox.take().map(|done| CompletionStatus(done.status));
        let event = rig.mailbox.refusal().flatten();
        let told = expected.unwrap_or((CompletionStatus::SUCCESS, Some(EventKind::QP_FATAL)));
        assert_eq!(
            (done, event),
            (expected.map(|(status, _)| status), told.1),
            "{status} {byte_len} {flags}"
        );
        assert!(rig.mailbox.take().is_none());
    }
}
