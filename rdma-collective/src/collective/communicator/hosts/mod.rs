//! The hosts of a communicator: which ranks run on which, and whether a user has named them.

use std::sync::Arc;

use super::Algorithm;
use crate::bootstrap::RankList;
use crate::groups::Groups;
use crate::link::ConnectOverrides;

/// The most hosts in a log line, and the most ranks of each: the line stays readable for 1,000 hosts.
const HOSTS_LISTED_MAX: usize = 16;
const RANKS_LISTED_MAX: usize = 8;
/// The text does not say who named the hosts, because the library cannot know: a program may fill the option from the
/// environment.
const BY_NAME: &str = "Hosts as they were named (CommunicatorOptions::host_id, or NCCL_HOSTID where a program reads it), \
                       between which ranks share no memory unless Wire::Mapped is asked for";

/// The hosts of all ranks; equal on all ranks.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Hosts {
    groups: Arc<Groups>,
    /// By rank: whether a user has named its host.
    named: Vec<bool>,
}

/// How the ranks are spread over hosts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Spread {
    /// All ranks are on one host, or each has a host of its own.
    #[default]
    OneLevel,
    /// There are several hosts, and some ranks share one.
    Hosts,
    /// As [`Hosts`](Self::Hosts), and each host has a block of ranks, which is a power of two as the number of hosts
    /// is. Ranks at short distances that are powers of two are then on one host.
    Blocks,
}

impl Spread {
    pub(crate) const ALL: [Self; 3] = [Self::OneLevel, Self::Hosts, Self::Blocks];

    /// Whether an algorithm is possible here: a hierarchical one needs two levels.
    pub(super) fn has(self, way: Algorithm) -> bool {
        way != Algorithm::Hierarchical || self != Self::OneLevel
    }
}

impl Hosts {
    /// Groups the ranks by the identities of their hosts; each comes with whether a user has named it.
    pub(super) fn new<'a>(told: impl IntoIterator<Item = (&'a str, bool)>) -> Self {
        let (names, named): (Vec<&str>, _) = told.into_iter().unzip();
        Self { groups: Arc::new(Groups::by(names)), named }
    }

    /// The ranks of each host.
    pub(crate) fn groups(&self) -> &Arc<Groups> {
        &self.groups
    }

    pub(crate) fn spread(&self) -> Spread {
        // Several hosts, and fewer hosts than ranks.
        match self.groups.all() {
            [first, rest @ ..] if !rest.is_empty() && rest.len() + 1 < self.groups.ranks() => {
                let is_block = |ranks: &[u32]| {
                    ranks.len() == first.len() && ranks.windows(2).all(|two| two[0] + 1 == two[1])
                };
                let all = self.groups.all().iter().all(|ranks| is_block(ranks));
                let are_powers = first.len().is_power_of_two() && self.groups.ranks().is_power_of_two();
                if all && are_powers { Spread::Blocks } else { Spread::Hosts }
            }
            _ => Spread::OneLevel,
        }
    }

    /// A log line about ranks that share no memory because users named their hosts apart; `None` if there are none.
    /// `names` has the name of each rank's host.
    pub(super) fn describe_named(&self, names: &[&str]) -> Option<String> {
        let hosts = self.groups.all();
        if hosts.len() < 2 || !self.named.contains(&true) {
            return None;
        }
        let list = |ranks: &[u32]| {
            let first = ranks.iter().copied().take(RANKS_LISTED_MAX).collect();
            RankList::new(u32::try_from(ranks.len()).unwrap_or(u32::MAX), first)
        };
        let said = hosts.iter().take(HOSTS_LISTED_MAX).filter_map(|ranks| {
            let name = names.get(*ranks.first()? as usize)?;
            Some(format!("{name:?} has {}", list(ranks)))
        });
        let more = match hosts.len().saturating_sub(HOSTS_LISTED_MAX) {
            0 => String::new(),
            more => format!(", and there are {more} more"),
        };
        let said = said.collect::<Vec<_>>().join(", ");
        Some(format!("{BY_NAME}: {said}{more}"))
    }

    /// How two ranks connect. Ranks on differently named hosts are kept apart. Without names, their devices find out
    /// whether they share a machine.
    pub(super) fn connect_overrides(&self, ranks: [u32; 2]) -> ConnectOverrides {
        let [one, other] = ranks.map(|rank| self.groups.of(rank));
        // A single named host is enough: its user wants it kept apart from all others, named or not.
        let named = ranks.iter().any(|rank| self.named.get(*rank as usize) == Some(&true));
        ConnectOverrides { apart: named && one != other, ..ConnectOverrides::default() }
    }
}

#[cfg(test)]
mod tests;
