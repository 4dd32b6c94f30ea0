//! Some ranks of a communicator meet by operations of all of them.
//!
//! Communicators of several colors are made at the same time, each in as many gatherings as it needs: all ranks go on with rounds
//! until none has anything to tell any more.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use rdma_core::Deadline;

use super::words::{self, Word};
use crate::bootstrap::JobToken;
use crate::bootstrap::{BootstrapError, RankList};
use crate::collective::CommunicatorError;
use crate::collective::communicator::{Communicator, Origin, Parent, Rendezvous};

/// What a rank may tell in one round.
const WORDS_BYTES_MAX: u64 = 64 * 1024;

/// See the module.
pub(super) struct Beneath<'a> {
    all: &'a mut Communicator,
    origin: Origin,
    parent: Parent,
    /// Of the whole.
    deadline: Deadline,
    /// This rank, in what is made.
    rank: u32,
    /// What this one tells in the next round, and what others have told.
    untold: Vec<Word>,
    heard: BTreeMap<String, Vec<u8>>,
}

impl<'a> Beneath<'a> {
    pub(super) fn new(all: &'a mut Communicator, parent: Parent, deadline: Deadline) -> Self {
        let own = parent.ranks.iter().position(|rank| *rank == all.rank());
        let (rank, origin) = (own.map_or(0, |own| own as u32), all.origin().clone());
        Self { all, origin, parent, deadline, rank, untold: Vec::new(), heard: BTreeMap::new() }
    }

    /// What the member of that rank has told: all but the gathering's own word is kept.
    fn hear(&mut self, rank: u32, told: Option<Vec<u8>>, name: &str) -> Result<Vec<u8>, CommunicatorError> {
        let told =
            told.ok_or_else(|| CommunicatorError::Rank { rank, reason: "it has given up".to_owned() })?;
        let mut words = words::decode(&told).map_err(|_| CommunicatorError::Introduction { rank })?;
        match words.pop() {
            Some((key, value)) if key == name => {
                self.heard.extend(words);
                Ok(value)
            }
            _ => Err(CommunicatorError::Introduction { rank }),
        }
    }
}

impl Rendezvous for Beneath<'_> {
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

    fn set(&mut self, key: &str, value: &[u8], _: Deadline) -> Result<(), CommunicatorError> {
        self.untold.push((key.to_owned(), value.to_vec()));
        Ok(())
    }

    fn get(&mut self, key: &str, _: Deadline) -> Result<Vec<u8>, CommunicatorError> {
        let (waited, absent) = (Duration::ZERO, RankList::new(0, Vec::new()));
        let missing = || BootstrapError::KeyMissing { key: key.to_owned(), waited, absent };
        Ok(self.heard.get(key).cloned().ok_or_else(missing)?)
    }

    /// Up to the deadline of the whole: one that passes here would end what the ranks meet by.
    fn all_gather(
        &mut self,
        name: &str,
        value: &[u8],
        _: Deadline,
    ) -> Result<Vec<Vec<u8>>, CommunicatorError> {
        self.untold.push((name.to_owned(), value.to_vec()));
        let own = words::encode(&std::mem::take(&mut self.untold));
        let mut told = self.all.round(Some(&own), self.deadline)?;
        let members = self.parent.ranks.clone();
        let told = members.iter().map(|rank| told.get_mut(*rank as usize).and_then(Option::take));
        (0..).zip(told.collect::<Vec<_>>()).map(|(rank, told)| self.hear(rank, told, name)).collect()
    }
}

impl Communicator {
    /// Goes on with the rounds until no rank has anything to tell.
    pub(super) fn sit_out(&mut self, deadline: Deadline) -> Result<(), CommunicatorError> {
        loop {
            match self.round(None, deadline) {
                Ok(told) if told.iter().all(Option::is_none) => return Ok(()),
                // What is too long is those ranks' affair: they go on to this as well.
                Ok(_) | Err(CommunicatorError::Bootstrap(BootstrapError::TooLarge { .. })) => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// What all ranks tell, by rank; `None` of one that has nothing to tell any more.
    fn round(
        &mut self,
        own: Option<&[u8]>,
        deadline: Deadline,
    ) -> Result<Vec<Option<Vec<u8>>>, CommunicatorError> {
        // One more than it is, of what there is.
        let len = own.map_or(0, |own| own.len() as u64 + 1);
        let lens = self.gather_words(&len.to_le_bytes(), deadline)?;
        let (lens, _) = lens.as_chunks();
        let lens: Vec<u64> = lens.iter().map(|len| u64::from_le_bytes(*len)).collect();
        let longest = lens.iter().copied().max().unwrap_or(0).saturating_sub(1);
        if longest > WORDS_BYTES_MAX {
            let (what, bytes, bytes_max) = ("what a rank tells the others", longest, WORDS_BYTES_MAX);
            return Err(BootstrapError::TooLarge { what, bytes, bytes_max }.into());
        }
        if longest == 0 {
            return Ok(lens.iter().map(|len| (*len > 0).then(Vec::new)).collect());
        }
        let mut padded = own.unwrap_or_default().to_vec();
        padded.resize(longest as usize, 0);
        let told = self.gather_words(&padded, deadline)?;
        let told = told.chunks(longest as usize).zip(&lens);
        Ok(told.map(|(told, len)| Some(told.get(..len.checked_sub(1)? as usize)?.to_vec())).collect())
    }
}

#[cfg(test)]
mod tests;
