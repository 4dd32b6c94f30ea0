//! The words of nodes that meet over TCP: introductions, wishes for a link, answers, and notes.

use super::NodeName;
use super::blob::{NodeBlob, put_name, take_name};
use super::error::NodeError;
use super::link_slot::Way;
use crate::link::blob::{seal, unseal};
use crate::link::codec::{Ended, Reader};
use crate::link::{BlobError, LinkKind};

/// The first words of a node that has dialed another one.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Request {
    /// "I am this node, and take you for the one of this incarnation."
    Introduction { to: u64, from: NodeBlob },
    /// "I wish for a link, of which this is my end."
    Wish(Wish),
}

/// A wish for a link.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Wish {
    /// The incarnation of the node that is asked.
    pub(super) to: u64,
    /// The name and the incarnation of the node that asks.
    pub(super) from: NodeName,
    pub(super) incarnation: u64,
    /// The direction, as the node that asks sees it.
    pub(super) way: Way,
    /// The number of the link among those of this direction, from 1.
    pub(super) number: u32,
    /// The blob of its end.
    pub(super) blob: Vec<u8>,
}

/// The answer to a request.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// The request is granted; to a wish with the blob of the other end.
    Welcome(Vec<u8>),
    Refused(Reason),
}

/// The reason of a refusal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reason {
    /// A living node has the name.
    NameTaken,
    /// The node that was meant has ended, or has another name.
    Gone,
    /// There is room for no more peers.
    Full,
    /// The node does not know the one that asks.
    Unknown,
    /// Both introduce themselves, and the one that is asked goes first.
    Crossed,
    /// The pools do not go together.
    Unfit,
    /// The node could not make its end of the link.
    Failed,
}

const REASONS: [Reason; 7] = [
    Reason::NameTaken,
    Reason::Gone,
    Reason::Full,
    Reason::Unknown,
    Reason::Crossed,
    Reason::Unfit,
    Reason::Failed,
];

impl Request {
    pub(super) fn encode(&self) -> Result<Vec<u8>, BlobError> {
        match self {
            Self::Introduction { to, from } => seal(LinkKind::INTRODUCTION, |body| {
                body.u64(*to)?;
                from.write(body)
            }),
            Self::Wish(wish) => seal(LinkKind::WISH, |body| {
                body.u64(wish.to)?;
                put_name(body, &wish.from)?;
                body.u64(wish.incarnation)?;
                body.u8(wish.way.code())?;
                body.u32(wish.number)?;
                body.put(&wish.blob)
            }),
        }
    }

    /// Reads a request of a node of this job.
    pub(super) fn decode(bytes: &[u8], job: u32) -> Result<Self, NodeError> {
        let malformed = |field| move |Ended| BlobError::Malformed { field };
        if let Ok((body, [])) = unseal(bytes, LinkKind::INTRODUCTION) {
            let mut reader = Reader::new(body);
            let to = reader.u64().map_err(malformed("incarnation"))?;
            return Ok(Self::Introduction { to, from: NodeBlob::read(reader.rest(), job)? });
        }
        let (body, rest) = unseal(bytes, LinkKind::WISH)?;
        let mut reader = Reader::new(body);
        let to = reader.u64().map_err(malformed("incarnation"))?;
        let from = take_name(&mut reader)?;
        let incarnation = reader.u64().map_err(malformed("incarnation"))?;
        let code = reader.u8().map_err(malformed("direction"))?;
        let way = Way::from_code(code).filter(|_| rest.is_empty());
        let way = way.ok_or(BlobError::Malformed { field: "direction" })?;
        let number = reader.u32().map_err(malformed("number"))?;
        Ok(Self::Wish(Wish { to, from, incarnation, way, number, blob: reader.rest().to_vec() }))
    }
}

impl Answer {
    pub(super) fn encode(&self) -> Result<Vec<u8>, BlobError> {
        seal(LinkKind::ANSWER, |body| match self {
            Self::Welcome(blob) => {
                body.u8(0)?;
                body.put(blob)
            }
            Self::Refused(reason) => body.u8(*reason as u8 + 1),
        })
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<Self, BlobError> {
        let malformed = || BlobError::Malformed { field: "answer" };
        let (body, rest) = unseal(bytes, LinkKind::ANSWER)?;
        let (code, behind) = body.split_first().filter(|_| rest.is_empty()).ok_or_else(malformed)?;
        match code.checked_sub(1) {
            None => Ok(Self::Welcome(behind.to_vec())),
            Some(at) if behind.is_empty() => {
                REASONS.get(usize::from(at)).copied().map(Self::Refused).ok_or_else(malformed)
            }
            Some(_) => Err(malformed()),
        }
    }
}

/// A word between two nodes that have met, over the connection on which they have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Note {
    /// "Make the link in this direction, as you see it: the last one that I know of has this number."
    Want { way: Way, last: u32 },
    /// "I could not make the link of this number in this direction, as you see it."
    Failed { way: Way, number: u32 },
}

/// Bytes of a note.
pub(super) const NOTE_BYTES: usize = 6;

impl Note {
    pub(super) fn encode(self) -> [u8; NOTE_BYTES] {
        let (code, way, number) = match self {
            Self::Want { way, last } => (1, way, last),
            Self::Failed { way, number } => (2, way, number),
        };
        let [a, b, c, d] = number.to_le_bytes();
        [code, way.code(), a, b, c, d]
    }

    /// The note in these bytes, if they are one.
    pub(super) fn decode([code, way, number @ ..]: [u8; NOTE_BYTES]) -> Option<Self> {
        let (way, number) = (Way::from_code(way)?, u32::from_le_bytes(number));
        match code {
            1 => Some(Self::Want { way, last: number }),
            2 => Some(Self::Failed { way, number }),
            _ => None,
        }
    }
}

/// Reads any bytes as everything that a node hears, and as the body of a blob that is whole. Whatever can be read comes
/// back from its own encoding.
#[cfg(any(fuzzing, test))]
pub(crate) fn fuzz(data: &[u8]) {
    if let Ok(blob) = NodeBlob::read(data, 7) {
        let again = blob.encode().map_err(NodeError::from).and_then(|bytes| NodeBlob::decode(&bytes, 7));
        assert_eq!(again.ok(), Some(blob));
    }
    for kind in [LinkKind::INTRODUCTION, LinkKind::WISH, LinkKind::ANSWER] {
        let Ok(sealed) = seal(kind, |body| body.put(data)) else { return };
        if let Ok(request) = Request::decode(&sealed, 7) {
            assert_eq!(request.encode().as_deref(), Ok(&sealed[..]));
        }
        if let Ok(answer) = Answer::decode(&sealed) {
            assert_eq!(answer.encode().as_deref(), Ok(&sealed[..]));
        }
    }
    _ = Request::decode(data, 7);
    _ = data
        .first_chunk()
        .copied()
        .and_then(Note::decode)
        .map(|note| assert_eq!(&note.encode(), &data[..NOTE_BYTES]));
}

#[cfg(test)]
mod tests;
