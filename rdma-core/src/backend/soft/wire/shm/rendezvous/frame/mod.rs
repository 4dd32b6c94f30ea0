//! The frames of the rendezvous: one packet each, all of one size. This file has no socket and no state.
//!
//! Numbers are little-endian, and each frame has one encoding: a field that does not apply is 0, and anything else is
//! refused. `docs/wire.md` has the tables.

use std::io;

use super::super::super::Hello;
use super::super::super::fields::{Fields, Frame as Bytes};

/// Bytes of every frame.
pub(super) const FRAME_BYTES: usize = 64;
/// Most descriptors of one frame.
pub(super) const DESCRIPTORS_MAX: usize = 3;
/// Version of the protocol. Both ends must speak the same one.
pub(super) const VERSION: u16 = 2;

/// First bytes of every frame.
const MAGIC: [u8; 4] = *b"rmap";

/// A frame, by its sender and its purpose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Frame {
    /// Requester: the queue pair that it wants to write to.
    Hello(Hello),
    /// Responder, with three descriptors: the mailbox and the key table, of that many bytes each, and the doorbell.
    Welcome { mailbox: u64, keys: u64 },
    /// Responder, with one descriptor: a memory that its keys name.
    Memory { id: u64, len: u64 },
    /// Responder, with one descriptor: replacement pages of that memory, for the `version`th time.
    Patch { id: u64, offset: u64, len: u64, version: u32 },
    /// Responder: no pages of that memory were replaced after all, so its keys name the former version again.
    Resume { id: u64 },
    /// Responder: no key names that memory any more.
    Forget { id: u64 },
    /// Responder: the requester must take another wire.
    Refused(Refusal),
    /// Requester: there is a refusal in the mailbox.
    Nudge,
}

/// Why a responder does not admit a writer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Refusal {
    #[error(
        "it speaks version {0} of the rendezvous, and this process version {VERSION}: run one version of the library"
    )]
    Version(u16),
    #[error("the processes run as different users, or in different user namespaces: run both as one user")]
    User,
    #[error(
        "it cannot watch this process (pidfd): let both processes see each other's process numbers, on Linux 5.3 or later"
    )]
    Pidfd,
    #[error("it has no descriptors or memory left (error {0}): raise its limits")]
    Limit(u32),
}

impl Refusal {
    /// Returns the refusal for lack of a system resource.
    pub(crate) fn limit(error: &io::Error) -> Self {
        Self::Limit(error.raw_os_error().unwrap_or(0).unsigned_abs())
    }
}

/// A packet that is no frame. The connection that it came on is closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum FrameError {
    #[error("a packet has {0} bytes, and a frame {FRAME_BYTES}")]
    Size(usize),
    #[error("the first bytes are not those of this protocol")]
    Magic,
    #[error("the frame has version {0} of the rendezvous, and this process speaks version {VERSION}")]
    Version(u16),
    #[error("the frame has the unknown kind {0}")]
    Kind(u8),
    #[error("a field that does not apply is not 0, or a number is out of its range")]
    Field,
    #[error("the peer may not send this frame, or not at this point")]
    Unexpected,
}

const HELLO: u8 = 1;
const WELCOME: u8 = 2;
const MEMORY: u8 = 3;
const FORGET: u8 = 4;
const REFUSED: u8 = 5;
const NUDGE: u8 = 6;
const PATCH: u8 = 7;
const RESUME: u8 = 8;

const REFUSED_VERSION: u32 = 1;
const REFUSED_USER: u32 = 2;
const REFUSED_PIDFD: u32 = 3;
const REFUSED_LIMIT: u32 = 4;

impl Frame {
    /// Returns the number of descriptors that come with the frame.
    pub(super) fn descriptors(&self) -> usize {
        match self {
            Self::Welcome { .. } => DESCRIPTORS_MAX,
            Self::Memory { .. } | Self::Patch { .. } => 1,
            Self::Hello(_) | Self::Resume { .. } | Self::Forget { .. } | Self::Refused(_) | Self::Nudge => 0,
        }
    }

    /// Encodes the frame, padded with zeros.
    pub(super) fn encode(&self) -> [u8; FRAME_BYTES] {
        let bytes = |kind| Bytes::new().put(&MAGIC).put(&VERSION.to_le_bytes()).put(&[kind, 0]);
        match *self {
            Self::Hello(hello) => bytes(HELLO).hello(&hello).done(),
            Self::Welcome { mailbox, keys } => {
                bytes(WELCOME).put(&mailbox.to_le_bytes()).put(&keys.to_le_bytes()).done()
            }
            Self::Memory { id, len } => bytes(MEMORY).put(&id.to_le_bytes()).put(&len.to_le_bytes()).done(),
            Self::Patch { id, offset, len, version } => bytes(PATCH)
                .put(&id.to_le_bytes())
                .put(&offset.to_le_bytes())
                .put(&len.to_le_bytes())
                .put(&version.to_le_bytes())
                .done(),
            Self::Resume { id } => bytes(RESUME).put(&id.to_le_bytes()).done(),
            Self::Forget { id } => bytes(FORGET).put(&id.to_le_bytes()).done(),
            Self::Refused(refusal) => {
                let (code, number) = match refusal {
                    Refusal::Version(version) => (REFUSED_VERSION, version.into()),
                    Refusal::User => (REFUSED_USER, 0),
                    Refusal::Pidfd => (REFUSED_PIDFD, 0),
                    Refusal::Limit(errno) => (REFUSED_LIMIT, errno),
                };
                bytes(REFUSED).put(&code.to_le_bytes()).put(&number.to_le_bytes()).done()
            }
            Self::Nudge => bytes(NUDGE).done(),
        }
    }

    /// Decodes a packet.
    ///
    /// # Errors
    ///
    /// The packet is not the encoding of a frame.
    pub(super) fn decode(packet: &[u8]) -> Result<Self, FrameError> {
        let whole: &[u8; FRAME_BYTES] = packet.try_into().map_err(|_| FrameError::Size(packet.len()))?;
        let mut fields = Fields(whole);
        if fields.take() != MAGIC {
            return Err(FrameError::Magic);
        }
        // Refused keeps its first 16 bytes in every version, so that each end can name the other's.
        let version = fields.u16();
        let [kind, zero] = fields.take();
        if version != VERSION && kind != REFUSED {
            return Err(FrameError::Version(version));
        }
        let frame = match kind {
            HELLO => Self::Hello(fields.hello().ok_or(FrameError::Field)?),
            WELCOME => Self::Welcome { mailbox: fields.u64(), keys: fields.u64() },
            MEMORY => Self::Memory { id: fields.u64(), len: fields.u64() },
            PATCH => {
                let (id, offset) = (fields.u64(), fields.u64());
                Self::Patch { id, offset, len: fields.u64(), version: fields.u32() }
            }
            RESUME => Self::Resume { id: fields.u64() },
            FORGET => Self::Forget { id: fields.u64() },
            REFUSED => Self::Refused(decode_refusal(fields.u32(), fields.u32())?),
            NUDGE => Self::Nudge,
            other => return Err(FrameError::Kind(other)),
        };
        if zero != 0 || fields.0.iter().any(|byte| *byte != 0) {
            return Err(FrameError::Field);
        }
        Ok(frame)
    }
}

/// Decodes the code and number of a refusal.
fn decode_refusal(code: u32, number: u32) -> Result<Refusal, FrameError> {
    match (code, number) {
        (REFUSED_VERSION, version) => {
            u16::try_from(version).map(Refusal::Version).map_err(|_| FrameError::Field)
        }
        (REFUSED_USER, 0) => Ok(Refusal::User),
        (REFUSED_PIDFD, 0) => Ok(Refusal::Pidfd),
        (REFUSED_LIMIT, errno) => Ok(Refusal::Limit(errno)),
        _ => Err(FrameError::Field),
    }
}

#[cfg(test)]
mod tests;
