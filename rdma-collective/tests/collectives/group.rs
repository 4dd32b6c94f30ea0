//! Groups of sends and receives, alone and between other operations.

use proptest::prelude::*;

use crate::common::{WIRES, long};
use crate::world::each_communicator;
use rdma_collective::collective::CollectiveError;
use rdma_collective::collective::{Communicator, CommunicatorOptions};
use rdma_collective::collective::{Group, ReduceOp};
use rdma_core::Wire;

/// A message from one rank to another.
#[derive(Debug, Clone, Copy)]
struct Message {
    from: u32,
    to: u32,
    count: usize,
    seed: u16,
}

impl Message {
    fn data(&self) -> Vec<u16> {
        let mut mixed = self.seed ^ (self.from as u16) << 8 ^ self.to as u16;
        let next = |_| {
            mixed = mixed.wrapping_mul(0x6255).wrapping_add(0x3619);
            mixed
        };
        (0..self.count).map(next).collect()
    }
}

/// Sends and receives this rank's messages in one group; returns whether the received bytes are those sent.
fn exchange(comm: &mut Communicator, messages: &[Message], sends_first: bool) -> bool {
    let own = comm.rank();
    let sent: Vec<_> =
        messages.iter().filter(|one| one.from == own).map(|one| (one.to, one.data())).collect();
    let expected = messages.iter().filter(|one| one.to == own);
    let mut found: Vec<_> = expected.clone().map(|one| (one.from, vec![0; one.count])).collect();
    let mut group = Group::new();
    if sends_first {
        for (to, data) in &sent {
            group = group.send(data, *to);
        }
    }
    for (from, data) in &mut found {
        group = group.recv(data, *from);
    }
    if !sends_first {
        for (to, data) in &sent {
            group = group.send(data, *to);
        }
    }
    group.run(comm, long()).unwrap();
    expected.zip(found).all(|(message, (_, found))| found == message.data())
}

#[test]
fn all_to_all_of_any_lengths_goes_on_whatever_the_order() {
    for wire in WIRES {
        for ranks in [1, 2, 4] {
            each_communicator(ranks, wire, CommunicatorOptions::default(), move |mut comm| {
                comm.connect(long()).unwrap();
                let messages = |round: u32| {
                    (0..ranks * ranks * 2).map(move |at| {
                        let (from, to) = (at / 2 / ranks, at / 2 % ranks);
                        let count = [0, 1, 400_000, 700][((round + at) % 4) as usize];
                        Message { from, to, count, seed: at as u16 }
                    })
                };
                for round in 0..4 {
                    let messages: Vec<_> = messages(round).collect();
                    let sends_first = (comm.rank() + round).is_multiple_of(2);
                    assert!(exchange(&mut comm, &messages, sends_first), "{wire:?}");
                }
                comm.close(long()).unwrap();
            });
        }
    }
}

#[test]
fn a_group_that_cannot_be_sends_nothing() {
    each_communicator(2, Wire::Local, CommunicatorOptions::default(), |mut comm| {
        Group::new().run(&mut comm, long()).unwrap();
        let (own, other, mut data) = (comm.rank(), 1 - comm.rank(), [0_u8; 2]);
        let error = Group::new().send(&[1_u8], other).run(&mut comm, long()).unwrap_err();
        assert!(matches!(error, CollectiveError::Unconnected { .. }), "{error}");
        comm.connect(long()).unwrap();
        let group = Group::new().send(&[1_u8], other).recv(&mut data, own);
        let error = group.run(&mut comm, long()).unwrap_err();
        assert!(matches!(error, CollectiveError::ToItself { .. }), "{error}");
        let mut many = Group::new();
        for _ in 0..4097 {
            many = many.send(&[1_u8], other);
        }
        let error = many.run(&mut comm, long()).unwrap_err();
        assert!(matches!(error, CollectiveError::GroupTooLong { max: 4096 }), "{error}");
        Group::new().send(&[7_u8, 8], other).recv(&mut data, other).run(&mut comm, long()).unwrap();
        assert_eq!(data, [7, 8]);
    });
}

#[test]
fn the_transfer_that_failed_is_named_and_not_one_that_waits() {
    let errors = each_communicator(3, Wire::Local, CommunicatorOptions::default(), |mut comm| {
        comm.connect(long()).unwrap();
        let [mut first, mut second, mut third] = [[0_u8; 3]; 3];
        let outcome = match comm.rank() {
            1 => {
                let group = Group::new().recv(&mut first, 2).recv(&mut second, 0).recv(&mut third, 0);
                group.run(&mut comm, long())
            }
            0 => Group::new().send(&[1_u8; 3], 1).send(&[2_u8; 5], 1).run(&mut comm, long()),
            _ => Ok(()),
        };
        let error = outcome.and_then(|()| comm.barrier(long())).unwrap_err();
        (error, first, second, third)
    });
    let (error, first, second, third) = &errors[1];
    assert_eq!((first, second, third), (&[0; 3], &[1; 3], &[0; 3]), "only what agrees is used");
    let text = error.to_string();
    let named = "rank 1 called receive 1 of 3 uint8 from rank 0, and rank 0 send 1 of 5 uint8 to rank 1;";
    assert!(text.starts_with(named), "{text}");
    for (error, ..) in [&errors[0], &errors[2]] {
        assert!(matches!(error, CollectiveError::Aborted { culprit: 0, reporter: 1, .. }), "{error}");
    }
}

/// Steps of the ranks, one after the other.
#[derive(Debug, Clone)]
enum Step {
    /// A single send and a single receive; on tensors if `owned`.
    One(Message, bool),
    Group(Vec<Message>),
    AllReduce(usize),
    AllToAll(usize),
    Gather(usize),
}

impl Step {
    fn is_right(&self, comm: &mut Communicator) -> bool {
        let (own, ranks) = (comm.rank(), comm.size());
        match self {
            Self::One(message, owned) => one(comm, message, *owned),
            Self::Group(messages) => {
                exchange(comm, messages, messages.first().is_some_and(|one| one.seed.is_multiple_of(2)))
            }
            Self::AllReduce(count) => {
                let mut data = vec![own; *count];
                comm.all_reduce(&mut data, ReduceOp::Sum, long()).unwrap();
                data.iter().all(|sum| *sum == ranks * (ranks - 1) / 2)
            }
            Self::AllToAll(count) => {
                let mut data: Vec<u32> = (0..ranks).flat_map(|to| vec![10 * own + to; *count]).collect();
                comm.all_to_all(&mut data, long()).unwrap();
                data.chunks((*count).max(1)).zip(0..).all(|(part, from)| part[0] == 10 * from + own)
            }
            Self::Gather(count) => {
                let mut all = vec![0; if own == 1 { count * ranks as usize } else { 0 }];
                comm.gather_into(&vec![own; *count], &mut all, 1, long()).unwrap();
                all.chunks((*count).max(1)).zip(0..).all(|(part, from)| part[0] == from)
            }
        }
    }
}

fn one(comm: &mut Communicator, message: &Message, owned: bool) -> bool {
    let Message { from, to, count, .. } = *message;
    let (own, data) = (comm.rank(), message.data());
    let mut found = vec![0; count];
    let mut tensor = comm.alloc::<u16>(count).unwrap();
    match own {
        _ if from == to && own == to => comm.send_recv(&data, to, &mut found, from, long()).unwrap(),
        _ if own == from && owned => {
            tensor.copy_from_slice(&data);
            drop(comm.start_send(tensor, to, long()).unwrap());
        }
        _ if own == to && owned => {
            found = comm.start_recv(tensor, from, long()).unwrap().wait(long()).unwrap().to_vec();
        }
        _ if own == from => comm.send(&data, to, long()).unwrap(),
        _ if own == to => comm.recv(&mut found, from, long()).unwrap(),
        _ => {}
    }
    own != to || found == data
}

fn steps(ranks: u32) -> impl Strategy<Value = Vec<Step>> {
    let count = || prop_oneof![0_usize..5, 0_usize..3000, Just(20_000)];
    let message = move || {
        (0..ranks, 0..ranks, count(), any::<u16>()).prop_map(|(from, to, count, seed)| Message {
            from,
            to,
            count,
            seed,
        })
    };
    let step = prop_oneof![
        4 => (message(), any::<bool>()).prop_map(|(message, owned)| Step::One(message, owned)),
        3 => prop::collection::vec(message(), 0..12).prop_map(Step::Group),
        1 => count().prop_map(Step::AllReduce),
        1 => count().prop_map(Step::AllToAll),
        1 => count().prop_map(Step::Gather),
    ];
    prop::collection::vec(step, 1..16)
}

fn options() -> impl Strategy<Value = CommunicatorOptions> {
    let small = (1_u16..6, 1_usize..100, 0_usize..64).prop_map(|(slots, elements, chunk_bytes_min)| {
        CommunicatorOptions {
            slots,
            slot_bytes: elements * 8,
            chunk_bytes_min,
            ..CommunicatorOptions::default()
        }
    });
    prop_oneof![Just(CommunicatorOptions::default()), small]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_comes_is_what_was_sent_among_all_that_ranks_do(
        wire in prop::sample::select(&WIRES),
        options in options(),
        (ranks, steps) in (2_u32..6).prop_flat_map(|ranks| (Just(ranks), steps(ranks))),
    ) {
        let shared = steps.clone();
        let wrong = each_communicator(ranks, wire, options, move |mut comm| {
            comm.connect(long()).unwrap();
            let wrong = shared.iter().position(|step| !step.is_right(&mut comm));
            comm.close(long()).unwrap();
            wrong
        });
        for (rank, wrong) in wrong.iter().enumerate() {
            prop_assert!(wrong.is_none(), "rank {} of {:?}", rank, wrong.map(|wrong| &steps[wrong]));
        }
    }
}
