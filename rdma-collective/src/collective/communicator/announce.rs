//! What a communicator says of itself, in NCCL's words: its beginning, its links and its end at INFO, and once at WARN
//! why it has failed. Operations say nothing but which way they take, once for each collective and size.

use std::fmt;
use std::time::Instant;

use rdma_core::PeerAccess;

use super::options::CommunicatorOptions;
use super::rendezvous::{Parent, Rendezvous};
use super::ring::{Links, RingLinks};
use crate::collective::CommunicatorError;
use crate::collective::{AbortReason, CollectiveError};
use crate::engine::{Engine, net};
use crate::link::LaneName;

/// Says it.
#[derive(Debug)]
pub(super) struct Announcer {
    /// Which communicator, and which rank of it.
    who: String,
    net: &'static str,
    rank: u32,
    /// What it was split from.
    parent: Option<Parent>,
    begun: Instant,
    /// It was said that it has ended.
    ended: bool,
}

impl Announcer {
    /// A communicator that is begun.
    pub(super) fn start(engine: &Engine, store: &dyn Rendezvous, options: &CommunicatorOptions) -> Self {
        let CommunicatorOptions { name, epoch, .. } = options;
        let (rank, world, job) = (store.rank(), store.world(), store.token().fingerprint());
        let device = engine.context().name();
        let who = format!("comm {name} rank {rank} nranks {world} dev {device} job {job:08x} epoch {epoch}");
        if let Some(address) = store.local_address() {
            tracing::info!("Bootstrap : Using {address}");
        }
        let parent = store.parent().cloned();
        match &parent {
            None => tracing::info!("{who} - Init START"),
            Some(Parent { name, ranks, color, key }) => {
                let there = ranks.get(rank as usize).copied().unwrap_or(rank);
                tracing::info!("{who} parent {name} rank {there} color {color} key {key} - Init START");
            }
        }
        Self { who, net: net(engine.context()), rank, parent, begun: Instant::now(), ended: false }
    }

    /// It is connected, or cannot be.
    pub(super) fn connected(&self, links: Result<Option<&Links>, &CommunicatorError>) {
        let Self { who, begun, .. } = self;
        match links {
            Ok(links) => {
                if let Some((RingLinks { next, previous, .. }, host)) = links {
                    self.channel([self.rank, next.rank], "send", next.access, next.name);
                    self.channel([previous.rank, self.rank], "receive", previous.access, previous.name);
                    tracing::info!("Connected all rings");
                    if let Some(host) = host {
                        let ranks = host.others().count() + 1;
                        tracing::info!("Mailboxes between all {ranks} ranks, which are on one host");
                    }
                }
                tracing::info!("Init timings: rank {} total {:.3}", self.rank, begun.elapsed().as_secs_f64());
                tracing::info!("{who} - Init COMPLETE");
            }
            Err(error) => tracing::warn!("{who} - Init FAILED: {error}"),
        }
    }

    fn channel(&self, [from, to]: [u32; 2], way: &str, access: PeerAccess, lane: LaneName) {
        let net = self.net;
        tracing::info!("Channel 00/0 : {from}[0] -> {to}[0] [{way}] via {net}/0/{access}, {lane}");
    }

    /// Which way a collective of so many bytes, or as few as half of them, takes.
    pub(super) fn way(&self, collective: &str, bytes: usize, way: &str) {
        tracing::info!("{} - {collective} of up to {bytes} bytes: {way}", self.who);
    }

    /// There are no operations any more; only the first word of it is said.
    pub(super) fn ended(&mut self, error: &CollectiveError) {
        if std::mem::replace(&mut self.ended, true) {
            return;
        }
        let Self { who, rank, parent, .. } = self;
        match error {
            CollectiveError::Aborted { culprit, reason: AbortReason::Requested, .. } if culprit == rank => {
                tracing::info!("{who} - Abort START");
            }
            _ => tracing::warn!("{who} has failed: {error}{}", named_there(parent.as_ref(), error)),
        }
    }

    /// Its lanes are gone.
    pub(super) fn closed(&self) {
        tracing::info!("{self}");
    }
}

impl fmt::Display for Announcer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} - {} COMPLETE", self.who, if self.ended { "Abort" } else { "Destroy" })
    }
}

/// Who the rank that an error names is in the communicator that its own was split from.
fn named_there(parent: Option<&Parent>, error: &CollectiveError) -> String {
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
        assert_eq!(named_there(Some(&parent), &unlinked(1)), " (rank 1 is rank 3 of world)");
        assert_eq!(named_there(Some(&parent), &unlinked(2)), "");
        assert_eq!(named_there(Some(&parent), &CollectiveError::Unsent), "");
        assert_eq!(named_there(None, &unlinked(1)), "");
    }
}
