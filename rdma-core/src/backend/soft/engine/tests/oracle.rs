//! Random requests over a bad network, against a model that carries them out one after the other.

use proptest::prelude::*;

use super::pair::{BYTES, DEPTH, Network, Pair, send};
use crate::CompletionStatus;
use crate::RnrRetry;
use crate::backend::interface::{RawOpcode, RawSend};

/// Offset of the payloads: each end sends from here up, and is written below.
const SOURCES: u64 = 2048;
/// Offset of the receives, one every `RECEIVE` bytes.
const RECEIVES: u64 = 1024;
const RECEIVE: u64 = 16;

#[derive(Debug, Clone)]
struct Op {
    opcode: RawOpcode,
    len: u32,
    local: u64,
    remote: u64,
    imm: u32,
    signalled: bool,
}

fn op() -> impl Strategy<Value = Op> {
    let opcode = prop_oneof![
        Just(RawOpcode::Send),
        Just(RawOpcode::SendImm),
        Just(RawOpcode::Write),
        Just(RawOpcode::WriteImm),
        Just(RawOpcode::Read),
    ];
    (opcode, 0u32..=RECEIVE as u32, 0u64..1024, 0u64..1000, any::<u32>(), any::<bool>()).prop_map(
        |(opcode, len, local, remote, imm, signalled)| Op {
            opcode,
            len,
            local: SOURCES + local,
            remote,
            imm,
            signalled,
        },
    )
}

fn network() -> impl Strategy<Value = Network> {
    (0u64..20, 0u64..20, 0u64..30, any::<u64>()).prop_map(|(lost, twice, late, seed)| Network {
        lost,
        twice,
        late,
        seed,
    })
}

fn takes_receive(op: &Op) -> bool {
    !matches!(op.opcode, RawOpcode::Write | RawOpcode::Read)
}

fn raw(wr_id: u64, op: &Op) -> RawSend {
    RawSend { wr_id, imm: op.imm, signalled: op.signalled, ..send(op.opcode, op.local, op.len, op.remote) }
}

/// The model: the memory of both ends and the completions of the receives, after each request is carried out in order.
struct Model {
    here: Vec<u8>,
    there: Vec<u8>,
    receives: Vec<(u32, Option<u32>, bool)>,
}

impl Model {
    fn new() -> Self {
        let filled = |salt: usize| (0..BYTES).map(|i| (i * 7 + salt) as u8).collect();
        Self { here: filled(1), there: filled(2), receives: vec![] }
    }

    fn apply(&mut self, op: &Op) {
        let (local, remote, len) = (op.local as usize, op.remote as usize, op.len as usize);
        match op.opcode {
            RawOpcode::Read => {
                let bytes = self.there[remote..remote + len].to_vec();
                self.here[local..local + len].copy_from_slice(&bytes);
            }
            RawOpcode::Write | RawOpcode::WriteImm => {
                self.there[remote..remote + len].copy_from_slice(&self.here[local..local + len]);
            }
            RawOpcode::Send | RawOpcode::SendImm => {
                let at = (RECEIVES + RECEIVE * self.receives.len() as u64) as usize;
                self.there[at..at + len].copy_from_slice(&self.here[local..local + len]);
            }
        }
        if takes_receive(op) {
            let imm = (op.opcode != RawOpcode::Send).then_some(op.imm);
            self.receives.push((op.len, imm, op.opcode == RawOpcode::WriteImm));
        }
    }
}

/// Keeps reads apart from other requests, because the specification promises little about repeated reads: a read that
/// is sent again sees later writes, and its data may be sent by a repeated send. So reads read bytes that nobody
/// writes, into bytes that nobody sends. The last request reads everything that was written.
fn keep_reads_apart(ops: &mut Vec<Op>) {
    for (index, op) in ops.iter_mut().enumerate().filter(|(_, op)| op.opcode == RawOpcode::Read) {
        op.local = SOURCES + 1100 + RECEIVE * index as u64;
        op.remote += SOURCES;
    }
    let everything = Op { opcode: RawOpcode::Read, len: 1020, local: 0, remote: 0, imm: 0, signalled: true };
    ops.push(everything);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// Whatever the network does, every request is carried out once, in order, and told in order.
    #[test]
    fn a_bad_network_changes_nothing_but_the_time(
        mut ops in prop::collection::vec(op(), 1..48),
        network in network(),
        psn in prop_oneof![Just(0x00ff_fff0u32), 0u32..0x0100_0000],
        early in 0usize..48,
    ) {
        keep_reads_apart(&mut ops);
        let mut pair = Pair::new(network, psn);
        let mut model = Model::new();
        pair.ends[0].memory = model.here.clone();
        pair.ends[1].memory = model.there.clone();
        let needed = ops.iter().filter(|op| takes_receive(op)).count();
        let post_receives = |pair: &mut Pair, from: usize, to: usize| {
            for index in from..to {
                pair.post_recv(1, index as u64, RECEIVES + RECEIVE * index as u64, RECEIVE as u32);
            }
        };
        // Some receives come only after the sender has been told to wait.
        post_receives(&mut pair, 0, early.min(needed));
        for (index, op) in ops.iter().enumerate() {
            pair.post(0, raw(index as u64, op));
            model.apply(op);
        }
        for _ in 0..200 {
            pair.step();
        }
        post_receives(&mut pair, early.min(needed), needed);
        pair.run();

        prop_assert!(pair.ends[0].sends.iter().all(|done| done.status == 0), "{:?}", pair.ends[0].sends);
        let told: Vec<_> = pair.ends[0].sends.iter().map(|done| done.wr_id).collect();
        let signalled: Vec<_> =
            (0..ops.len()).filter(|index| ops[*index].signalled).map(|index| index as u64).collect();
        prop_assert_eq!(told, signalled);
        prop_assert_eq!(pair.ends[0].requester.len(), 0);
        let received: Vec<_> =
            pair.ends[1].receives.iter().map(|done| (done.byte_len, done.imm, done.write_imm)).collect();
        prop_assert_eq!(received, model.receives);
        let order: Vec<_> = pair.ends[1].receives.iter().map(|done| done.wr_id).collect();
        prop_assert_eq!(order, (0..needed as u64).collect::<Vec<_>>());
        prop_assert!(pair.ends[0].memory == model.here, "local memory differs");
        prop_assert!(pair.ends[1].memory == model.there, "remote memory differs");
    }

    /// The first request that the peer refuses ends both ends: what came before is done, what
    /// comes after is flushed, and every request is told once.
    #[test]
    fn a_refusal_ends_both_ends_at_the_same_request(
        mut ops in prop::collection::vec(op(), 1..32),
        bad in any::<prop::sample::Index>(),
        network in network(),
        spare in 0usize..4,
    ) {
        let bad = bad.index(ops.len());
        // No reads: while the data of a read is late, a refusal behind it is ignored, and a peer in ERR does not repeat
        // the refusal.
        for op in ops.iter_mut().filter(|op| op.opcode == RawOpcode::Read) {
            op.opcode = RawOpcode::Write;
        }
        ops[bad].opcode = RawOpcode::Write;
        ops[bad].remote = BYTES as u64 - 1;
        ops[bad].len = 2;
        // A peer in ERR says nothing more, so a lost refusal must not be waited for 255 times.
        let network = Network { lost: 0, ..network };
        let mut pair = Pair::new(network, 7);
        let mut model = Model::new();
        pair.ends[0].memory = model.here.clone();
        pair.ends[1].memory = model.there.clone();
        let before = ops[..bad].iter().filter(|op| takes_receive(op)).count();
        for index in 0..before + spare {
            pair.post_recv(1, index as u64, RECEIVES + RECEIVE * index as u64, RECEIVE as u32);
        }
        for (index, op) in ops.iter().enumerate() {
            pair.post(0, raw(index as u64, op));
            if index < bad {
                model.apply(op);
            }
        }
        pair.run();

        let failed: Vec<_> =
            pair.ends[0].sends.iter().filter(|done| done.status != 0).map(|it| (it.wr_id, it.status)).collect();
        let mut expected = vec![(bad as u64, CompletionStatus::REM_ACCESS_ERR.0)];
        expected.extend((bad as u64 + 1..ops.len() as u64).map(|id| (id, CompletionStatus::WR_FLUSH_ERR.0)));
        prop_assert_eq!(failed, expected);
        let flushed = pair.ends[1].receives.iter().filter(|done| done.status != 0).count();
        prop_assert_eq!((pair.ends[1].receives.len(), flushed), (before + spare, spare));
        prop_assert!(pair.ends[1].memory == model.there, "something was written");
        prop_assert!(pair.ends[1].requester.is_error());
    }

    /// A peer that is silent costs exactly the retries and timeouts agreed on.
    #[test]
    fn silence_costs_the_retries_agreed_on(retry_cnt in 0u8..8, count in 1usize..DEPTH) {
        let limits = super::super::requester::Limits {
            retry_cnt,
            rnr_retry: RnrRetry::Times(0),
            ..super::pair::limits()
        };
        let mut pair = Pair::with_limits(Network { lost: 100, ..Network::default() }, 1, limits);
        let begin = pair.now;
        for index in 0..count {
            pair.post(0, RawSend { wr_id: index as u64, ..send(RawOpcode::Write, 0, 1, 0) });
        }
        pair.run();
        prop_assert_eq!(pair.now - begin, limits.ack_timeout * (u32::from(retry_cnt) + 1));
        let statuses: Vec<_> = pair.ends[0].sends.iter().map(|done| done.status).collect();
        let mut expected = vec![CompletionStatus::WR_FLUSH_ERR.0; count];
        expected[0] = CompletionStatus::RETRY_EXC_ERR.0;
        prop_assert_eq!(statuses, expected);
    }

    /// A peer without a receive costs exactly the waits agreed on.
    #[test]
    fn a_peer_without_receives_costs_the_waits_agreed_on(times in 0u8..7) {
        let rnr_retry = RnrRetry::Times(times);
        let limits = super::super::requester::Limits { rnr_retry, ..super::pair::limits() };
        let mut pair = Pair::with_limits(Network::default(), 1, limits);
        let begin = pair.now;
        pair.post(0, send(RawOpcode::Send, 0, 1, 0));
        pair.run();
        prop_assert_eq!(pair.ends[0].sends[0].status, CompletionStatus::RNR_RETRY_EXC_ERR.0);
        let wait = crate::RnrTimer::new(10).duration();
        let round_trip = std::time::Duration::from_micros(20);
        prop_assert_eq!(pair.now - begin, wait * u32::from(times) + round_trip * (u32::from(times) + 1));
    }
}
