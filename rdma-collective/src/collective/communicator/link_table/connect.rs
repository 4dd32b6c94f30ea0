//! Connecting links: two gatherings of words among all ranks, and then either every rank has the links or none has.
//!
//! The operation that needs the links carries both gatherings around the ring, because the store may be gone and the
//! ring is the only connection that all ranks are sure to have:
//!
//! 1. Each rank gives the blobs of its open lanes, one for each peer. A lane cannot be connected without its peer's
//!    blob.
//! 2. Each rank gives its verdict: whether it could connect all its lanes. Only then may the first message go over a
//!    link.
//!
//! A rank that has failed gives a reason instead, so all ranks learn of it in the same gathering and none waits for
//! it. All of them remember the failure for that reach and more. A smaller reach needs fewer links, and may still be
//! tried.

use std::collections::VecDeque;

use rdma_core::Deadline;

use super::super::reach::Reach;
use super::LinkTable;
use crate::collective::CommunicatorError;
use crate::collective::communicator::lanes::fence_unused;
use crate::collective::communicator::link::Link;
use crate::collective::communicator::links::{FENCE_WITHIN, Lost};
use crate::collective::communicator::open_link::{OpenLink, read_blobs};
use crate::engine::{EngineState, LaneId};
use crate::link::{Blob, ConnectOverrides, LaneFailure, LaneName, LinkKind};
use crate::liveness::EXIT_WITHIN;

/// Bytes of a verdict: a flag, and a reason if the rank could not connect.
pub(crate) const VERDICT_BYTES: usize = 256;
/// Bytes of the rank in front of an entry.
const RANK_BYTES: usize = 4;
/// Bytes that an entry has for each lane: a blob with one region and no payload.
const BLOB_BYTES: usize = 124;
/// The first byte of a word: the rank has opened, or connected, all its links.
const SUCCEEDED: u8 = 1;
/// The first byte of a word: the rank has failed; the reason follows.
const FAILED: u8 = 2;
/// The first byte of a word: the rank has opened no links, because all ranks know that they cannot be made.
const KNOWN_IMPOSSIBLE: u8 = 3;

/// Bytes of a word with all blobs of a rank. All words have one length, because the ring carries them as an all-gather.
pub(crate) fn word_bytes(reach: Reach, world: u32, lanes: u8) -> usize {
    (1 + reach.peers(0, world).count() * entry_bytes(lanes)).max(VERDICT_BYTES)
}

/// Bytes of one entry: the rank that it is for, and the blobs of the lanes to that rank.
fn entry_bytes(lanes: u8) -> usize {
    RANK_BYTES + usize::from(lanes) * BLOB_BYTES
}

/// Links that one operation will connect together.
#[derive(Debug)]
pub(super) struct OpenLinks {
    pub(super) reach: Reach,
    pub(super) links: Vec<OpenLink>,
    /// Why some of them could not be opened.
    pub(super) refused: Option<CommunicatorError>,
}

impl OpenLinks {
    pub(super) fn lanes(&self) -> impl Iterator<Item = LaneId> + '_ {
        self.links.iter().flat_map(|link| link.lanes.iter().copied())
    }
}

/// A rank that could not connect, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Unlinked {
    pub(crate) rank: u32,
    pub(crate) reason: String,
}

/// Links that the present operation connects, and the words that the ring carries for them.
#[derive(Debug)]
pub(crate) struct Connecting {
    pub(super) reach: Reach,
    unconnected: Vec<OpenLink>,
    connected: Vec<Link>,
    /// The words of all ranks, by rank: first blobs, then verdicts.
    pub(crate) words: Vec<u8>,
}

impl Connecting {
    /// The links of which both ends may be connected.
    pub(super) fn connected_mut(&mut self) -> impl Iterator<Item = &mut Link> {
        self.connected.iter_mut()
    }

    pub(super) fn lanes(&self) -> impl Iterator<Item = LaneId> + '_ {
        let unconnected = self.unconnected.iter().flat_map(|link| &link.lanes);
        unconnected.chain(self.connected.iter().flat_map(|link| &link.lanes.all)).copied()
    }
}

impl LinkTable {
    /// Takes the links of `reach` that callers have opened, and writes this rank's word with their blobs.
    pub(crate) fn begin_connecting(&mut self, reach: Reach) {
        let (mut unconnected, mut refused) = (Vec::new(), None);
        // The callers of this rank opened no such links: they knew already that the links cannot be made. Other ranks
        // may have begun before they knew it, so this rank still takes part in the gathering.
        let lacks = self.opened() < reach;
        while self.opening.front().is_some_and(|opening| opening.reach <= reach)
            && let Some(OpenLinks { links, refused: why, .. }) = self.opening.pop_front()
        {
            unconnected.extend(links);
            refused = refused.or(why);
        }
        let bytes = word_bytes(reach, self.world, self.lanes);
        let mut words = vec![0; bytes * self.world as usize];
        let own = &mut words[bytes * self.rank as usize..][..bytes];
        let fitting = match refused {
            Some(error) => Err(error.to_string()),
            None => put_blobs(own, &unconnected, self.lanes),
        };
        match fitting {
            _ if lacks => own[0] = KNOWN_IMPOSSIBLE,
            Ok(()) => {}
            Err(reason) => put_verdict(own, Err(&reason)),
        }
        self.connecting = Some(Connecting { reach, unconnected, connected: Vec::new(), words });
    }

    /// Connects the links by the blobs of all ranks, and writes this rank's verdict. The inner result is the first rank
    /// that could not open its links. All ranks read the same words, so all of them return it.
    ///
    /// # Errors
    ///
    /// A rank whose process has died. This rank gives no verdict then: it would be the one at fault in that.
    pub(crate) fn connect(&mut self, core: &mut EngineState) -> Result<Result<(), Unlinked>, Lost> {
        let Some(mut connecting) = self.connecting.take() else { return Ok(Ok(())) };
        // A failure of this rank is not returned here but becomes its verdict, so that all ranks give up together.
        let could = self.check_words(&connecting.words);
        let connected = could.map(|()| self.connect_all(core, &mut connecting));
        if let Ok(Ok(verdict)) = &connected {
            connecting.words = vec![0; VERDICT_BYTES * self.world as usize];
            let own = &mut connecting.words[VERDICT_BYTES * self.rank as usize..][..VERDICT_BYTES];
            put_verdict(own, verdict.as_ref().map_err(String::as_str).copied());
        }
        self.connecting = Some(connecting);
        match connected {
            Ok(connected) => connected.map(|_| Ok(())),
            Err(found) => Ok(Err(self.give_up_links(core, found))),
        }
    }

    /// Checks the verdicts of all ranks.
    ///
    /// No message may use a link before: a peer that could not connect its end would never receive it. The device would
    /// repeat the message in vain and end the lane, and that would look like the loss of a healthy rank.
    ///
    /// # Errors
    ///
    /// The first rank that could not connect its links.
    pub(crate) fn confirm(&mut self, core: &mut EngineState) -> Result<(), Unlinked> {
        let confirmed = match &self.connecting {
            Some(connecting) => self.check_words(&connecting.words),
            None => Ok(()),
        };
        confirmed.map_err(|found| self.give_up_links(core, found))
    }

    /// Gives up links of this reach and more, and fences those that were opened for them. Links in use stay.
    ///
    /// The reason is what was `found` now, or what all ranks knew before.
    fn give_up_links(&mut self, core: &mut EngineState, found: Option<Unlinked>) -> Unlinked {
        let connecting = self.connecting.take();
        let reach = connecting.as_ref().map_or(Reach::All, |connecting| connecting.reach);
        let (least, why) = match (found, self.unlinked.take()) {
            // This failure was logged when it was found.
            (None, Some(known)) => known,
            (found, _) => {
                let why = found.unwrap_or_else(|| malformed_word(self.rank));
                let Unlinked { rank, reason } = &why;
                crate::log::warn!(
                    "No links to {reach}: rank {rank} could not connect ({reason}); see its log. Operations that need such \
                     links fail, and all others use the ring"
                );
                (reach, why)
            }
        };
        self.unlinked = Some((least, why.clone()));
        // No operation will connect these, so they must not hold lanes and memory until the communicator ends.
        let of_no_use = |opening: &OpenLinks| opening.reach >= least;
        let (opening, left): (VecDeque<_>, _) = self.opening.drain(..).partition(of_no_use);
        self.opening = left;
        let deadline = Deadline::after(FENCE_WITHIN);
        let lanes = connecting.iter().flat_map(Connecting::lanes);
        let unused: Vec<_> = lanes.chain(opening.iter().flat_map(OpenLinks::lanes)).collect();
        fence_unused(core, &unused, deadline);
        why
    }

    /// Puts the connected links into use; returns their ranks.
    pub(in crate::collective) fn take_links(&mut self) -> Vec<u32> {
        let Some(Connecting { reach, connected, .. }) = self.connecting.take() else { return Vec::new() };
        self.reach = reach;
        let taken = connected.iter().map(|link| link.rank).collect::<Vec<_>>();
        self.links.extend(connected.into_iter().map(|link| (link.rank, link)));
        // In a small world all ranks are neighbours.
        if !taken.is_empty() {
            crate::log::info!("Connected to {} more ranks, since an operation needs it", taken.len());
        }
        taken
    }

    /// Reads the words of all ranks, in order of rank, so that all ranks find the same first failure. `Err(None)`
    /// stands for the failure that all ranks knew before.
    fn check_words(&self, words: &[u8]) -> Result<(), Option<Unlinked>> {
        let bytes = words.len() / self.world as usize;
        for (rank, word) in (0..).zip(words.chunks_exact(bytes.max(1))) {
            match word.split_first() {
                Some((&SUCCEEDED, _)) => {}
                Some((&FAILED, reason)) => {
                    let end = reason.iter().position(|byte| *byte == 0).unwrap_or(reason.len());
                    // The text is a peer's: control characters could forge lines of this rank's log.
                    let reason = String::from_utf8_lossy(&reason[..end]).replace(char::is_control, " ");
                    return Err(Some(Unlinked { rank, reason }));
                }
                Some((&KNOWN_IMPOSSIBLE, _)) if self.unlinked.is_some() => return Err(None),
                _ => return Err(Some(malformed_word(rank))),
            }
        }
        Ok(())
    }

    /// Connects every opened link by the blob of its peer; stops at the first that fails, and returns why.
    ///
    /// # Errors
    ///
    /// The peer of that link has died.
    fn connect_all(
        &self,
        core: &mut EngineState,
        connecting: &mut Connecting,
    ) -> Result<Result<(), String>, Lost> {
        let Connecting { unconnected, connected, words, .. } = connecting;
        let bytes = words.len() / self.world as usize;
        while let Some(link) = unconnected.pop() {
            let word = words.chunks_exact(bytes.max(1)).nth(link.rank as usize).unwrap_or_default();
            let (peer, lanes) = (link.rank, link.lanes.clone());
            let overrides = self.hosts.connect_overrides([self.rank, peer]);
            let blobs = self.find_blobs(peer, word);
            let process =
                blobs.as_ref().ok().and_then(|blobs| Some(blobs.first()?.process)).unwrap_or_default();
            let first = lanes.first().and_then(|lane| core.opening(*lane));
            let name =
                first.map(|lane| LaneName { qp_num: lane.endpoint().qp_num, epoch: lane.options().epoch });
            match blobs.and_then(|blobs| make_link(core, link, &blobs, overrides)) {
                Ok(link) => connected.push(link),
                Err(error) => {
                    // These lanes are in neither list any more, so nobody else will fence them.
                    fence_unused(core, &lanes, Deadline::after(FENCE_WITHIN));
                    // The device cannot tell a death from an error of the network: it sees only that nobody answers.
                    if let Some(lane) = name.filter(|_| process.ends_within(EXIT_WITHIN)) {
                        let cause = LaneFailure::Died { pid: process.pid };
                        return Err(Lost { rank: peer, lane, cause, away: None });
                    }
                    return Ok(Err(format!("it cannot connect to rank {peer}: {error}")));
                }
            }
        }
        Ok(Ok(()))
    }

    /// The blobs for this rank in the word of `peer`: one for each lane, and at least one.
    fn find_blobs(&self, peer: u32, word: &[u8]) -> Result<Vec<Blob>, CommunicatorError> {
        find_blobs(word, self.job, (peer, self.rank), self.lanes)?
            .filter(|blobs| !blobs.is_empty() && blobs.iter().all(|blob| blob.epoch == self.epoch))
            .ok_or(CommunicatorError::Introduction { rank: peer })
    }
}

/// The blobs for `rank` in the word of `peer`; `None` if there are none. An entry begins with its rank plus one.
///
/// # Errors
///
/// The word is malformed.
pub(crate) fn find_blobs(
    word: &[u8],
    job: u32,
    (peer, rank): (u32, u32),
    lanes: u8,
) -> Result<Option<Vec<Blob>>, CommunicatorError> {
    let odd = || CommunicatorError::Introduction { rank: peer };
    // An unused entry is all 0, so it must not look like an entry for rank 0.
    let Some(wanted) = rank.checked_add(1) else { return Ok(None) };
    for place in word.get(1..).unwrap_or_default().chunks_exact(entry_bytes(lanes)) {
        let (to, rest) = place.split_first_chunk().ok_or_else(odd)?;
        if u32::from_le_bytes(*to) != wanted {
            continue;
        }
        let (blobs, rest) = read_blobs(rest, (LinkKind::MESH, job), lanes)?;
        // The one region is the peer's inbox, into which this rank writes.
        if rest.iter().any(|byte| *byte != 0) || blobs.iter().any(|blob| blob.regions.len() != 1) {
            return Err(odd());
        }
        return Ok(Some(blobs));
    }
    Ok(None)
}

/// The failure of a rank whose word cannot be read.
fn malformed_word(rank: u32) -> Unlinked {
    Unlinked {
        rank,
        reason: "its message about links is malformed; use the same version of the library on all ranks"
            .to_owned(),
    }
}

/// Connects the lanes of a link to its peer, which may not have connected its own end yet.
fn make_link(
    core: &mut EngineState,
    link: OpenLink,
    peer: &[Blob],
    overrides: ConnectOverrides,
) -> Result<Link, CommunicatorError> {
    let link = link.connect(core, peer, overrides)?;
    // A quiet lane sends no heartbeats. The peer may not have connected its end before all verdicts are in, and the
    // device would repeat a heartbeat only so often before it ends the lane.
    for lane in &link.lanes.all {
        core.lane(*lane).into_iter().for_each(|lane| lane.set_quiet(true));
    }
    Ok(link)
}

/// Writes the word of a rank that has opened its links: one entry for each peer.
fn put_blobs(word: &mut [u8], links: &[OpenLink], lanes: u8) -> Result<(), String> {
    let Some((flag, places)) = word.split_first_mut() else { return Ok(()) };
    for (place, link) in places.chunks_exact_mut(entry_bytes(lanes)).zip(links) {
        let (to, room) = place.split_at_mut(RANK_BYTES);
        to.copy_from_slice(&link.rank.wrapping_add(1).to_le_bytes());
        let blobs =
            room.get_mut(..link.blobs.len()).ok_or("the address of a link is too long for its message")?;
        blobs.copy_from_slice(&link.blobs);
    }
    *flag = SUCCEEDED;
    Ok(())
}

/// Writes the verdict of a rank, in place of its blobs.
fn put_verdict(word: &mut [u8], verdict: Result<(), &str>) {
    let Some((flag, room)) = word.split_first_mut() else { return };
    room.fill(0);
    *flag = match verdict {
        Ok(()) => SUCCEEDED,
        Err(reason) => {
            // A long reason is cut: the verdicts of all ranks have one length.
            let len = reason.len().min(room.len()).min(VERDICT_BYTES - 1);
            room[..len].copy_from_slice(&reason.as_bytes()[..len]);
            FAILED
        }
    };
}
