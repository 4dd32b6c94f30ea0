//! Links to ranks that are no neighbours: made once, by whatever needs them first, and by all ranks or by none.

use crate::common::{WIRES, long};
use crate::world::{each_communicator, each_rank_with};
use rdma_collective::collective::ReduceOp;
use rdma_collective::comm::{Communicator, CommunicatorOptions, EngineOptions};
use rdma_collective::error::CollectiveError;
use rdma_core::{Device, SoftOptions, Wire};

/// Elements of a part, so many that ranks of a host do not leave them for each other at once.
const PART: usize = 9000;

fn element(from: u32, to: u32) -> u32 {
    1000 * from + to
}

/// For each rank a part of its own.
fn parts(comm: &Communicator) -> Vec<u32> {
    (0..comm.size()).flat_map(|to| [element(comm.rank(), to); PART]).collect()
}

fn assert_turned(comm: &Communicator, parts: &[u32]) {
    for (from, part) in (0..).zip(parts.chunks(PART)) {
        assert!(part.iter().all(|found| *found == element(from, comm.rank())), "of rank {from}");
    }
}

/// Where an all-to-all goes by links, though ranks of a host need none.
pub fn by_links() -> CommunicatorOptions {
    let algorithms = "ring,tree,flat,pieces,direct,pairs,bruck;all-to-all:flat,pairs,bruck".parse().unwrap();
    CommunicatorOptions { algorithms, ..CommunicatorOptions::default() }
}

fn all_to_all(comm: &mut Communicator) {
    let mut data = parts(comm);
    comm.all_to_all(&mut data, long()).unwrap();
    assert_turned(comm, &data);
}

fn gather(comm: &mut Communicator, root: u32) {
    let mut all = vec![0; if comm.rank() == root { PART * comm.size() as usize } else { 0 }];
    comm.gather_into(&[comm.rank(); PART], &mut all, root, long()).unwrap();
    assert!(all.chunks(PART).zip(0..).all(|(part, rank)| part == [rank; PART]));
}

#[test]
fn operations_of_either_kind_follow_each_other_whatever_was_first() {
    for wire in WIRES {
        for order in 0..3 {
            each_communicator(6, wire, by_links(), move |mut comm| {
                for step in order..order + 4 {
                    match step % 3 {
                        0 => all_to_all(&mut comm),
                        1 => (0..6).for_each(|root| gather(&mut comm, root)),
                        _ => {
                            let mut data = vec![1_u32; 3 * PART];
                            comm.all_reduce(&mut data, ReduceOp::Sum, long()).unwrap();
                            assert!(data.iter().all(|sum| *sum == 6));
                        }
                    }
                }
                comm.close(long()).unwrap();
            });
        }
    }
}

#[test]
fn operations_that_were_begun_together_share_the_links_that_the_first_makes() {
    each_communicator(5, Wire::Local, by_links(), |mut comm| {
        let count = PART * comm.size() as usize;
        let tensor = |data: &[u32]| {
            let mut tensor = comm.alloc::<u32>(count).unwrap();
            tensor.copy_from_slice(data);
            tensor
        };
        let data = parts(&comm);
        let [scattered, one, sum, other] = [(); 4].map(|()| tensor(&data));
        let scattered = comm.start_scatter(scattered, 2, long()).unwrap();
        let one = comm.start_all_to_all(one, long()).unwrap();
        let sum = comm.start_all_reduce(sum, ReduceOp::Max, long()).unwrap();
        let other = comm.start_all_to_all(other, long()).unwrap();
        let own = comm.rank() as usize * PART;
        let scattered = scattered.wait(long()).unwrap();
        assert_eq!(scattered[own..own + PART], [element(2, comm.rank()); PART]);
        assert_turned(&comm, &one.wait(long()).unwrap());
        assert!(sum.wait(long()).unwrap().chunks(PART).zip(0..).all(|(part, to)| part[0] == element(4, to)));
        assert_turned(&comm, &other.wait(long()).unwrap());
    });
}

#[test]
fn many_ranks_gather_and_scatter_by_links_at_powers_of_two() {
    each_communicator(18, Wire::Local, CommunicatorOptions::default(), |mut comm| {
        for root in [0, 7, 17] {
            gather(&mut comm, root);
        }
        let mut part = [0; PART];
        let all = if comm.rank() == 11 { parts(&comm) } else { Vec::new() };
        comm.scatter_into(&all, &mut part, 11, long()).unwrap();
        assert_eq!(part, [element(11, comm.rank()); PART]);
        // Short enough to go by others.
        let mut turned: Vec<u32> = (0..18).map(|to| element(comm.rank(), to)).collect();
        comm.all_to_all(&mut turned, long()).unwrap();
        assert!(turned.iter().zip(0..).all(|(found, from)| *found == element(from, comm.rank())));
        comm.close(long()).unwrap();
    });
}

/// Four ranks, of which one has no room in its completion queue for more links than those of the ring.
fn each_but_one_narrow<T: Send + 'static>(
    narrow: u32,
    options: CommunicatorOptions,
    body: impl Fn(Communicator) -> T + Send + Sync + 'static,
) -> Vec<T> {
    // Enough for the ring, and for mapping the others once.
    let engine = move |rank| EngineOptions {
        max_cqe: if rank == narrow { 260 } else { EngineOptions::default().max_cqe },
        ..EngineOptions::default()
    };
    let device = |rank| {
        let name = format!("soft{rank}");
        Device::soft(SoftOptions { name, wire: Wire::Local, ..SoftOptions::default() }).open().unwrap()
    };
    each_rank_with(4, engine, device, move |mut rank| {
        let host_id = Some(format!("host-{}", rank.rank / 2));
        body(rank.communicator(CommunicatorOptions { host_id, ..options.clone() }))
    })
}

fn assert_unlinked(narrow: u32, error: &CollectiveError) {
    let CollectiveError::Unlinked { rank, reason } = error else { panic!("{error}") };
    assert!(*rank == narrow && reason.contains("completion queue"), "{error}");
}

#[test]
fn a_rank_that_cannot_open_its_links_is_named_on_all_ranks_at_once() {
    for (narrow, tree) in [(0, true), (1, false), (3, false)] {
        let errors = each_but_one_narrow(narrow, by_links(), move |mut comm| {
            let mut data = parts(&comm);
            let error = if tree {
                comm.gather(&mut data, 2, long()).unwrap_err()
            } else {
                comm.all_to_all(&mut data, long()).unwrap_err()
            };
            assert_eq!(data, parts(&comm), "nothing has been sent");
            let again = comm.all_reduce(&mut data, ReduceOp::Sum, long()).unwrap_err();
            assert!(matches!(again, CollectiveError::Ended { .. }), "{again}");
            error
        });
        errors.iter().for_each(|error| assert_unlinked(narrow, error));
    }
}

#[test]
fn what_needs_no_links_goes_around_the_ring_where_there_can_be_none_and_what_needs_them_names_the_rank() {
    for (narrow, first) in [(0, "hierarchical"), (3, "hierarchical"), (1, "tree")] {
        let algorithms = first.parse().unwrap();
        let options = CommunicatorOptions { algorithms, ..CommunicatorOptions::default() };
        let errors = each_but_one_narrow(narrow, options, |mut comm| {
            let sum = |comm: &mut Communicator, count: usize| {
                let mut data: Vec<u32> = (0..count as u32).map(|index| index + comm.rank()).collect();
                comm.all_reduce(&mut data, ReduceOp::Sum, long()).unwrap();
                assert!(data.iter().zip(0_u32..).all(|(sum, index)| *sum == 4 * index + 6), "{count}");
            };
            // The second and third were begun before it was known, and others follow that know it.
            let tensors = [0_u64, 70_000, 3].map(|count| {
                let mut tensor = comm.alloc::<u64>(count as usize).unwrap();
                tensor.fill(count + u64::from(comm.rank()));
                (count, tensor)
            });
            let begun = tensors.map(|(count, tensor)| {
                (count, comm.start_all_reduce(tensor, ReduceOp::Max, long()).unwrap())
            });
            [200_000, 0, 1, 5000].into_iter().for_each(|count| sum(&mut comm, count));
            for (count, pending) in begun {
                assert!(pending.wait(long()).unwrap().iter().all(|most| *most == count + 3));
            }
            let mut word = [comm.rank(); 9];
            comm.broadcast(&mut word, 2, long()).unwrap();
            assert_eq!(word, [2; 9]);
            let (rank, ranks) = (comm.rank(), comm.size());
            let alone = comm.send_recv_replace(&mut word, (rank + 1) % ranks, (rank + 3) % ranks, long());
            assert!(matches!(alone, Err(CollectiveError::Unconnected { .. })), "{alone:?}");
            sum(&mut comm, 77);
            comm.connect(long()).unwrap_err()
        });
        errors.iter().for_each(|error| assert_unlinked(narrow, error));
    }
}
