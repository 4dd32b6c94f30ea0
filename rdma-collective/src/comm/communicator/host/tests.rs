//! Ranks in one process, each of which does its steps whenever the test lets it.

use std::time::{Duration, Instant};

use proptest::prelude::*;
use rdma_core::{Deadline, Device, SoftOptions, WorkerOptions, loopback};

use super::*;

/// Groups of all ranks, after so many rounds.
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
        group.round.store(rounds, Ordering::Relaxed);
        group
    };
    windows.into_iter().enumerate().map(group).collect()
}

impl HostGroup {
    /// That of rank 1 of two, which may leave nothing, as in a forked child; the other rank has begun with `theirs`.
    pub(crate) fn refused(theirs: &Header) -> Self {
        let [other, own] = groups(2, 0).try_into().unwrap();
        other.put(1, theirs, &[0; 4]).unwrap();
        // Its place there is behind the end.
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
        peer.copy_in(self.place(header.rank), &line.map(u64::to_le_bytes).concat()).unwrap();
        peer.store(self.place(header.rank) + FLAG_AT, self.flag()).unwrap();
    }
}

fn header(rank: u32, sequence: u64) -> Header {
    Header { rank, sequence, count: 1, collective: 1, data_type: 2, reduction: 3, root: 4 }
}

fn message(rank: u32, round: u64, len: usize) -> Vec<u8> {
    (0..len).map(|at| (u64::from(rank) * 31 + round * 7 + at as u64) as u8).collect()
}

/// A rank in the midst of a round.
#[derive(Default)]
struct At {
    done: u64,
    told: u32,
    taken: u32,
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    /// Whoever goes on whenever it can, every rank has the messages of its round and of no other, however far the others are
    /// ahead; and flags may wrap.
    #[test]
    fn no_message_is_taken_early_or_overwritten(
        ranks in 2_u32..6,
        before in prop_oneof![Just(0_u64), Just(u64::MAX - 2)],
        lens in prop::collection::vec(prop_oneof![0..34_usize, 0..200_usize, Just(MESSAGE_BYTES_MAX)], 1..7),
        order in prop::collection::vec(0_u32..6, 0..300),
    ) {
        let groups = groups(ranks, before);
        let mut at: Vec<At> = (0..ranks).map(|_| At::default()).collect();
        // More turns than it takes if no message is lost.
        let in_turn = (0..400).flat_map(|_| 0..ranks);
        for rank in order.into_iter().map(|rank| rank % ranks).chain(in_turn) {
            if at.iter().all(|at| at.done == lens.len() as u64) {
                break;
            }
            let (group, at) = (&groups[rank as usize], &mut at[rank as usize]);
            let Some(&len) = lens.get(at.done as usize) else { continue };
            // A step: one message put, or one taken.
            let others: Vec<u32> = group.others().collect();
            if let Some(to) = others.get(at.told as usize) {
                group.put(*to, &header(rank, at.done), &message(rank, at.done, len)).unwrap();
                at.told += 1;
                continue;
            }
            let from = others[at.taken as usize];
            if !group.has_come(from) {
                continue;
            }
            let mut read = vec![0; len];
            group.read(from, (0, len), &mut read);
            prop_assert_eq!(&read, &message(from, at.done, len), "rank {} of round {}", from, at.done);
            prop_assert_eq!(Header::of_line(group.line(from), from), Some(header(from, at.done)));
            at.taken += 1;
            if at.taken as usize == others.len() {
                group.end_round();
                *at = At { done: at.done + 1, ..At::default() };
            }
        }
        prop_assert!(at.iter().all(|at| at.done == lens.len() as u64), "a message is lost");
    }
}

#[test]
fn threads_that_race_have_whole_messages() {
    const ROUNDS: u64 = 2000;
    let threads = (0..).zip(groups(3, 0)).map(|(rank, group)| {
        std::thread::spawn(move || {
            for round in 0..ROUNDS {
                let len = [8, 32, 33, 5000][(round % 4) as usize];
                for to in group.others() {
                    group.put(to, &header(rank, round), &message(rank, round, len)).unwrap();
                }
                for from in group.others() {
                    let until = Instant::now() + Duration::from_secs(20);
                    while !group.has_come(from) {
                        assert!(Instant::now() < until, "a message is lost");
                        std::thread::yield_now();
                    }
                    let mut read = vec![0; len];
                    group.read(from, (0, len), &mut read);
                    assert!(read == message(from, round, len), "round {round}");
                }
                group.end_round();
            }
        })
    });
    threads.collect::<Vec<_>>().into_iter().for_each(|thread| thread.join().unwrap());
}

#[test]
fn who_waits_elsewhere_sees_a_message_that_is_not_of_a_later_operation() {
    let groups = groups(3, 5);
    assert_eq!(groups[0].stray(7), None);
    groups[2].put(0, &header(2, 8), &[1]).unwrap();
    assert_eq!(groups[0].stray(7), None, "it is ahead");
    groups[1].put(0, &header(1, 7), &[1]).unwrap();
    assert_eq!(groups[0].stray(7), Some(Ok(header(1, 7))));
    groups[1].spoil(0, &header(1, 9));
    assert_eq!(groups[0].stray(7), Some(Err(1)));
}
