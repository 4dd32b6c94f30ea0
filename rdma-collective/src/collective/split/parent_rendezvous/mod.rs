//! Rendezvous of some ranks of a communicator over the operations of that communicator, so that a split needs no store.
//!
//! Communicators of several colors are made at the same time, each in as many gatherings as it needs. All ranks
//! therefore take part in rounds until no rank has anything to send.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use rdma_core::Deadline;

use super::codec::{self, Entry};
use crate::bootstrap::JobToken;
use crate::bootstrap::{BootstrapError, RankList};
use crate::collective::CommunicatorError;
use crate::collective::communicator::{Communicator, Origin, Parent, Rendezvous};

/// The most bytes that a rank may send in one round: a bound on what a faulty rank can make the others allocate.
const ENTRIES_BYTES_MAX: u64 = 64 * 1024;

/// The rendezvous of the members of one color, over the parent communicator.
pub(super) struct ParentRendezvous<'a> {
    all: &'a mut Communicator,
    origin: Origin,
    parent: Parent,
    /// The deadline of the whole split.
    deadline: Deadline,
    /// This rank in the new communicator.
    rank: u32,
    /// Entries that this rank sends in the next round.
    outgoing: Vec<Entry>,
    /// Entries that the members have sent, by key.
    received: BTreeMap<String, Vec<u8>>,
}

impl<'a> ParentRendezvous<'a> {
    pub(super) fn new(all: &'a mut Communicator, parent: Parent, deadline: Deadline) -> Self {
        let own = parent.ranks.iter().position(|rank| *rank == all.rank());
        let (rank, origin) = (own.map_or(0, |own| own as u32), all.origin().clone());
        Self { all, origin, parent, deadline, rank, outgoing: Vec::new(), received: BTreeMap::new() }
    }

    /// Decodes what a member sent: returns the entry of the gathering `name` and keeps the others for
    /// [`get`](Rendezvous::get).
    fn receive(
        &mut self,
        rank: u32,
        sent: Option<Vec<u8>>,
        name: &str,
    ) -> Result<Vec<u8>, CommunicatorError> {
        let sent =
            sent.ok_or_else(|| CommunicatorError::Rank { rank, reason: "it has given up".to_owned() })?;
        let mut entries = codec::decode(&sent).map_err(|_| CommunicatorError::Introduction { rank })?;
        match entries.pop() {
            Some((key, value)) if key == name => {
                self.received.extend(entries);
                Ok(value)
            }
            _ => Err(CommunicatorError::Introduction { rank }),
        }
    }
}

impl Rendezvous for ParentRendezvous<'_> {
    fn rank(&self) -> u32 {
        self.rank
    }

    fn world(&self) -> u32 {
        self.parent.ranks.len() as u32
    }

    fn token(&self) -> JobToken {
        self.origin.token
    }

    fn local_address(&self) -> Option<SocketAddr> {
        self.origin.address
    }

    fn parent(&self) -> Option<&Parent> {
        Some(&self.parent)
    }

    fn culprit(&self, _: &CommunicatorError) -> Option<u32> {
        // The parent communicator tells its ranks.
        None
    }

    fn set(&mut self, key: &str, value: &[u8], _: Deadline) -> Result<(), CommunicatorError> {
        self.outgoing.push((key.to_owned(), value.to_vec()));
        Ok(())
    }

    fn get(&mut self, key: &str, _: Deadline) -> Result<Vec<u8>, CommunicatorError> {
        let (waited, absent) = (Duration::ZERO, RankList::new(0, Vec::new()));
        let missing = || BootstrapError::KeyMissing { key: key.to_owned(), waited, absent };
        Ok(self.received.get(key).cloned().ok_or_else(missing)?)
    }

    /// Waits until the deadline of the whole split: an earlier one would end the parent communicator when it passes.
    fn all_gather(
        &mut self,
        name: &str,
        value: &[u8],
        _: Deadline,
    ) -> Result<Vec<Vec<u8>>, CommunicatorError> {
        self.outgoing.push((name.to_owned(), value.to_vec()));
        let own = codec::encode(&std::mem::take(&mut self.outgoing));
        let mut sent = self.all.round(Some(&own), self.deadline)?;
        let members = self.parent.ranks.clone();
        let sent = members.iter().map(|rank| sent.get_mut(*rank as usize).and_then(Option::take));
        (0..).zip(sent.collect::<Vec<_>>()).map(|(rank, sent)| self.receive(rank, sent, name)).collect()
    }
}

impl Communicator {
    /// Takes part in rounds, without sending, until no rank sends any more.
    pub(super) fn join_rounds(&mut self, deadline: Deadline) -> Result<(), CommunicatorError> {
        loop {
            match self.round(None, deadline) {
                Ok(sent) if sent.iter().all(Option::is_none) => return Ok(()),
                // The ranks that sent too much fail by themselves, and then come to these rounds as well.
                Ok(_) | Err(CommunicatorError::Bootstrap(BootstrapError::TooLarge { .. })) => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Runs one round: gathers what all ranks send, by rank; `None` for a rank that only takes part.
    fn round(
        &mut self,
        own: Option<&[u8]>,
        deadline: Deadline,
    ) -> Result<Vec<Option<Vec<u8>>>, CommunicatorError> {
        // The length plus one, so that 0 says "only takes part".
        let len = own.map_or(0, |own| own.len() as u64 + 1);
        let lens = self.gather_for_split(&len.to_le_bytes(), deadline)?;
        let (lens, _) = lens.as_chunks();
        let lens: Vec<u64> = lens.iter().map(|len| u64::from_le_bytes(*len)).collect();
        let longest = lens.iter().copied().max().unwrap_or(0).saturating_sub(1);
        if longest > ENTRIES_BYTES_MAX {
            let (what, bytes, bytes_max) = ("what a rank tells the others", longest, ENTRIES_BYTES_MAX);
            return Err(BootstrapError::TooLarge { what, bytes, bytes_max }.into());
        }
        if longest == 0 {
            return Ok(lens.iter().map(|len| (*len > 0).then(Vec::new)).collect());
        }
        let mut padded = own.unwrap_or_default().to_vec();
        padded.resize(longest as usize, 0);
        let sent = self.gather_for_split(&padded, deadline)?;
        let sent = sent.chunks(longest as usize).zip(&lens);
        Ok(sent.map(|(sent, len)| Some(sent.get(..len.checked_sub(1)? as usize)?.to_vec())).collect())
    }
}

#[cfg(test)]
mod tests;
