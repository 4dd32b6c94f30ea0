//! Groups in one process, whose ranks take their steps in an order that the test chooses.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use proptest::prelude::*;
use rdma_core::{Deadline, Device, SoftOptions, WorkerOptions, loopback};

use super::*;

/// The groups of all ranks, after `rounds` rounds.
fn groups(ranks: u32, rounds: u64) -> Vec<HostGroup> {
    let context = Device::soft(SoftOptions::default()).open().unwrap();
    let pd = context.alloc_pd().unwrap();
    let mut worker = context.worker(WorkerOptions::default()).unwrap();
    let (qp, _other) = loopback(&mut worker, &pd).unwrap();
    let windows: Vec<Window> =
        (0..ranks).map(|_| pd.alloc_window(HostGroup::window_bytes(ranks)).unwrap()).collect();
    let soon = Deadline::after(Duration::from_secs(20));
    let mut map = |window: &Window| worker.peer_window(&qp, window.remote(), soon).unwrap();
    let peers: Vec<PeerWindow> = windows.iter().map(&mut map).collect();
    let group = |(rank, own)| {
        let but_own = |(other, peer): (usize, &PeerWindow)| (other != rank).then(|| peer.clone());
        let group = HostGroup::new(own, peers.iter().enumerate().map(but_own).collect(), Vec::new());
        group.rounds.ended.store(rounds, Ordering::Relaxed);
        group.rounds.taken.iter().for_each(|taken| taken.store(rounds, Ordering::Relaxed));
        group
    };
    windows.into_iter().enumerate().map(group).collect()
}

impl HostGroup {
    /// The group of rank 1 of two, which may not write. The other rank has sent `theirs`.
    pub(crate) fn refused(theirs: &Header) -> Self {
        let [other, own] = groups(2, 0).try_into().unwrap();
        other.put(1, theirs, &[0; 4]).unwrap();
        // The window is too short, so its slots lie beyond the end.
        let context = Device::soft(SoftOptions::default()).open().unwrap();
        let pd = context.alloc_pd().unwrap();
        let mut worker = context.worker(WorkerOptions::default()).unwrap();
        let (qp, _other) = loopback(&mut worker, &pd).unwrap();
        let short = pd.alloc_window(64).unwrap();
        let soon = Deadline::after(Duration::from_secs(20));
        let short = worker.peer_window(&qp, short.remote(), soon).unwrap();
        Self { peers: vec![Some(short), None], ..own }
    }

    /// Leaves a message for rank `to` whose header is damaged.
    pub(crate) fn spoil(&self, to: u32, header: &Header) {
        let peer = self.peers[to as usize].as_ref().unwrap();
        let mut line = header.in_line();
        line[2] |= 1 << 24;
        let at = self.slot(header.rank, self.round());
        peer.copy_in(at, &line.map(u64::to_le_bytes).concat()).unwrap();
        peer.store(at + FLAG_AT, Self::flag(self.round())).unwrap();
    }
}

fn header(rank: u32, sequence: u64) -> Header {
    Header { rank, sequence, count: 1, collective: 1, data_type: 2, reduction: 3, root: 4 }
}

fn message(rank: u32, round: u64, len: usize) -> Vec<u8> {
    (0..len).map(|at| (u64::from(rank) * 31 + round * 7 + at as u64) as u8).collect()
}

/// The messages that the ranks need in a round.
#[derive(Clone, Copy, Debug)]
enum Kind {
    /// Every rank needs every message.
    All,
    /// Every rank needs the message of this rank.
    From(u32),
    /// This rank needs the messages of all others.
    To(u32),
}

impl Kind {
    fn needs(self, own: u32, from: u32) -> bool {
        match self {
            Self::All => true,
            Self::From(root) => root == from,
            Self::To(root) => root == own,
        }
    }

    /// The other ranks whose messages `own` needs.
    fn needed(self, own: u32, ranks: u32) -> Vec<u32> {
        (0..ranks).filter(|from| *from != own && self.needs(own, *from)).collect()
    }
}

/// The progress of one rank in its round.
#[derive(Default)]
struct At {
    done: u64,
    begun: bool,
    told: u32,
}

/// Takes one step if possible: begins a round, writes a message, or ends the round. It reads messages at the end,
/// which is the latest moment.
fn step(group: &HostGroup, at: &mut At, (kind, len): (Kind, usize), ranks: u32) {
    let (own, others) = (group.rank, group.others().collect::<Vec<u32>>());
    if !at.begun {
        at.begun = others.iter().all(|from| group.take(*from, group.round().wrapping_sub(AHEAD)).unwrap());
        if at.begun {
            group.begin_round(&header(own, at.done));
        }
    } else if let Some(to) = others.get(at.told as usize) {
        group.put(*to, &header(own, at.done), &message(own, at.done, len)).unwrap();
        at.told += 1;
    } else {
        let needed = kind.needed(own, ranks);
        if needed.iter().all(|from| group.take(*from, group.round()).unwrap()) {
            for from in needed {
                let mut read = vec![0; len];
                group.read(from, (0, len), &mut read);
                assert_eq!(read, message(from, at.done, len), "rank {from} of round {}", at.done);
            }
            group.end_round();
            *at = At { done: at.done + 1, ..At::default() };
        }
    }
}

fn kinds(ranks: u32) -> impl Strategy<Value = Kind> {
    prop_oneof![Just(Kind::All), (0..ranks).prop_map(Kind::From), (0..ranks).prop_map(Kind::To)]
}

/// Generates the number of ranks, the rounds, and the order of steps.
type Run = (u32, Vec<(Kind, usize)>, Vec<(u32, usize)>);

/// Generates an order of steps in which some ranks get many turns in a row.
fn runs() -> impl Strategy<Value = Run> {
    (2_u32..6).prop_flat_map(|ranks| {
        let len = prop_oneof![0..34_usize, 0..200_usize, Just(message_bytes_max(ranks))];
        let rounds = prop::collection::vec((kinds(ranks), len), 1..40);
        (Just(ranks), rounds, prop::collection::vec((0..ranks, 1..200_usize), 0..60))
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    /// In any order of steps, every rank reads the messages that it needs, and only those of its own round, however far
    /// the others are ahead. Flags may wrap.
    #[test]
    fn no_message_is_taken_early_or_overwritten(
        (ranks, rounds, order) in runs(),
        before in prop_oneof![Just(0_u64), Just(u64::MAX - GENERATIONS - 4)],
    ) {
        let groups = groups(ranks, before);
        let mut at: Vec<At> = (0..ranks).map(|_| At::default()).collect();
        // These turns are enough if no message is lost.
        let in_turn = (0..400).flat_map(|_| (0..ranks).map(|rank| (rank, 1)));
        for (rank, steps) in order.into_iter().chain(in_turn) {
            for _ in 0..steps {
                let at = &mut at[rank as usize];
                let Some(round) = rounds.get(at.done as usize) else { break };
                step(&groups[rank as usize], at, *round, ranks);
            }
        }
        prop_assert!(at.iter().all(|at| at.done == rounds.len() as u64), "a message is lost");
    }
}

/// The state of two ranks: rounds ended, whether the next has begun, messages written, messages taken.
type Pair = [(u64, bool, u64, u64); 2];

/// Explores all states of two ranks that need no message of each other. A third rank or a needed message could only
/// take steps away. No state may let a rank write into a slot that the other has not taken, or still reads.
fn can_overwrite(ahead: u64, generations: u64) -> bool {
    let (mut seen, mut left) = (HashSet::new(), vec![[(0, false, 0, 0); 2]]);
    while let Some(pair) = left.pop() {
        let pair: Pair = pair;
        if pair.iter().any(|rank| rank.0 > 2 * generations) || !seen.insert(pair) {
            continue;
        }
        for own in 0..2 {
            let (round, begun, put, taken) = pair[own];
            let (other, _, theirs, has_taken) = pair[1 - own];
            let mut go = |next| {
                let mut pair = pair;
                pair[own] = next;
                left.push(pair);
            };
            // Before a round begins, a rank takes messages only to get room.
            if taken < theirs && taken + if begun { 0 } else { ahead } <= round {
                go((round, begun, put, taken + 1));
            }
            if !begun && taken + ahead > round {
                go((round, true, put, taken));
            }
            if begun && put == round {
                let is_there = round.checked_sub(generations);
                if is_there.is_some_and(|before| has_taken <= before || other <= before) {
                    return true;
                }
                go((round, begun, round + 1, taken));
            }
            if begun && put > round {
                go((round + 1, false, put, taken));
            }
        }
    }
    false
}

#[test]
fn nothing_is_overwritten_whatever_two_ranks_do_and_with_less_room_it_would_be() {
    assert!(!can_overwrite(AHEAD, GENERATIONS));
    assert!(can_overwrite(AHEAD, GENERATIONS - 1) && can_overwrite(AHEAD + 1, GENERATIONS));
}

/// With all others stopped, a root goes on until its next slot is not free, and no further.
#[test]
fn who_only_gives_is_ahead_by_the_rounds_that_there_is_room_for_and_no_more() {
    for ranks in 2..=RANKS_MAX {
        let groups = groups(ranks, 0);
        for root in 0..ranks {
            let group = &groups[root as usize];
            let begun = group.round();
            let mut at = At { done: begun, ..At::default() };
            for _ in 0..2 * GENERATIONS * u64::from(ranks + 1) {
                step(group, &mut at, (Kind::From(root), 8), ranks);
            }
            assert_eq!(group.round() - begun, AHEAD, "root {root} of {ranks}");
            // Every other rank has received all messages then.
            for other in group.others() {
                let group = &groups[other as usize];
                let mut at = At { done: begun, ..At::default() };
                for _ in 0..AHEAD * u64::from(ranks + 1) {
                    step(group, &mut at, (Kind::From(root), 8), ranks);
                }
                assert_eq!(group.round() - begun, AHEAD, "rank {other} of {ranks}");
            }
        }
    }
}

#[test]
fn threads_that_race_have_whole_messages() {
    const ROUNDS: u64 = 4000;
    let threads = groups(3, 0).into_iter().map(|group| {
        std::thread::spawn(move || {
            let mut at = At::default();
            let (mut done, mut until) = (0, Instant::now() + Duration::from_secs(20));
            while at.done < ROUNDS {
                let (kinds, lens) =
                    ([Kind::From(0), Kind::From(2), Kind::To(1), Kind::All], [8, 32, 33, 5000]);
                // Runs in which one rank only sends.
                let round = (kinds[(at.done / 37 % 4) as usize], lens[(at.done % 4) as usize]);
                step(&group, &mut at, round, 3);
                if at.done != done {
                    (done, until) = (at.done, Instant::now() + Duration::from_secs(20));
                } else if !at.begun || at.told == 2 {
                    assert!(Instant::now() < until, "a message is lost");
                    std::thread::yield_now();
                }
            }
        })
    });
    threads.collect::<Vec<_>>().into_iter().for_each(|thread| thread.join().unwrap());
}

#[test]
fn what_was_left_in_a_round_that_has_ended_is_compared_with_what_was_called_then() {
    let groups = groups(3, 5);
    let ours = header(0, 7);
    groups[0].begin_round(&ours);
    groups[0].end_round();
    assert_eq!(groups[0].check_strays(&header(0, 8)), Ok(()), "nobody has come");
    let theirs = Header { count: 2, ..header(2, 7) };
    groups[2].put(0, &theirs, &[1]).unwrap();
    let mismatch = Err(WrongMessage::Mismatch { ours, theirs });
    assert_eq!(groups[0].check_strays(&header(0, 8)), mismatch);
    let take = |from| groups[0].take(from, groups[0].round());
    assert_eq!((take(2), take(1)), (mismatch.map(|()| true), Ok(false)));
}

#[test]
fn who_waits_elsewhere_sees_a_message_that_is_not_of_a_later_operation() {
    let groups = groups(3, 5);
    let ours = header(0, 7);
    assert_eq!(groups[0].check_strays(&ours), Ok(()));
    groups[2].put(0, &header(2, 8), &[1]).unwrap();
    assert_eq!(groups[0].check_strays(&ours), Ok(()), "it is ahead");
    groups[1].put(0, &header(1, 7), &[1]).unwrap();
    assert_eq!(groups[0].check_strays(&ours), Err(WrongMessage::Mismatch { ours, theirs: header(1, 7) }));
    groups[1].spoil(0, &header(1, 9));
    assert_eq!(groups[0].check_strays(&ours), Err(WrongMessage::Damaged(1)));
}
