//! Links to ranks beyond the ring: made once, by the first operation that needs them, and by all ranks or none.

use std::thread;
use std::time::Duration;

use crate::common::{WIRES, long};
use crate::world::{each_communicator, each_rank_with};
use rdma_collective::collective::CollectiveError;
use rdma_collective::collective::ReduceOp;
use rdma_collective::collective::{Communicator, CommunicatorOptions, WaitError};
use rdma_collective::engine::EngineOptions;
use rdma_core::{Device, SoftOptions, Wire};

/// Elements of a part: too many for the eager protocol.
const PART: usize = 9000;

fn element(from: u32, to: u32) -> u32 {
    1000 * from + to
}

/// The input of a rank: a different part for each peer.
fn parts(comm: &Communicator) -> Vec<u32> {
    (0..comm.size()).flat_map(|to| [element(comm.rank(), to); PART]).collect()
}

fn assert_turned(comm: &Communicator, parts: &[u32]) {
    for (from, part) in (0..).zip(parts.chunks(PART)) {
        assert!(part.iter().all(|found| *found == element(from, comm.rank())), "of rank {from}");
    }
}

/// Options with which an all-to-all uses links, although ranks of one host need none.
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
        // Short enough to be passed on by other ranks.
        let mut turned: Vec<u32> = (0..18).map(|to| element(comm.rank(), to)).collect();
        comm.all_to_all(&mut turned, long()).unwrap();
        assert!(turned.iter().zip(0..).all(|(found, from)| *found == element(from, comm.rank())));
        comm.close(long()).unwrap();
    });
}

/// Four ranks, one of which has a completion queue with room for the ring's lanes only.
fn each_but_one_narrow<T: Send + 'static>(
    narrow: u32,
    options: CommunicatorOptions,
    body: impl Fn(Communicator) -> T + Send + Sync + 'static,
) -> Vec<T> {
    // Enough for the ring, and for mapping the others once.
    each_but_one(4, (narrow, 260), options, body)
}

/// Ranks, one of which has a completion queue of the given length.
fn each_but_one<T: Send + 'static>(
    ranks: u32,
    (narrow, max_cqe): (u32, u32),
    options: CommunicatorOptions,
    body: impl Fn(Communicator) -> T + Send + Sync + 'static,
) -> Vec<T> {
    let engine = move |rank| EngineOptions {
        max_cqe: if rank == narrow { max_cqe } else { EngineOptions::default().max_cqe },
        ..EngineOptions::default()
    };
    let device = |rank| {
        let name = format!("soft{rank}");
        Device::soft(SoftOptions { name, wire: Wire::Local, ..SoftOptions::default() }).open().unwrap()
    };
    each_rank_with(ranks, engine, device, move |mut rank| {
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
            assert_unconnected(&alone.unwrap_err());
            sum(&mut comm, 77);
            comm.connect(long()).unwrap_err()
        });
        errors.iter().for_each(|error| assert_unlinked(narrow, error));
    }
}

fn failed<T>(error: WaitError<T>) -> CollectiveError {
    match error {
        WaitError::Failed(error) => error,
        other => panic!("{other}"),
    }
}

fn assert_unconnected(error: &CollectiveError) {
    let CollectiveError::Unconnected { because: Some(why), .. } = error else { panic!("{error}") };
    assert!(matches!(**why, CollectiveError::Unlinked { .. }), "{error}");
    let said = error.to_string();
    assert!(said.contains("completion queue") && said.ends_with("make a new communicator"), "{said}");
}

#[test]
fn what_two_ranks_send_is_refused_alike_be_it_begun_before_it_is_known_that_there_can_be_no_links() {
    let options =
        CommunicatorOptions { algorithms: "hierarchical".parse().unwrap(), ..CommunicatorOptions::default() };
    each_but_one_narrow(1, options, |mut comm| {
        let rank = comm.rank();
        let (next, previous) = ((rank + 1) % 4, (rank + 3) % 4);
        let tensor = |comm: &Communicator| {
            let mut tensor = comm.alloc::<u32>(PART).unwrap();
            tensor.fill(comm.rank());
            tensor
        };
        // Whoever comes last begins when the others have theirs, and may be told at once.
        thread::sleep(Duration::from_millis(if rank == 3 { 500 } else { 0 }));
        let summed = comm.start_all_reduce(tensor(&comm), ReduceOp::Sum, long()).unwrap();
        let (out, into) = (tensor(&comm), comm.alloc::<u32>(PART).unwrap());
        let error = match comm.start_send_recv(out, next, into, previous, long()) {
            Ok(sent) => failed(sent.wait(long()).unwrap_err()),
            Err(refused) => refused.error,
        };
        assert_unconnected(&error);
        // An operation on slices blocks its caller.
        let behind = comm.start_all_reduce(tensor(&comm), ReduceOp::Max, long()).unwrap();
        assert_unconnected(&comm.send_recv_replace(&mut [rank; 9], next, previous, long()).unwrap_err());
        assert!(summed.wait(long()).unwrap().iter().all(|sum| *sum == 6));
        assert!(behind.wait(long()).unwrap().iter().all(|most| *most == 3));
        comm.close(long()).unwrap();
    });
}

/// A completion queue with room for links at powers of two among six ranks, which leave out one rank that is no
/// neighbour, and for no more.
const NARROW: (u32, u32) = (4, 424);

#[test]
fn what_needs_fewer_links_makes_them_though_those_to_all_ranks_could_not_be_made() {
    let options =
        || CommunicatorOptions { algorithms: "hierarchical,tree".parse().unwrap(), ..Default::default() };
    let errors = each_but_one(6, NARROW, options(), |mut comm| {
        let mut data = [1_u32; 5000];
        comm.all_reduce(&mut data, ReduceOp::Sum, long()).unwrap();
        assert_eq!(data, [6; 5000]);
        gather(&mut comm, 2);
        comm.all_reduce(&mut data, ReduceOp::Sum, long()).unwrap();
        assert_eq!(data, [36; 5000]);
        comm.broadcast(&mut data, 5, long()).unwrap();
        gather(&mut comm, 5);
        let error = comm.connect(long()).unwrap_err();
        assert!(matches!(comm.barrier(long()), Err(CollectiveError::Ended { .. })));
        error
    });
    errors.iter().for_each(|error| assert_unlinked(NARROW.0, error));
    // An operation that began before the ranks knew that is useless on all ranks, or right on all.
    let ends = each_but_one(6, NARROW, options(), |mut comm| {
        let count = PART * 6;
        let [sum, word, mut all] = [(); 3].map(|()| comm.alloc::<u32>(count).unwrap());
        all.fill(comm.rank());
        let sum = comm.start_all_reduce(sum, ReduceOp::Sum, long()).unwrap();
        let word = comm.start_broadcast(word, 1, long()).unwrap();
        let all = comm.start_gather(all, 3, long()).unwrap();
        sum.wait(long()).unwrap();
        word.wait(long()).unwrap();
        let all = all.wait(long()).map_err(failed).map(|all| comm.rank() == 3 && all[count - 1] == 5);
        all.map(|right| assert_eq!(right, comm.rank() == 3))
    });
    assert!(ends.iter().all(Result::is_ok) || ends.iter().all(Result::is_err), "{ends:?}");
    ends.iter().filter_map(|end| end.as_ref().err()).for_each(|error| assert_unlinked(NARROW.0, error));
}
