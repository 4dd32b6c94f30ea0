//! The messages of the store: requests of clients and replies of the server, as payloads of frames.

use super::JobToken;
use super::frame::Frame;
use crate::bootstrap::FrameError;
use crate::link::codec::{Ended, Reader};

/// The longest key and the longest name of a gathering, in bytes.
///
/// The bound of [`StoreClient::set`](crate::bootstrap::StoreClient::set).
pub const KEY_BYTES_MAX: usize = 256;
/// The longest value, in bytes.
///
/// The bound of [`StoreClient::set`](crate::bootstrap::StoreClient::set).
pub const VALUE_BYTES_MAX: usize = 64 * 1024;
/// The longest gathering, in bytes: the values of all ranks, with 4 more for each.
///
/// The bound of [`StoreClient::all_gather`](crate::bootstrap::StoreClient::all_gather).
pub const GATHERED_BYTES_MAX: usize = 4 << 20;
/// The longest payload before a client has joined: that of [`Hello`].
pub(crate) const HELLO_BYTES: usize = 44;
/// The bytes of the job's number, with which the payload of every later request begins.
const NUMBER_BYTES: usize = 8;
/// The longest payload of a client that has joined.
pub(crate) const REQUEST_BYTES_MAX: usize = NUMBER_BYTES + 4 + 2 + KEY_BYTES_MAX + VALUE_BYTES_MAX;
/// The longest payload of a reply.
pub(crate) const REPLY_BYTES_MAX: usize = 4 + GATHERED_BYTES_MAX;
/// Ranks that an answer lists; further ones are only counted.
const RANKS_LISTED_MAX: usize = 16;

/// The first frame of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Hello {
    pub(crate) token: JobToken,
    pub(crate) rank: u32,
    pub(crate) world: u32,
    /// A random number of the process. It tells a second attempt from a second process with the same rank.
    pub(crate) attempt: u64,
    /// The hash of the run (see [`run_hash`]): the text itself would make the first frame long.
    pub(crate) run: u64,
    pub(crate) pid: u32,
}

/// The hash of a run, the launcher's name for the job: FNV-1a of 64 bits.
pub(crate) fn run_hash(run: &str) -> u64 {
    run.bytes()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

/// A request of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Request {
    Hello(Hello),
    /// The question of a rank 0 that serves a store of its own: whether this store has the same job.
    Claim(Hello),
    Set {
        key: String,
        value: Vec<u8>,
    },
    Get {
        wait_ms: u32,
        key: String,
    },
    Gather {
        wait_ms: u32,
        name: String,
        value: Vec<u8>,
    },
}

/// A reply of the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Reply {
    /// The rank has joined. The job's number must begin every later request.
    Welcome {
        number: u64,
    },
    Done,
    Value(Vec<u8>),
    Gathered(Vec<Vec<u8>>),
    /// The wait is over. The ranks are those that have not joined (for a key), or have not come (for a gathering).
    TimedOut(Ranks),
    Refused(Refusal),
}

/// A set of ranks: their number, and the lowest of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ranks {
    pub(crate) count: u32,
    pub(crate) first: Vec<u32>,
}

/// The reason of a refusal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    OtherVersion {
        store: u16,
        client: u16,
    },
    /// Says nothing of the right token, from which a stranger could find it.
    OtherToken,
    OtherWorld {
        store: u32,
        client: u32,
    },
    NoSuchRank {
        rank: u32,
        world: u32,
    },
    JoinedTwice {
        rank: u32,
        first: String,
    },
    TooLarge {
        bytes: u64,
        bytes_max: u64,
    },
    Full {
        bytes_max: u64,
    },
    KeyOwned {
        owner: u32,
    },
    Left {
        rank: u32,
    },
    /// The launcher's name for the job differs; this is the store's.
    OtherRun {
        store: String,
    },
    OtherNumber {
        store: u64,
        client: u64,
    },
    /// A second process came as `rank`, and the process `pid` of `host` serves the store.
    TwoJobs {
        rank: u32,
        pid: u32,
        host: String,
    },
}

impl Ranks {
    pub(crate) fn collect(ranks: impl Iterator<Item = u32>) -> Self {
        let mut all = Self::default();
        for rank in ranks {
            all.count += 1;
            if all.first.len() < RANKS_LISTED_MAX {
                all.first.push(rank);
            }
        }
        all
    }
}

impl Hello {
    fn encode(&self, payload: &mut Vec<u8>) {
        let Self { token, rank, world, attempt, run, pid } = self;
        payload.extend(token.as_bytes());
        payload.extend(rank.to_le_bytes());
        payload.extend(world.to_le_bytes());
        payload.extend(attempt.to_le_bytes());
        payload.extend(run.to_le_bytes());
        payload.extend(pid.to_le_bytes());
    }

    fn decode(reader: &mut Reader<'_>) -> Result<Self, FrameError> {
        Ok(Self {
            token: JobToken::from_bytes(reader.array()?),
            rank: reader.u32()?,
            world: reader.u32()?,
            attempt: reader.u64()?,
            run: reader.u64()?,
            pid: reader.u32()?,
        })
    }
}

/// Puts the job's number before the payload of a request.
pub(crate) fn with_number(number: u64, request: &Frame) -> Frame {
    let payload = [&number.to_le_bytes(), &request.payload[..]].concat();
    Frame { payload: payload.into(), ..*request }
}

/// Takes the job's number off the payload of a request.
pub(crate) fn take_number(frame: &Frame) -> Result<(u64, Frame), FrameError> {
    let mut reader = Reader::new(&frame.payload);
    let number = reader.u64()?;
    Ok((number, Frame { payload: reader.rest().into(), ..*frame }))
}

impl Request {
    pub(crate) fn encode(&self, id: u32) -> Frame {
        let mut payload = Vec::new();
        let kind = match self {
            Self::Hello(hello) => {
                hello.encode(&mut payload);
                1
            }
            Self::Claim(hello) => {
                hello.encode(&mut payload);
                5
            }
            Self::Set { key, value } => {
                put_key(&mut payload, key);
                payload.extend(value);
                2
            }
            Self::Get { wait_ms, key } => {
                payload.extend(wait_ms.to_le_bytes());
                put_key(&mut payload, key);
                3
            }
            Self::Gather { wait_ms, name, value } => {
                payload.extend(wait_ms.to_le_bytes());
                put_key(&mut payload, name);
                payload.extend(value);
                4
            }
        };
        Frame { kind, id, payload: payload.into() }
    }

    pub(crate) fn decode(frame: &Frame) -> Result<Self, FrameError> {
        let mut reader = Reader::new(&frame.payload);
        let request = match frame.kind {
            1 => Self::Hello(Hello::decode(&mut reader)?),
            5 => Self::Claim(Hello::decode(&mut reader)?),
            2 => Self::Set { key: take_key(&mut reader)?, value: take_value(&mut reader)? },
            3 => Self::Get { wait_ms: reader.u32()?, key: take_key(&mut reader)? },
            4 => Self::Gather {
                wait_ms: reader.u32()?,
                name: take_key(&mut reader)?,
                value: take_value(&mut reader)?,
            },
            kind => return Err(FrameError::UnknownKind { kind }),
        };
        end(reader, request)
    }
}

impl Reply {
    pub(crate) fn encode(&self, id: u32) -> Frame {
        let mut payload = Vec::new();
        let kind = match self {
            Self::Welcome { number } => {
                payload.extend(number.to_le_bytes());
                129
            }
            Self::Done => 130,
            Self::Value(value) => {
                payload.extend(value);
                131
            }
            Self::Gathered(values) => {
                payload.extend((values.len() as u32).to_le_bytes());
                for value in values {
                    payload.extend((value.len() as u32).to_le_bytes());
                    payload.extend(value);
                }
                132
            }
            Self::TimedOut(Ranks { count, first }) => {
                payload.extend(count.to_le_bytes());
                payload.extend(first.iter().flat_map(|rank| rank.to_le_bytes()));
                133
            }
            Self::Refused(refusal) => {
                refusal.encode(&mut payload);
                134
            }
        };
        Frame { kind, id, payload: payload.into() }
    }

    pub(crate) fn decode(frame: &Frame) -> Result<Self, FrameError> {
        let mut reader = Reader::new(&frame.payload);
        let reply = match frame.kind {
            129 => Self::Welcome { number: reader.u64()? },
            130 => Self::Done,
            131 => Self::Value(take_value(&mut reader)?),
            132 => {
                let count = reader.u32()?;
                // Nothing is reserved for `count`, which is only the peer's word: memory grows with the bytes that
                // came.
                let mut values = Vec::new();
                for _ in 0..count {
                    let len = reader.u32()?;
                    values.push(reader.take(len as usize)?.to_vec());
                }
                Self::Gathered(values)
            }
            133 => {
                let count = reader.u32()?;
                let mut first = Vec::new();
                while !reader.rest().is_empty() && first.len() < RANKS_LISTED_MAX {
                    first.push(reader.u32()?);
                }
                Self::TimedOut(Ranks { count, first })
            }
            134 => Self::Refused(Refusal::decode(&mut reader)?),
            kind => return Err(FrameError::UnknownKind { kind }),
        };
        end(reader, reply)
    }
}

impl Refusal {
    /// Writes a code, two numbers and a text. This form is the same in all versions, because a refusal for the version
    /// must be readable by another one.
    fn encode(&self, payload: &mut Vec<u8>) {
        let (code, first, second, text) = match self {
            Self::OtherVersion { store, client } => (1, u64::from(*store), u64::from(*client), ""),
            Self::OtherToken => (2, 0, 0, ""),
            Self::OtherWorld { store, client } => (3, (*store).into(), (*client).into(), ""),
            Self::NoSuchRank { rank, world } => (4, (*rank).into(), (*world).into(), ""),
            Self::JoinedTwice { rank, first } => (5, (*rank).into(), 0, first.as_str()),
            Self::TooLarge { bytes, bytes_max } => (6, *bytes, *bytes_max, ""),
            Self::Full { bytes_max } => (7, *bytes_max, 0, ""),
            Self::KeyOwned { owner } => (12, (*owner).into(), 0, ""),
            Self::Left { rank } => (8, (*rank).into(), 0, ""),
            Self::OtherRun { store } => (9, 0, 0, store.as_str()),
            Self::OtherNumber { store, client } => (10, *store, *client, ""),
            Self::TwoJobs { rank, pid, host } => (11, (*rank).into(), (*pid).into(), host.as_str()),
        };
        payload.push(code);
        payload.extend(u64::to_le_bytes(first));
        payload.extend(u64::to_le_bytes(second));
        put_key(payload, text);
    }

    fn decode(reader: &mut Reader<'_>) -> Result<Self, FrameError> {
        let before = reader.rest();
        let [code] = reader.array()?;
        let (first, second, text) = (reader.u64()?, reader.u64()?, take_key(reader)?);
        let narrow = |value: u64| u32::try_from(value).map_err(|_| FrameError::Malformed { what: "number" });
        let version = |value: u64| u16::try_from(value).map_err(|_| FrameError::Malformed { what: "number" });
        let refusal = match code {
            1 => Self::OtherVersion { store: version(first)?, client: version(second)? },
            2 => Self::OtherToken,
            3 => Self::OtherWorld { store: narrow(first)?, client: narrow(second)? },
            4 => Self::NoSuchRank { rank: narrow(first)?, world: narrow(second)? },
            5 => Self::JoinedTwice { rank: narrow(first)?, first: text },
            6 => Self::TooLarge { bytes: first, bytes_max: second },
            7 => Self::Full { bytes_max: first },
            8 => Self::Left { rank: narrow(first)? },
            9 => Self::OtherRun { store: text },
            10 => Self::OtherNumber { store: first, client: second },
            11 => Self::TwoJobs { rank: narrow(first)?, pid: narrow(second)?, host: text },
            12 => Self::KeyOwned { owner: narrow(first)? },
            _ => return Err(FrameError::Malformed { what: "reason" }),
        };
        // Fields that a reason does not use must be empty: encode again, and compare.
        let mut again = Vec::new();
        refusal.encode(&mut again);
        if before.strip_suffix(reader.rest()) != Some(again.as_slice()) {
            return Err(FrameError::Malformed { what: "reason" });
        }
        Ok(refusal)
    }
}

fn put_key(payload: &mut Vec<u8>, key: &str) {
    payload.extend((key.len() as u16).to_le_bytes());
    payload.extend(key.as_bytes());
}

impl From<Ended> for FrameError {
    fn from(Ended: Ended) -> Self {
        Self::Malformed { what: "length" }
    }
}

fn take_key(reader: &mut Reader<'_>) -> Result<String, FrameError> {
    let len = reader.u16()?;
    if usize::from(len) > KEY_BYTES_MAX {
        return Err(FrameError::Malformed { what: "length of a key" });
    }
    let key = reader.take(len.into())?.to_vec();
    String::from_utf8(key).map_err(|_| FrameError::Malformed { what: "key that is not UTF-8" })
}

/// The rest of the payload, as a value.
fn take_value(reader: &mut Reader<'_>) -> Result<Vec<u8>, FrameError> {
    let len = reader.rest().len();
    if len > VALUE_BYTES_MAX {
        return Err(FrameError::Malformed { what: "length of a value" });
    }
    Ok(reader.take(len)?.to_vec())
}

fn end<T>(reader: Reader<'_>, message: T) -> Result<T, FrameError> {
    if reader.rest().is_empty() { Ok(message) } else { Err(Ended.into()) }
}

#[cfg(test)]
mod tests;
