//! Whom ranks wait for: one that has waited for long tells its neighbours which rank that is, and who waits for one that
//! waits says so of that one's in its turn. So all of them know at a deadline which rank it is that is late.
//!
//! Sans-IO: the ring sends what is to be said, and hands over what was heard.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::collective::operation::Waits;

/// Between two words: ranks that hold each other up by turns do not fill their lanes.
const PAUSE: Duration = Duration::from_millis(10);

/// A neighbour.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Direction {
    Next = 0,
    Previous = 1,
}

/// Whom an operation waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Awaited {
    /// Which may itself wait for another.
    Neighbour(Direction),
    /// One that a link of the mesh leads to, and the same.
    Linked(u32),
    /// Some that have not begun, as this rank sees, a bit each, neither neighbour among them. Of several, one may wait for
    /// another, which a neighbour may know.
    Ranks(u32),
}

/// See the module.
#[derive(Debug)]
pub(super) struct Stalls {
    own: u32,
    world: u32,
    /// The rank after this one and the rank before it.
    neighbours: [u32; 2],
    /// How long it waits before it says so, unless it is asked by one that waits for it.
    patience: Duration,
    wait: Option<Wait>,
    /// Whom the neighbours wait for, as far as they do.
    heard: [Option<Waits>; 2],
    /// The same of the ranks that links of the mesh lead to, and whether they have still to be told.
    links: BTreeMap<u32, Linked>,
    said: Option<Waits>,
    said_at: Option<Instant>,
    /// Who has still to be told.
    pub(super) unsaid: [bool; 2],
    due: Option<Instant>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Linked {
    heard: Option<Waits>,
    unsaid: bool,
}

#[derive(Debug, Clone, Copy)]
struct Wait {
    sequence: u64,
    awaited: Awaited,
    since: Instant,
}

impl Stalls {
    pub(super) fn new(own: u32, neighbours: [u32; 2], world: u32) -> Self {
        Self {
            own,
            world,
            neighbours,
            patience: Duration::ZERO,
            wait: None,
            heard: [None; 2],
            links: BTreeMap::new(),
            said: None,
            said_at: None,
            unsaid: [false; 2],
            due: None,
        }
    }

    /// There is a link of the mesh to `rank`, too.
    pub(super) fn link(&mut self, rank: u32) {
        self.links.entry(rank).or_default();
    }

    /// An operation begins, in which a wait is long after `patience`.
    pub(super) fn begin(&mut self, patience: Duration) {
        self.patience = patience;
        self.wait = None;
    }

    /// Operation `sequence` waits for another rank, and has done nothing `since`.
    pub(super) fn wait(&mut self, sequence: u64, awaited: Awaited, since: Instant) {
        self.wait = Some(Wait { sequence, awaited, since });
    }

    /// The operation has ended. What was said of it is taken back at once: it would blame somebody for the next one.
    pub(super) fn end(&mut self) {
        self.wait = None;
        self.said_at = None;
        self.due = None;
    }

    /// A neighbour says whom it waits for; itself, when it waits no more.
    pub(super) fn hear(&mut self, side: Direction, waits: Waits) {
        self.heard[side as usize] = self.believed(self.neighbours[side as usize], waits);
    }

    /// The same of a rank that a link of the mesh leads to.
    pub(super) fn hear_linked(&mut self, rank: u32, waits: Waits) {
        let heard = self.believed(rank, waits);
        if let Some(linked) = self.links.get_mut(&rank) {
            linked.heard = heard;
        }
    }

    fn believed(&self, of: u32, waits: Waits) -> Option<Waits> {
        // Nobody is blamed who does not exist.
        Some(waits).filter(|waits| waits.culprit != of && waits.culprit < self.world)
    }

    /// The rank that operation `sequence` waits for at last, when it waits for that one.
    pub(super) fn culprit(&self, sequence: u64, awaited: Awaited) -> u32 {
        let first = match awaited {
            Awaited::Neighbour(side) => self.neighbours[side as usize],
            Awaited::Linked(rank) => rank,
            Awaited::Ranks(missing) => missing.trailing_zeros().min(self.world - 1),
        };
        self.follow(sequence, awaited).map_or(first, |waits| waits.culprit)
    }

    /// `None` when they wait for each other in a circle, or it is not known which of several ranks it is.
    fn follow(&self, sequence: u64, awaited: Awaited) -> Option<Waits> {
        // One that waits in a later operation has done all of this one.
        let present = |theirs: &Waits| theirs.sequence <= sequence;
        let heard = |side: Direction| self.heard[side as usize].filter(present);
        let (known, heard) = match awaited {
            Awaited::Neighbour(side) => (Some(self.neighbours[side as usize]), heard(side)),
            Awaited::Linked(rank) => {
                (Some(rank), self.links.get(&rank).and_then(|linked| linked.heard.filter(present)))
            }
            Awaited::Ranks(missing) if missing.is_power_of_two() => (Some(missing.trailing_zeros()), None),
            Awaited::Ranks(missing) => {
                let words = [Direction::Next, Direction::Previous].into_iter().filter_map(heard);
                let of_them = words.filter(|theirs| {
                    missing.checked_shr(theirs.culprit).is_some_and(|missing| missing & 1 == 1)
                });
                // The word itself may come back from the other side, by more.
                (None, of_them.min_by_key(|theirs| theirs.hops))
            }
        };
        match heard {
            None => known.map(|culprit| Waits { sequence, culprit, hops: 0 }),
            Some(Waits { culprit, hops, .. }) => {
                let hops = hops.saturating_add(1);
                // From the rank at fault all the others are at most so many away.
                let straight = culprit != self.own && hops.saturating_add(1) < self.world;
                straight.then_some(Waits { sequence, culprit, hops })
            }
        }
    }

    fn is_asked(&self) -> bool {
        let linked = self.links.values().map(|linked| &linked.heard);
        self.heard.iter().chain(linked).flatten().any(|theirs| theirs.culprit == self.own)
    }

    /// What the neighbours should know and do not.
    fn word(&self, now: Instant) -> Option<Waits> {
        let long =
            |wait: &Wait| self.is_asked() || now.saturating_duration_since(wait.since) >= self.patience;
        let wait =
            self.wait.filter(long).map(|wait| (wait.awaited, self.follow(wait.sequence, wait.awaited)));
        let word = match (wait, self.said) {
            (Some((_, Some(word))), _) => word,
            (Some((Awaited::Neighbour(_) | Awaited::Linked(_), None)), _) | (_, None) => return None,
            // It waits no more, or for others than was said.
            (_, Some(said)) => Waits { culprit: self.own, hops: 0, ..said },
        };
        (self.said != Some(word)).then_some(word)
    }

    /// Patience whether there is something to say; it is said until the neighbours have been told.
    pub(super) fn update(&mut self, now: Instant) {
        let word = self.word(now);
        let free_at = self.said_at.and_then(|at| at.checked_add(PAUSE)).filter(|at| now < *at);
        let long_at = self.wait.and_then(|wait| wait.since.checked_add(self.patience)).filter(|at| now < *at);
        self.due = if word.is_some() { free_at } else { long_at };
        if let (Some(word), None) = (word, free_at) {
            self.said = Some(word);
            self.said_at = Some(now);
            self.unsaid = [true; 2];
            self.links.values_mut().for_each(|linked| linked.unsaid = true);
            self.due = long_at;
        }
    }

    /// What is to be said to who has not been told.
    pub(super) fn said(&self) -> Option<Waits> {
        self.said.filter(|_| self.unsaid.contains(&true) || self.links.values().any(|linked| linked.unsaid))
    }

    /// The ranks with a link of the mesh that have still to be told it; `tell` says whether one still has.
    pub(super) fn tell_linked(&mut self, mut tell: impl FnMut(u32) -> bool) {
        for (rank, linked) in self.links.iter_mut().filter(|(_, linked)| linked.unsaid) {
            linked.unsaid = tell(*rank);
        }
    }

    /// When to [look](Self::update) again, though nothing comes.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        self.due
    }
}

#[cfg(test)]
mod tests;
