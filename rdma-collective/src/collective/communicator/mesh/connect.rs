//! From opened links to links that both ends can receive on, in two rounds of words among all ranks: what each is to be reached by,
//! and whether each could connect. A rank that could not says why in its stead, and all of them know it at once. It is remembered of
//! that reach and more: what needs fewer links tries for itself.
//!
//! The operation that needs the links carries the words around the ring.

use std::collections::VecDeque;
use std::time::Instant;

use rdma_core::Deadline;

use super::{Boxes, Link, Mesh, Reach};
use crate::collective::CommunicatorError;
use crate::collective::communicator::ring::FENCE_WITHIN;
use crate::engine::SetupError;
use crate::engine::{Core, LaneId};
use crate::link::mailbox::{Inbox, Outbox};
use crate::link::{Blob, LinkKind, Manner};

/// Bytes of a word that says whether a rank could: a flag, and why not.
pub(crate) const VERDICT_BYTES: usize = 256;
/// Room for a blob with one region and no payload.
const BLOB_BYTES: usize = 128;
/// What a word begins with.
const COULD: u8 = 1;
const COULD_NOT: u8 = 2;
/// It has opened none, for a reason that all ranks have found before.
const KNOWN: u8 = 3;

/// Bytes of a word with all blobs of a rank.
pub(crate) fn word_bytes(reach: Reach, world: u32) -> usize {
    (1 + reach.peers(0, world).count() * BLOB_BYTES).max(VERDICT_BYTES)
}

/// A link that its rank has not been told of.
#[derive(Debug)]
pub(super) struct Opened {
    pub(super) rank: u32,
    pub(super) lane: LaneId,
    pub(super) outbox: Outbox,
    pub(super) inbox: Inbox,
    /// What it is told.
    pub(super) blob: Vec<u8>,
}

/// Links that are to be connected together.
#[derive(Debug)]
pub(super) struct Opening {
    pub(super) reach: Reach,
    pub(super) links: Vec<Opened>,
    /// Why there are not all of them.
    pub(super) refused: Option<CommunicatorError>,
}

impl Opening {
    pub(super) fn lanes(&self) -> impl Iterator<Item = LaneId> + '_ {
        self.links.iter().map(|link| link.lane)
    }
}

/// A rank that could not connect, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Unlinked {
    pub(crate) rank: u32,
    pub(crate) reason: String,
}

/// Links of which ranks tell each other.
#[derive(Debug)]
pub(crate) struct Connecting {
    pub(super) reach: Reach,
    unconnected: Vec<Opened>,
    connected: Vec<Link>,
    /// The words of all ranks, by rank.
    pub(crate) words: Vec<u8>,
}

impl Connecting {
    pub(super) fn lanes(&self) -> impl Iterator<Item = LaneId> + '_ {
        let unconnected = self.unconnected.iter().map(|link| link.lane);
        unconnected.chain(self.connected.iter().map(|link| link.lane))
    }
}

impl Mesh {
    /// Takes the links of `reach` that callers have opened, with the word of this rank in its place.
    pub(crate) fn begin_connecting(&mut self, reach: Reach) {
        let (mut unconnected, mut refused) = (Vec::new(), None);
        let lacks = self.opened() < reach;
        while self.opening.front().is_some_and(|opening| opening.reach <= reach)
            && let Some(Opening { links, refused: why, .. }) = self.opening.pop_front()
        {
            unconnected.extend(links);
            refused = refused.or(why);
        }
        let bytes = word_bytes(reach, self.world);
        let mut words = vec![0; bytes * self.world as usize];
        let own = &mut words[bytes * self.rank as usize..][..bytes];
        let fitting = match refused {
            Some(error) => Err(error.to_string()),
            None => put_blobs(own, &unconnected),
        };
        match fitting {
            _ if lacks => own[0] = KNOWN,
            Ok(()) => {}
            Err(reason) => put_verdict(own, Err(&reason)),
        }
        self.connecting = Some(Connecting { reach, unconnected, connected: Vec::new(), words });
    }

    /// The links that are being connected, while the ring is used for their words.
    pub(crate) fn take_connecting(&mut self) -> Option<Connecting> {
        self.connecting.take()
    }

    pub(crate) fn put_connecting(&mut self, connecting: Option<Connecting>) {
        self.connecting = connecting;
    }

    /// Connects the links as the words of all ranks say; what this rank says of that is its next word.
    ///
    /// # Errors
    ///
    /// A rank that had none; then no rank has any.
    pub(crate) fn connect(&mut self, core: &mut Core) -> Result<(), Unlinked> {
        let Some(mut connecting) = self.connecting.take() else { return Ok(()) };
        let could = self.look_through(&connecting.words);
        let outcome = could.map(|()| {
            let connected = self.connect_all(core, &mut connecting);
            connecting.words = vec![0; VERDICT_BYTES * self.world as usize];
            let own = &mut connecting.words[VERDICT_BYTES * self.rank as usize..][..VERDICT_BYTES];
            put_verdict(own, connected.as_ref().map_err(String::as_str).copied());
        });
        self.connecting = Some(connecting);
        outcome.map_err(|found| self.do_without(core, found))
    }

    /// Whether all ranks have connected theirs.
    ///
    /// # Errors
    ///
    /// A rank that could not.
    pub(crate) fn confirm(&mut self, core: &mut Core) -> Result<(), Unlinked> {
        let confirmed = match &self.connecting {
            Some(connecting) => self.look_through(&connecting.words),
            None => Ok(()),
        };
        confirmed.map_err(|found| self.do_without(core, found))
    }

    /// There are no more links than those in use: what was opened of others goes, as does what nobody will connect. What was `found`
    /// now holds for that reach and more; else it is what was known before.
    fn do_without(&mut self, core: &mut Core, found: Option<Unlinked>) -> Unlinked {
        let connecting = self.connecting.take();
        let reach = connecting.as_ref().map_or(Reach::All, |connecting| connecting.reach);
        let (least, why) = match (found, self.unlinked.take()) {
            (None, Some(known)) => known,
            (found, _) => {
                let why = found.unwrap_or_else(|| odd_word(self.rank));
                let Unlinked { rank, reason } = &why;
                tracing::warn!(
                    "No links to {reach}, since rank {rank} could not be connected to them: {reason}; mend it there. What needs \
                     them fails, and what does not goes around the ring"
                );
                (reach, why)
            }
        };
        self.unlinked = Some((least, why.clone()));
        let of_no_use = |opening: &Opening| opening.reach >= least;
        let (opening, left): (VecDeque<_>, _) = self.opening.drain(..).partition(of_no_use);
        self.opening = left;
        let deadline = Deadline::after(FENCE_WITHIN);
        let lanes = connecting.iter().flat_map(Connecting::lanes);
        for lane in lanes.chain(opening.iter().flat_map(Opening::lanes)) {
            fence(core, lane, deadline);
        }
        why
    }

    /// The links are in use from now on; which they are.
    pub(in crate::collective) fn take_links(&mut self) -> Vec<(u32, LaneId)> {
        let Some(Connecting { reach, connected, .. }) = self.connecting.take() else { return Vec::new() };
        self.reach = reach;
        let taken = connected.iter().map(|link| (link.rank, link.lane)).collect::<Vec<_>>();
        self.links.extend(connected.into_iter().map(|link| (link.rank, link)));
        tracing::info!("Connected to {} more ranks, since an operation needs it", taken.len());
        taken
    }

    /// Whether all ranks could; if not, the first that says why, unless that is what all know.
    fn look_through(&self, words: &[u8]) -> Result<(), Option<Unlinked>> {
        let bytes = words.len() / self.world as usize;
        for (rank, word) in (0..).zip(words.chunks_exact(bytes.max(1))) {
            match word.split_first() {
                Some((&COULD, _)) => {}
                Some((&COULD_NOT, reason)) => {
                    let end = reason.iter().position(|byte| *byte == 0).unwrap_or(reason.len());
                    let reason = String::from_utf8_lossy(&reason[..end]).replace(char::is_control, " ");
                    return Err(Some(Unlinked { rank, reason }));
                }
                Some((&KNOWN, _)) if self.unlinked.is_some() => return Err(None),
                _ => return Err(Some(odd_word(rank))),
            }
        }
        Ok(())
    }

    fn connect_all(&self, core: &mut Core, connecting: &mut Connecting) -> Result<(), String> {
        let Connecting { unconnected, connected, words, .. } = connecting;
        let bytes = words.len() / self.world as usize;
        while let Some(link) = unconnected.pop() {
            let word = words.chunks_exact(bytes.max(1)).nth(link.rank as usize).unwrap_or_default();
            let (peer, lane) = (link.rank, link.lane);
            let manner = self.hosts.manner([self.rank, peer]);
            let made = self.find_blob(peer, word).and_then(|blob| make_link(core, link, &blob, manner));
            match made {
                Ok(link) => connected.push(link),
                Err(error) => {
                    fence(core, lane, Deadline::after(FENCE_WITHIN));
                    return Err(format!("rank {peer} is not reached: {error}"));
                }
            }
        }
        Ok(())
    }

    /// What `peer` has said for this rank, among what it has said for others.
    fn find_blob(&self, peer: u32, word: &[u8]) -> Result<Blob, CommunicatorError> {
        let rank = self.rank;
        find_blob(word, self.job, peer, rank)?
            .filter(|blob| blob.epoch == self.epoch)
            .ok_or(CommunicatorError::Introduction { rank: peer })
    }
}

/// The blob for `rank`, in the word of `peer`: the place of each begins with its rank and one.
pub(crate) fn find_blob(
    word: &[u8],
    job: u32,
    peer: u32,
    rank: u32,
) -> Result<Option<Blob>, CommunicatorError> {
    let odd = || CommunicatorError::Introduction { rank: peer };
    // A place that is not used begins with 0.
    let Some(wanted) = rank.checked_add(1) else { return Ok(None) };
    for place in word.get(1..).unwrap_or_default().chunks_exact(BLOB_BYTES) {
        let (to, bytes) = place.split_first_chunk().ok_or_else(odd)?;
        if u32::from_le_bytes(*to) != wanted {
            continue;
        }
        let (blob, rest) = Blob::decode(bytes, LinkKind::MESH, job)?;
        if rest.iter().any(|byte| *byte != 0) || blob.regions.len() != 1 {
            return Err(odd());
        }
        return Ok(Some(blob));
    }
    Ok(None)
}

fn odd_word(rank: u32) -> Unlinked {
    Unlinked { rank, reason: "it has said what is no word".to_owned() }
}

/// Nothing uses it.
fn fence(core: &mut Core, lane: LaneId, deadline: Deadline) {
    if let Err(error) = core.fence_lane(lane, deadline) {
        tracing::warn!(%error, "a lane that is of no use stays until the engine goes");
    }
}

fn make_link(core: &mut Core, link: Opened, peer: &Blob, manner: Manner) -> Result<Link, CommunicatorError> {
    let Opened { rank, lane, mut outbox, inbox, .. } = link;
    let [slots] = peer.regions[..] else { return Err(CommunicatorError::Introduction { rank }) };
    outbox.lead_to(slots)?;
    core.connect_lane_as(lane, peer, Instant::now(), manner)?;
    let access = core.peer_access(lane)?;
    let connected = core.lane(lane).ok_or(SetupError::LaneGone)?;
    // Until all ranks have said so, this one may not hear.
    connected.set_quiet(true);
    let name = connected.name();
    let mailbox = Boxes {
        outbox,
        inbox,
        sent_before: 0,
        received_before: 0,
        agreed: false,
        untold: false,
        ranges: 0,
        ranges_before: 0,
        points_sent: 0,
        points_received: 0,
    };
    Ok(Link { rank, lane, name, mailbox, access })
}

fn put_blobs(word: &mut [u8], links: &[Opened]) -> Result<(), String> {
    let Some((flag, places)) = word.split_first_mut() else { return Ok(()) };
    for (place, link) in places.chunks_exact_mut(BLOB_BYTES).zip(links) {
        let (to, room) = place.split_at_mut(4);
        to.copy_from_slice(&link.rank.wrapping_add(1).to_le_bytes());
        let blob = room.get_mut(..link.blob.len()).ok_or("an address that is too long")?;
        blob.copy_from_slice(&link.blob);
    }
    *flag = COULD;
    Ok(())
}

fn put_verdict(word: &mut [u8], verdict: Result<(), &str>) {
    let Some((flag, room)) = word.split_first_mut() else { return };
    room.fill(0);
    *flag = match verdict {
        Ok(()) => COULD,
        Err(reason) => {
            let len = reason.len().min(room.len()).min(VERDICT_BYTES - 1);
            room[..len].copy_from_slice(&reason.as_bytes()[..len]);
            COULD_NOT
        }
    };
}
