//! Rings in which some ranks are late and the others wait in any direction, compared with the true end of each chain.

use std::collections::VecDeque;

use proptest::prelude::*;

use super::*;

const PATIENCE: Duration = Duration::from_millis(500);
/// The operation in which ranks wait.
const IN: Header =
    Header { rank: 0, sequence: 7, count: 8, collective: 1, data_type: 1, reduction: 1, root: 0 };

/// How many ranks on the next rank is.
const NEXT: usize = 1;

/// The rank that is so many ranks on around the ring.
fn around(rank: usize, on: usize, world: usize) -> u32 {
    ((rank + on) % world) as u32
}

/// The wait graph of a rank that is linked to its neighbours.
fn graph_of(own: usize, world: usize) -> WaitGraph {
    let mut graph = WaitGraph::new(own as u32, world as u32);
    for on in [NEXT, world - NEXT] {
        graph.link(around(own, on, world));
    }
    graph
}

/// A ring of ranks, some of which are in operation 7, and the reports in flight between them.
struct Simulated {
    ranks: Vec<WaitGraph>,
    /// How many ranks on, around the ring, each rank's awaited neighbour is; `None` for a late rank.
    waits: Vec<Option<usize>>,
    under_way: VecDeque<(usize, u32, WaitReport)>,
    words: usize,
}

impl Simulated {
    fn new(waits: Vec<Option<usize>>, start: Instant) -> Self {
        let world = waits.len();
        let rank = |own: usize| {
            let mut graph = graph_of(own, world);
            graph.begin(PATIENCE);
            if let Some(on) = waits[own] {
                graph.wait((7, IN), WaitingFor::Rank(around(own, on, world)), start);
            }
            graph
        };
        Self { ranks: (0..world).map(rank).collect(), waits, under_way: VecDeque::new(), words: 0 }
    }

    /// Delivers reports until there are no more.
    fn run(&mut self, mut now: Instant) {
        let mut quiet = 0;
        while quiet < 100 {
            quiet += 1;
            for own in 0..self.ranks.len() {
                self.ranks[own].update(now);
                let Some(word) = self.ranks[own].report() else { continue };
                self.ranks[own].tell(|_| false);
                for neighbour in [NEXT, self.ranks.len() - NEXT] {
                    let to = around(own, neighbour, self.ranks.len());
                    self.under_way.push_back((to as usize, own as u32, word));
                }
                (self.words, quiet) = (self.words + 1, 0);
                assert!(self.words < 10 * self.ranks.len().pow(2), "it goes on for ever");
            }
            while let Some((rank, from, word)) = self.under_way.pop_front() {
                self.ranks[rank].hear(from, word);
            }
            now += PAUSE;
        }
    }

    /// The late rank at the end of a rank's chain; `None` in a circle.
    fn oracle(&self, rank: usize) -> Option<u32> {
        let mut at = rank;
        for _ in 0..self.ranks.len() {
            match self.waits[at] {
                Some(on) => at = around(at, on, self.ranks.len()) as usize,
                None => return Some(at as u32),
            }
        }
        None
    }
}

/// A late rank, a rank that waits for the previous one, or for the next.
fn side() -> impl Strategy<Value = Option<bool>> {
    prop_oneof![1 => Just(None), 4 => Just(Some(false)), 1 => Just(Some(true))]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn all_that_wait_name_whom_they_wait_for_at_last(waits in prop::collection::vec(side(), 2..12)) {
        let start = Instant::now();
        let world = waits.len();
        let waits: Vec<_> =
            waits.into_iter().map(|side| side.map(|next| if next { NEXT } else { world - NEXT })).collect();
        let mut simulated = Simulated::new(waits.clone(), start);
        simulated.run(start);
        for (rank, waits) in waits.into_iter().enumerate() {
            if let (Some(on), Some(culprit)) = (waits, simulated.oracle(rank)) {
                let found = simulated.ranks[rank].culprit(7, WaitingFor::Rank(around(rank, on, world)));
                prop_assert_eq!(found, culprit, "rank {}", rank);
            }
        }
    }
}

#[test]
fn nobody_says_anything_before_its_patience_ends_unless_it_is_asked() {
    let start = Instant::now();
    let mut graph = graph_of(1, 4);
    graph.begin(PATIENCE);
    graph.wait((7, IN), WaitingFor::Rank(0), start);
    graph.update(start);
    assert_eq!((graph.report(), graph.next_deadline()), (None, Some(start + PATIENCE)));
    graph.hear(2, WaitReport { sequence: 7, culprit: 1, hops: 0, waits_in: IN });
    graph.update(start);
    assert_eq!(graph.report(), Some(WaitReport { sequence: 7, culprit: 0, hops: 0, waits_in: IN }));
}

#[test]
fn who_goes_on_says_so_and_is_waited_for_itself_then() {
    let start = Instant::now();
    let mut graph = graph_of(1, 4);
    graph.begin(PATIENCE);
    graph.wait((7, IN), WaitingFor::Rank(0), start);
    graph.update(start + PATIENCE);
    assert!(graph.report().is_some());
    graph.wait((7, IN), WaitingFor::Rank(0), start + PATIENCE);
    graph.update(start + PATIENCE);
    assert_eq!(graph.next_deadline(), Some(start + PATIENCE + PAUSE));
    graph.update(start + PATIENCE + PAUSE);
    let word = WaitReport { sequence: 7, culprit: 1, hops: 0, waits_in: IN };
    assert_eq!(graph.report(), Some(word));
    let mut after = graph_of(2, 4);
    after.hear(1, WaitReport { culprit: 0, ..word });
    assert_eq!(after.culprit(7, WaitingFor::Rank(1)), 0);
    assert_eq!(after.waits_in().collect::<Vec<_>>(), [Header { rank: 1, ..IN }]);
    after.hear(1, word);
    assert_eq!(after.waits_in().count(), 0);
    assert_eq!(after.culprit(7, WaitingFor::Rank(1)), 1);
}

#[test]
fn of_several_ranks_that_have_not_begun_it_is_the_one_that_a_neighbour_knows() {
    let start = Instant::now();
    let mut graph = graph_of(3, 8);
    graph.begin(PATIENCE);
    let several = WaitingFor::Ranks(1 | 1 << 1 | 1 << 7);
    graph.wait((5, IN), several, start);
    graph.update(start + PATIENCE);
    assert_eq!(graph.report(), None, "it does not know which");
    graph.hear(4, WaitReport { sequence: 5, culprit: 6, hops: 0, waits_in: IN });
    graph.hear(2, WaitReport { sequence: 6, culprit: 7, hops: 0, waits_in: IN });
    assert_eq!(graph.culprit(5, several), 0, "one has left its message, the other is further");
    let word = WaitReport { sequence: 4, culprit: 7, hops: 2, waits_in: IN };
    graph.hear(2, word);
    graph.hear(4, WaitReport { sequence: 5, hops: 4, ..word });
    graph.update(start + PATIENCE);
    assert_eq!(graph.report(), Some(WaitReport { sequence: 5, hops: 3, ..word }));
    assert_eq!((graph.culprit(5, several), graph.culprit(5, WaitingFor::Ranks(1))), (7, 0));
    // A withdrawn report is not passed on.
    graph.tell(|_| false);
    graph.hear(2, WaitReport { culprit: 2, ..word });
    graph.hear(4, WaitReport { culprit: 4, ..word });
    graph.update(start + PATIENCE + PAUSE);
    assert_eq!(graph.report(), Some(WaitReport { sequence: 5, culprit: 3, hops: 0, waits_in: IN }));
}

#[test]
fn who_waits_in_a_later_operation_has_done_this_one() {
    let mut graph = graph_of(1, 4);
    graph.hear(0, WaitReport { sequence: 8, culprit: 3, hops: 0, waits_in: IN });
    assert_eq!(graph.culprit(7, WaitingFor::Rank(0)), 0);
    assert_eq!(graph.culprit(8, WaitingFor::Rank(0)), 3);
}
