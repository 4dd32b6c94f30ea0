//! Log lines of a communicator, in NCCL's words, so that tools and people that read NCCL's log can read this one.
//!
//! Start, links and end are logged at INFO, and the first failure once at WARN. An operation logs nothing but its
//! algorithm and protocol, once for each collective and power of two of bytes.

use std::fmt;
use std::time::Instant;

use super::connect::LinksAndHost;
use super::link::Link;
use super::options::CommunicatorOptions;
use super::rendezvous::{Parent, Rendezvous};
use crate::collective::CommunicatorError;
use crate::collective::{AbortReason, CollectiveError};
use crate::engine::{Engine, net};
use crate::metrics;

/// Writes the log lines of one communicator.
#[derive(Debug)]
pub(super) struct Announcer {
    /// The prefix of its lines: communicator, rank, device, job and epoch.
    who: String,
    /// The transport, as NCCL would name it in a channel's line.
    net: &'static str,
    rank: u32,
    /// The communicator that this one was split from.
    parent: Option<Parent>,
    /// When this rank began to join, for the line with the timings.
    begun: Instant,
    /// Whether a failure was logged. Later failures follow from the first one and are not logged.
    ended: bool,
}

impl Announcer {
    /// Begins the log of a communicator: a line says that it starts to join.
    pub(super) fn start(engine: &Engine, store: &dyn Rendezvous, options: &CommunicatorOptions) -> Self {
        let CommunicatorOptions { name, epoch, .. } = options;
        let (rank, world, job) = (store.rank(), store.world(), store.token().fingerprint());
        let device = engine.context().name();
        let who = format!("comm {name} rank {rank} nranks {world} dev {device} job {job:08x} epoch {epoch}");
        if let Some(address) = store.local_address() {
            crate::log::info!("Bootstrap : Using {address}");
        }
        let parent = store.parent().cloned();
        match &parent {
            None => crate::log::info!("{who} - Init START"),
            Some(Parent { name, ranks, color, key }) => {
                let there = ranks.get(rank as usize).copied().unwrap_or(rank);
                crate::log::info!("{who} parent {name} rank {there} color {color} key {key} - Init START");
            }
        }
        Self { who, net: net(engine.context()), rank, parent, begun: Instant::now(), ended: false }
    }

    /// Logs that the communicator is connected, or why it cannot be.
    pub(super) fn connected(&self, links: Result<Option<&LinksAndHost>, &CommunicatorError>) {
        let Self { who, begun, .. } = self;
        match links {
            Ok(links) => {
                if let Some((links, host)) = links {
                    if let Some(next) = links.table.link(links.next) {
                        self.channel([self.rank, links.next], "send", next);
                    }
                    if let Some(previous) = links.table.link(links.previous) {
                        self.channel([links.previous, self.rank], "receive", previous);
                    }
                    crate::log::info!("Connected all rings");
                    if let Some(host) = host {
                        let ranks = host.others().count() + 1;
                        crate::log::info!("Mailboxes between all {ranks} ranks, which are on one host");
                    }
                }
                crate::log::info!(
                    "Init timings: rank {} total {:.3}",
                    self.rank,
                    begun.elapsed().as_secs_f64()
                );
                crate::log::info!("{who} - Init COMPLETE");
            }
            Err(error) => crate::log::warn!("{who} - Init FAILED: {error}"),
        }
    }

    /// Logs one direction of the ring as NCCL logs a channel.
    fn channel(&self, [from, to]: [u32; 2], way: &str, Link { access, lanes, .. }: &Link) {
        let (net, lane) = (self.net, lanes.name);
        crate::log::info!("Channel 00/0 : {from}[0] -> {to}[0] [{way}] via {net}/0/{access}, {lane}");
    }

    /// Logs which algorithm and protocol a collective of up to `bytes` takes, down to half as many.
    pub(super) fn way(&self, collective: &str, bytes: usize, way: &str) {
        crate::log::info!("{} - {collective} of up to {bytes} bytes: {way}", self.who);
    }

    /// Logs why the communicator has failed; only the first call logs.
    pub(super) fn ended(&mut self, error: &CollectiveError) {
        // Every later operation fails too, for the same reason.
        if std::mem::replace(&mut self.ended, true) {
            return;
        }
        let Self { who, rank, parent, .. } = self;
        match error {
            // An abort that this rank's own caller asked for is no failure.
            CollectiveError::Aborted { culprit, reason: AbortReason::Requested, .. } if culprit == rank => {
                crate::log::info!("{who} - Abort START");
            }
            _ => {
                metrics::rank_lost(error.cause());
                crate::log::warn!("{who} has failed: {error}{}", in_parent(parent.as_ref(), error));
            }
        }
    }

    /// Logs that the lanes have ended.
    pub(super) fn closed(&self) {
        crate::log::info!("{self}");
    }
}

impl fmt::Display for Announcer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} - {} COMPLETE", self.who, if self.ended { "Abort" } else { "Destroy" })
    }
}

/// The rank that an error names, by its number in the parent communicator: a user knows the ranks of the job, not
/// those of a split. Empty if there is no parent.
fn in_parent(parent: Option<&Parent>, error: &CollectiveError) -> String {
    let named = parent.zip(error.culprit());
    let there = named.and_then(|(parent, rank)| Some((&parent.name, rank, parent.rank_of(rank)?)));
    there.map_or_else(String::new, |(name, rank, there)| format!(" (rank {rank} is rank {there} of {name})"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rank_that_is_named_is_told_by_its_number_in_the_parent_too() {
        let parent = Parent { name: "world".to_owned(), ranks: vec![7, 3], color: 1, key: 0 };
        let unlinked = |rank| CollectiveError::Unlinked { rank, reason: String::new() };
        assert_eq!(in_parent(Some(&parent), &unlinked(1)), " (rank 1 is rank 3 of world)");
        assert_eq!(in_parent(Some(&parent), &unlinked(2)), "");
        assert_eq!(in_parent(Some(&parent), &CollectiveError::Unsent), "");
        assert_eq!(in_parent(None, &unlinked(1)), "");
    }
}
