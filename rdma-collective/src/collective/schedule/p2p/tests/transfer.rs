//! Sends and receives between two ranks, and around a ring in one buffer.

use super::*;
use crate::collective::schedule::tests::simulate::{Cell, World};

const ELEMENT: usize = 4;

/// The transfers of each rank of a ring: a send of `bytes` bytes to the next rank, and a receive from the previous one.
fn ring(ranks: u32, bytes: usize, staging: &Staging, in_place: bool) -> [Vec<P2pSchedule>; 2] {
    let cut = Cut::new(ELEMENT, staging).unwrap();
    let next = |rank| (rank + 1) % ranks;
    let send = |rank| Transfer::Send { to: next(rank), bytes, copied: in_place };
    let receive = |rank| {
        let after = in_place.then(|| next(rank));
        Transfer::Receive { from: (rank + ranks - 1) % ranks, bytes, after }
    };
    let strand =
        |of: &dyn Fn(u32) -> Transfer| (0..ranks).map(|rank| P2pSchedule::transfer(of(rank), cut)).collect();
    [strand(&send), strand(&receive)]
}

fn world(ranks: u32, count: usize, staging: &Staging, in_place: bool) -> World<P2pSchedule> {
    let [sends, receives] = ring(ranks, count * ELEMENT, staging, in_place);
    World::new(sends, 1, count, ELEMENT, staging.slots, in_place).beside(receives)
}

fn assert_ended(world: &World<P2pSchedule>, ranks: u32) {
    let previous = |rank: usize| (rank + ranks as usize - 1) % ranks as usize;
    world.assert_ended(|rank, element| Some(Cell::of(previous(rank), element)));
}

#[test]
fn a_ring_of_transfers_brings_every_element_in_any_order() {
    for ranks in [2, 3, 5, 8] {
        for (staging, in_place) in STAGINGS.into_iter().flat_map(|one| [(one, false), (one, true)]) {
            let chunk = staging.slot_bytes / ELEMENT;
            for count in [0, 1, chunk, chunk + 1, 9 * chunk + 1] {
                for choose in ADVERSARIES {
                    let mut world = world(ranks, count, &staging, in_place);
                    run(&mut world, choose);
                    assert_ended(&world, ranks);
                }
                let mut world = world(ranks, count, &staging, in_place);
                run(&mut world, random((count as u64 + 1) << 32 | u64::from(ranks)));
                assert_ended(&world, ranks);
            }
        }
    }
}

#[test]
fn every_interleaving_of_small_transfers_ends_right() {
    let mut states = 0;
    for (ranks, count, slots) in [(2, 1, 1), (2, 2, 1), (2, 3, 2), (2, 4, 3), (3, 1, 1), (3, 2, 1)] {
        let staging = Staging { slots, slot_bytes: 4, chunk_bytes_min: 1 };
        for in_place in [false, true] {
            states += explore(world(ranks, count, &staging, in_place), |end| assert_ended(end, ranks));
        }
    }
    assert!(states > 10_000, "only {states} states explored");
}

#[test]
fn transfers_that_follow_each_other_share_their_slots() {
    for staging in STAGINGS {
        let cut = Cut::new(ELEMENT, &staging).unwrap();
        for count in [0, 1, 7, 40] {
            let bytes = count * ELEMENT;
            let send = Transfer::Send { to: 1, bytes, copied: false };
            let receive = Transfer::Receive { from: 0, bytes, after: None };
            let programs = [send, receive].map(|transfer| P2pSchedule::transfer(transfer, cut));
            let mut world = World::new(programs, 5, count, ELEMENT, staging.slots, false);
            run(&mut world, random(count as u64 + 3));
            world.assert_ended(|rank, element| (rank == 1).then(|| Cell::of(0, element)));
        }
    }
}

#[test]
fn a_send_never_waits_for_the_receive_in_the_same_buffer() {
    let staging = Staging { slots: 4, slot_bytes: 4, chunk_bytes_min: 1 };
    let [sends, receives] = ring(3, 40 * ELEMENT, &staging, true);
    let waits = |step: &Step| matches!(step, Step::WaitCount { .. } | Step::WaitPut { .. });
    assert!(sends.into_iter().flatten().all(|step| !waits(&step)));
    // Each chunk is overwritten after it was put.
    for (rank, steps) in (0..).zip(receives) {
        let to: u32 = (rank + 1) % 3;
        let mut put = None;
        for step in steps {
            match step {
                Step::WaitPut { to: rank, message } if rank == to => put = Some(message),
                Step::CopyFrom { message, .. } => assert_eq!(put, Some(message)),
                _ => {}
            }
        }
    }
}

#[test]
fn nothing_is_one_message_to_a_peer_and_no_step_within_a_rank() {
    let cut = Cut::new(ELEMENT, &Staging::default()).unwrap();
    let send = P2pSchedule::transfer(Transfer::Send { to: 1, bytes: 0, copied: false }, cut);
    assert_eq!(send.filter(|step| matches!(step, Step::Put { .. })).count(), 1);
    assert_eq!(P2pSchedule::transfer(Transfer::Copy { bytes: 0 }, cut).count(), 0);
    let copy = P2pSchedule::transfer(Transfer::Copy { bytes: 8 }, cut);
    assert_eq!(copy.collect::<Vec<_>>(), [Step::copy(Span { offset: 0, len: 8 })]);
}
