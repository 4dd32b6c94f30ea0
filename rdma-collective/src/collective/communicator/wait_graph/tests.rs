//! Rings in which some ranks are late and the others wait in any direction, compared with the true end of each chain.

use std::collections::VecDeque;

use proptest::prelude::*;

use super::*;

const PATIENCE: Duration = Duration::from_millis(500);

/// A ring of ranks, some of which are in operation 7, and the reports in flight between them.
struct Simulated {
    ranks: Vec<WaitGraph>,
    /// The neighbour that each rank waits for; `None` for a late rank.
    waits: Vec<Option<Direction>>,
    under_way: VecDeque<(usize, Direction, WaitReport)>,
    words: usize,
}

impl Simulated {
    fn new(waits: Vec<Option<Direction>>, start: Instant) -> Self {
        let world = waits.len();
        let rank = |own: usize| {
            let neighbours = [(own + 1) % world, (own + world - 1) % world].map(|rank| rank as u32);
            let mut graph = WaitGraph::new(own as u32, neighbours, world as u32);
            graph.begin(PATIENCE);
            if let Some(side) = waits[own] {
                graph.wait(7, WaitingFor::Neighbour(side), start);
            }
            graph
        };
        Self { ranks: (0..world).map(rank).collect(), waits, under_way: VecDeque::new(), words: 0 }
    }

    fn neighbour(&self, rank: usize, side: Direction) -> usize {
        self.ranks[rank].neighbours[side as usize] as usize
    }

    /// Delivers reports until there are no more.
    fn run(&mut self, mut now: Instant) {
        let mut quiet = 0;
        while quiet < 100 {
            quiet += 1;
            for own in 0..self.ranks.len() {
                self.ranks[own].update(now);
                let Some(word) = self.ranks[own].report() else { continue };
                self.ranks[own].unsent = [false; 2];
                for (side, of) in
                    [(Direction::Next, Direction::Previous), (Direction::Previous, Direction::Next)]
                {
                    self.under_way.push_back((self.neighbour(own, side), of, word));
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
                Some(side) => at = self.neighbour(at, side),
                None => return Some(at as u32),
            }
        }
        None
    }
}

fn side() -> impl Strategy<Value = Option<Direction>> {
    prop_oneof![1 => Just(None), 4 => Just(Some(Direction::Previous)), 1 => Just(Some(Direction::Next))]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn all_that_wait_name_whom_they_wait_for_at_last(waits in prop::collection::vec(side(), 2..12)) {
        let start = Instant::now();
        let mut simulated = Simulated::new(waits.clone(), start);
        simulated.run(start);
        for (rank, waits) in waits.into_iter().enumerate() {
            if let (Some(side), Some(culprit)) = (waits, simulated.oracle(rank)) {
                let found = simulated.ranks[rank].culprit(7, WaitingFor::Neighbour(side));
                prop_assert_eq!(found, culprit, "rank {}", rank);
            }
        }
    }
}

#[test]
fn nobody_says_anything_before_its_patience_ends_unless_it_is_asked() {
    let start = Instant::now();
    let mut graph = WaitGraph::new(1, [2, 0], 4);
    graph.begin(PATIENCE);
    graph.wait(7, WaitingFor::Neighbour(Direction::Previous), start);
    graph.update(start);
    assert_eq!((graph.report(), graph.next_deadline()), (None, Some(start + PATIENCE)));
    graph.hear(Direction::Next, WaitReport { sequence: 7, culprit: 1, hops: 0 });
    graph.update(start);
    assert_eq!(graph.report(), Some(WaitReport { sequence: 7, culprit: 0, hops: 0 }));
}

#[test]
fn who_goes_on_says_so_and_is_waited_for_itself_then() {
    let start = Instant::now();
    let mut graph = WaitGraph::new(1, [2, 0], 4);
    graph.begin(PATIENCE);
    graph.wait(7, WaitingFor::Neighbour(Direction::Previous), start);
    graph.update(start + PATIENCE);
    assert!(graph.report().is_some());
    graph.wait(7, WaitingFor::Neighbour(Direction::Previous), start + PATIENCE);
    graph.update(start + PATIENCE);
    assert_eq!(graph.next_deadline(), Some(start + PATIENCE + PAUSE));
    graph.update(start + PATIENCE + PAUSE);
    let word = WaitReport { sequence: 7, culprit: 1, hops: 0 };
    assert_eq!(graph.report(), Some(word));
    let mut after = WaitGraph::new(2, [3, 1], 4);
    after.hear(Direction::Previous, WaitReport { culprit: 0, ..word });
    assert_eq!(after.culprit(7, WaitingFor::Neighbour(Direction::Previous)), 0);
    after.hear(Direction::Previous, word);
    assert_eq!(after.culprit(7, WaitingFor::Neighbour(Direction::Previous)), 1);
}

#[test]
fn of_several_ranks_that_have_not_begun_it_is_the_one_that_a_neighbour_knows() {
    let start = Instant::now();
    let mut graph = WaitGraph::new(3, [4, 2], 8);
    graph.begin(PATIENCE);
    let several = WaitingFor::Ranks(1 | 1 << 1 | 1 << 7);
    graph.wait(5, several, start);
    graph.update(start + PATIENCE);
    assert_eq!(graph.report(), None, "it does not know which");
    graph.hear(Direction::Next, WaitReport { sequence: 5, culprit: 6, hops: 0 });
    graph.hear(Direction::Previous, WaitReport { sequence: 6, culprit: 7, hops: 0 });
    assert_eq!(graph.culprit(5, several), 0, "one has left its message, the other is further");
    let word = WaitReport { sequence: 4, culprit: 7, hops: 2 };
    graph.hear(Direction::Previous, word);
    graph.hear(Direction::Next, WaitReport { sequence: 5, hops: 4, ..word });
    graph.update(start + PATIENCE);
    assert_eq!(graph.report(), Some(WaitReport { sequence: 5, hops: 3, ..word }));
    assert_eq!((graph.culprit(5, several), graph.culprit(5, WaitingFor::Ranks(1))), (7, 0));
    // A withdrawn report is not passed on.
    graph.unsent = [false; 2];
    graph.hear(Direction::Previous, WaitReport { culprit: 2, ..word });
    graph.hear(Direction::Next, WaitReport { culprit: 4, ..word });
    graph.update(start + PATIENCE + PAUSE);
    assert_eq!(graph.report(), Some(WaitReport { sequence: 5, culprit: 3, hops: 0 }));
}

#[test]
fn who_waits_in_a_later_operation_has_done_this_one() {
    let mut graph = WaitGraph::new(1, [2, 0], 4);
    graph.hear(Direction::Previous, WaitReport { sequence: 8, culprit: 3, hops: 0 });
    assert_eq!(graph.culprit(7, WaitingFor::Neighbour(Direction::Previous)), 0);
    assert_eq!(graph.culprit(8, WaitingFor::Neighbour(Direction::Previous)), 3);
}
