//! The wait graph: which rank waits for which, so that a rank whose deadline passes can name the rank that is late.
//!
//! The rank that an operation waits for is often innocent: it waits for another one itself. So a rank that has waited
//! for long reports to the ranks linked to it which rank it waits for. A rank that waits for a waiting rank reports
//! *that* rank's culprit as its own, with one more hop. The reports travel from link to link this way, and all waiting
//! ranks know the same late rank before their deadlines pass.
//!
//! Sans-IO: `links` sends the reports, and hands over those that arrive.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::collective::operation::{Header, WaitReport};

/// The least time between two reports of a rank: otherwise ranks that hold each other up in turns would fill their
/// lanes with reports.
const PAUSE: Duration = Duration::from_millis(10);

/// The rank, or the ranks, that an operation waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WaitingFor {
    /// A rank with a link, which may itself report that it waits for another rank.
    Rank(u32),
    /// Ranks of this host, a bit each, whose messages have not arrived; no neighbour in the ring is among them. One of
    /// several may wait for another, and a linked rank's report may say which one is late.
    Ranks(u32),
}

/// The wait graph as far as one rank sees it: its own wait, and the reports of its peers.
#[derive(Debug)]
pub(super) struct WaitGraph {
    own: u32,
    world: u32,
    /// How long this rank waits before it reports. It reports at once when a peer blames this very rank.
    patience: Duration,
    wait: Option<Wait>,
    /// The last reports of the linked ranks, and whether they must still be sent this rank's report.
    links: BTreeMap<u32, LinkReport>,
    /// The last report that this rank has made.
    reported: Option<WaitReport>,
    reported_at: Option<Instant>,
    due: Option<Instant>,
}

/// The reports to and from one linked rank.
#[derive(Debug, Clone, Copy, Default)]
struct LinkReport {
    /// `None` if the rank does not wait.
    heard: Option<WaitReport>,
    unsent: bool,
}

/// The wait of this rank's present operation.
#[derive(Debug, Clone, Copy)]
struct Wait {
    sequence: u64,
    header: Header,
    awaited: WaitingFor,
    since: Instant,
}

impl WaitGraph {
    pub(super) fn new(own: u32, world: u32) -> Self {
        Self {
            own,
            world,
            patience: Duration::ZERO,
            wait: None,
            links: BTreeMap::new(),
            reported: None,
            reported_at: None,
            due: None,
        }
    }

    /// Adds a linked rank.
    pub(super) fn link(&mut self, rank: u32) {
        self.links.entry(rank).or_default();
    }

    /// Begins an operation in which a wait is reported after `patience`.
    pub(super) fn begin(&mut self, patience: Duration) {
        self.patience = patience;
        self.wait = None;
    }

    /// Notes that operation `sequence`, which has this header, waits, and that it has made no progress `since`.
    pub(super) fn wait(&mut self, (sequence, header): (u64, Header), awaited: WaitingFor, since: Instant) {
        self.wait = Some(Wait { sequence, header, awaited, since });
    }

    /// Ends the operation. Its report is withdrawn at the next update without the usual pause: otherwise it would
    /// blame a rank for the next operation.
    pub(super) fn end(&mut self) {
        // Without the time of the last report, the next one need not wait for the pause.
        self.wait = None;
        self.reported_at = None;
        self.due = None;
    }

    /// Takes the report of a linked rank. A culprit that is the rank itself says that it waits no more.
    pub(super) fn hear(&mut self, rank: u32, waits: WaitReport) {
        let heard = self.checked(rank, waits);
        if let Some(linked) = self.links.get_mut(&rank) {
            linked.heard = heard;
        }
    }

    /// The headers of the operations in which linked ranks wait.
    pub(super) fn waits_in(&self) -> impl Iterator<Item = Header> + '_ {
        let heard = self.links.iter().filter_map(|(rank, linked)| Some((*rank, linked.heard?.waits_in)));
        heard.map(|(rank, header)| Header { rank, ..header })
    }

    /// A peer's report, unless it withdraws an earlier one or cannot be true.
    fn checked(&self, of: u32, waits: WaitReport) -> Option<WaitReport> {
        // The report is from the wire: a rank outside the world must not be blamed.
        Some(waits).filter(|waits| waits.culprit != of && waits.culprit < self.world)
    }

    /// The late rank at the end of the chain of waits that begins with `awaited`, for operation `sequence`.
    ///
    /// The rank at the beginning of the chain, if its end is not known.
    pub(super) fn culprit(&self, sequence: u64, awaited: WaitingFor) -> u32 {
        let first = match awaited {
            WaitingFor::Rank(rank) => rank,
            WaitingFor::Ranks(missing) => missing.trailing_zeros().min(self.world - 1),
        };
        self.follow(sequence, awaited).map_or(first, |(culprit, _)| culprit)
    }

    /// The late rank, and the hops to it, that follow from this wait and the reports of the peers. `None` if the ranks
    /// wait for each other in a circle, or if nobody knows which of several ranks is late.
    fn follow(&self, sequence: u64, awaited: WaitingFor) -> Option<(u32, u32)> {
        // A peer that waits in a later operation has done its part of this one, so its wait holds up nobody here.
        let present = |theirs: &WaitReport| theirs.sequence <= sequence;
        let (known, heard) = match awaited {
            WaitingFor::Rank(rank) => {
                (Some(rank), self.links.get(&rank).and_then(|linked| linked.heard.filter(present)))
            }
            WaitingFor::Ranks(missing) if missing.is_power_of_two() => (Some(missing.trailing_zeros()), None),
            WaitingFor::Ranks(missing) => {
                let words = self.links.values().filter_map(|linked| linked.heard.filter(present));
                let of_them = words.filter(|theirs| {
                    missing.checked_shr(theirs.culprit).is_some_and(|missing| missing & 1 == 1)
                });
                // This rank's own report may come back over other links, with more hops. So the fewest hops are
                // nearest to the source.
                (None, of_them.min_by_key(|theirs| theirs.hops))
            }
        };
        match heard {
            None => known.map(|culprit| (culprit, 0)),
            Some(WaitReport { culprit, hops, .. }) => {
                let hops = hops.saturating_add(1);
                // The late rank is at most `world - 1` hops away from any other. A longer chain, or one that leads back
                // to this rank, is a circle, and must not go around for ever.
                let straight = culprit != self.own && hops.saturating_add(1) < self.world;
                straight.then_some((culprit, hops))
            }
        }
    }

    /// Whether a peer blames this rank, which then reports at once for whom it waits.
    fn is_blamed(&self) -> bool {
        self.links.values().filter_map(|linked| linked.heard).any(|theirs| theirs.culprit == self.own)
    }

    /// The report that the peers should have, if it differs from the last one.
    fn next_report(&self, now: Instant) -> Option<WaitReport> {
        let long =
            |wait: &Wait| self.is_blamed() || now.saturating_duration_since(wait.since) >= self.patience;
        let wait = self.wait.filter(long).map(|Wait { sequence, header, awaited, .. }| {
            let report = |(culprit, hops)| WaitReport { sequence, culprit, hops, waits_in: header };
            (awaited, self.follow(sequence, awaited).map(report))
        });
        let word = match (wait, self.reported) {
            (Some((_, Some(word))), _) => word,
            (Some((WaitingFor::Rank(_), None)), _) | (_, None) => return None,
            // This rank waits no more, or for other ranks than it has reported: naming itself withdraws the report.
            (_, Some(reported)) => WaitReport { culprit: self.own, hops: 0, ..reported },
        };
        (self.reported != Some(word)).then_some(word)
    }

    /// Makes a new report if there is one and the pause is over. It is [`report`](Self::report) until all peers have
    /// it.
    pub(super) fn update(&mut self, now: Instant) {
        let word = self.next_report(now);
        let free_at = self.reported_at.and_then(|at| at.checked_add(PAUSE)).filter(|at| now < *at);
        let long_at = self.wait.and_then(|wait| wait.since.checked_add(self.patience)).filter(|at| now < *at);
        self.due = if word.is_some() { free_at } else { long_at };
        if let (Some(word), None) = (word, free_at) {
            self.reported = Some(word);
            self.reported_at = Some(now);
            self.links.values_mut().for_each(|linked| linked.unsent = true);
            self.due = long_at;
        }
    }

    /// The report, while a peer must still be sent it.
    pub(super) fn report(&self) -> Option<WaitReport> {
        self.reported.filter(|_| self.links.values().any(|linked| linked.unsent))
    }

    /// Sends the report to the linked ranks that do not have it; `tell` returns whether a rank must be tried again.
    pub(super) fn tell(&mut self, mut tell: impl FnMut(u32) -> bool) {
        for (rank, linked) in self.links.iter_mut().filter(|(_, linked)| linked.unsent) {
            linked.unsent = tell(*rank);
        }
    }

    /// When to [update](Self::update) again if nothing arrives.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        self.due
    }
}

#[cfg(test)]
mod tests;
