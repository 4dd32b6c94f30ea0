//! The frames of the TCP wire. This file has no socket and no state.
//!
//! Every frame has a fixed size and little-endian numbers, and one encoding: a field that does not apply is 0, and
//! anything else is refused. `docs/wire.md` has the tables.

use super::super::Hello;
use super::super::fields::{Fields, Frame};
use crate::backend::soft::engine::message::{MESSAGE_BYTES_MAX, Nak, Reply, ReplyKind, Request, RequestOp};
use crate::backend::soft::engine::sequence::MASK_24;

/// Bytes of a hello, which an end says before its first request on a connection.
pub(super) const HELLO_BYTES: usize = 56;
/// Bytes of a request's header.
pub(super) const REQUEST_BYTES: usize = 32;
/// Bytes of a reply's header.
pub(super) const REPLY_BYTES: usize = 16;

/// First bytes of a hello.
const MAGIC: [u8; 8] = *b"rdmasoft";
/// Version of the protocol, in the hello. Both ends must speak the same one.
const VERSION: u16 = 3;

/// Bytes that are no frame. The connection that they came on is closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum FrameError {
    #[error("the first bytes are not those of this protocol")]
    Magic,
    #[error("the peer speaks version {0} of the protocol, and this process version {VERSION}")]
    Version(u16),
    #[error("the frame has the unknown kind {0}")]
    Kind(u8),
    #[error("a field that does not apply is not 0, or a number has more than 24 bits")]
    Field,
    #[error("the payload has {0} bytes, more than {MESSAGE_BYTES_MAX}")]
    TooLong(u32),
    #[error("the responder placed another number of bytes than the frame announced")]
    Placement,
    #[error("the peer sent a request before its hello, a second hello, or one of another queue pair")]
    Hello,
}

/// Returns the bytes of the header that begins with the byte `kind`.
pub(super) fn header_bytes(kind: u8) -> Result<usize, FrameError> {
    match kind {
        SEND | WRITE | READ => Ok(REQUEST_BYTES),
        ACK | READ_DATA | NAK | RNR => Ok(REPLY_BYTES),
        _ if kind == MAGIC[0] => Ok(HELLO_BYTES),
        other => Err(FrameError::Kind(other)),
    }
}

/// Refuses a field that must be 0.
fn must_be_zero(value: u32) -> Result<(), FrameError> {
    if value == 0 { Ok(()) } else { Err(FrameError::Field) }
}

/// Takes a number of 24 bits.
fn u24(fields: &mut Fields<'_>) -> Result<u32, FrameError> {
    fields.u24().ok_or(FrameError::Field)
}

/// Takes the length of a payload.
fn payload_len(fields: &mut Fields<'_>) -> Result<u32, FrameError> {
    let len = fields.u32();
    if len > MESSAGE_BYTES_MAX { Err(FrameError::TooLong(len)) } else { Ok(len) }
}

/// Encodes a hello.
pub(super) fn encode_hello(hello: &Hello) -> [u8; HELLO_BYTES] {
    Frame::new().put(&MAGIC).put(&VERSION.to_le_bytes()).put(&[0; 6]).hello(hello).done()
}

/// Refuses the first bytes of a connection when they cannot become a hello, so that a stranger of another protocol is
/// closed at once.
pub(super) fn check_hello_begin(bytes: &[u8]) -> Result<(), FrameError> {
    let n = bytes.len().min(MAGIC.len());
    if bytes[..n] == MAGIC[..n] { Ok(()) } else { Err(FrameError::Magic) }
}

/// Decodes a hello, and checks every field.
pub(super) fn decode_hello(bytes: &[u8; HELLO_BYTES]) -> Result<Hello, FrameError> {
    let mut fields = Fields(bytes);
    if fields.take() != MAGIC {
        return Err(FrameError::Magic);
    }
    let version = fields.u16();
    if version != VERSION {
        return Err(FrameError::Version(version));
    }
    let reserved = [u32::from(fields.u16()), fields.u32()];
    must_be_zero(reserved[0] | reserved[1])?;
    fields.hello().ok_or(FrameError::Field)
}

const SEND: u8 = 1;
const WRITE: u8 = 2;
const READ: u8 = 3;

/// Encodes a request. Fields that its operation does not use are 0.
pub(super) fn encode_request(request: &Request) -> [u8; REQUEST_BYTES] {
    let op = match request.op {
        RequestOp::Send => SEND,
        RequestOp::Write => WRITE,
        RequestOp::Read => READ,
    };
    let (remote_addr, rkey) = match request.op {
        RequestOp::Send => (0, 0),
        RequestOp::Write | RequestOp::Read => (request.remote_addr, request.rkey),
    };
    let imm = if request.op == RequestOp::Read { None } else { request.imm };
    Frame::new()
        .put(&[op, imm.is_some().into(), request.ack_req.into(), 0])
        .put(&(request.psn & MASK_24).to_le_bytes())
        .put(&request.len.to_le_bytes())
        .put(&imm.unwrap_or(0).to_le_bytes())
        .put(&rkey.to_le_bytes())
        .put(&[0; 4])
        .put(&remote_addr.to_le_bytes())
        .done()
}

/// Decodes a request, and checks every field.
pub(super) fn decode_request(bytes: &[u8; REQUEST_BYTES]) -> Result<Request, FrameError> {
    let mut fields = Fields(bytes);
    let [op, has_imm, ack_req, zero] = fields.take();
    let op = match op {
        SEND => RequestOp::Send,
        WRITE => RequestOp::Write,
        READ => RequestOp::Read,
        other => return Err(FrameError::Kind(other)),
    };
    must_be_zero(zero.into())?;
    let ack_req = match ack_req {
        0 => false,
        1 if op != RequestOp::Read => true,
        _ => return Err(FrameError::Field),
    };
    let (psn, len) = (u24(&mut fields)?, payload_len(&mut fields)?);
    let imm = match (has_imm, fields.u32()) {
        (0, 0) => None,
        (1, imm) if op != RequestOp::Read => Some(imm),
        _ => return Err(FrameError::Field),
    };
    let (rkey, zero, remote_addr) = (fields.u32(), fields.u32(), fields.u64());
    must_be_zero(zero)?;
    if op == RequestOp::Send && (rkey != 0 || remote_addr != 0) {
        return Err(FrameError::Field);
    }
    Ok(Request { psn, op, imm, remote_addr, rkey, len, ack_req })
}

const ACK: u8 = 4;
const READ_DATA: u8 = 5;
const NAK: u8 = 6;
const RNR: u8 = 7;

const NAK_SEQUENCE: u8 = 1;
const NAK_INVALID_REQUEST: u8 = 2;
const NAK_REMOTE_ACCESS: u8 = 3;
const NAK_REMOTE_OPERATIONAL: u8 = 4;

/// Encodes a reply. Fields that its kind does not use are 0.
pub(super) fn encode_reply(reply: &Reply) -> [u8; REPLY_BYTES] {
    let (kind, detail) = match reply.kind {
        ReplyKind::Ack => (ACK, 0),
        ReplyKind::ReadData => (READ_DATA, 0),
        ReplyKind::Nak(Nak::Sequence) => (NAK, NAK_SEQUENCE),
        ReplyKind::Nak(Nak::InvalidRequest) => (NAK, NAK_INVALID_REQUEST),
        ReplyKind::Nak(Nak::RemoteAccess) => (NAK, NAK_REMOTE_ACCESS),
        ReplyKind::Nak(Nak::RemoteOperational) => (NAK, NAK_REMOTE_OPERATIONAL),
        ReplyKind::Rnr { timer } => (RNR, timer),
    };
    let len = if reply.kind == ReplyKind::ReadData { reply.len } else { 0 };
    Frame::new()
        .put(&[kind, detail, 0, 0])
        .put(&(reply.psn & MASK_24).to_le_bytes())
        .put(&len.to_le_bytes())
        .put(&[0; 4])
        .done()
}

/// Decodes a reply, and checks every field.
pub(super) fn decode_reply(bytes: &[u8; REPLY_BYTES]) -> Result<Reply, FrameError> {
    let mut fields = Fields(bytes);
    let [kind, detail, zero_0, zero_1] = fields.take();
    let kind = match (kind, detail) {
        (ACK, 0) => ReplyKind::Ack,
        (READ_DATA, 0) => ReplyKind::ReadData,
        (NAK, NAK_SEQUENCE) => ReplyKind::Nak(Nak::Sequence),
        (NAK, NAK_INVALID_REQUEST) => ReplyKind::Nak(Nak::InvalidRequest),
        (NAK, NAK_REMOTE_ACCESS) => ReplyKind::Nak(Nak::RemoteAccess),
        (NAK, NAK_REMOTE_OPERATIONAL) => ReplyKind::Nak(Nak::RemoteOperational),
        (RNR, timer @ 0..=31) => ReplyKind::Rnr { timer },
        (ACK | READ_DATA | NAK | RNR, _) => return Err(FrameError::Field),
        (other, _) => return Err(FrameError::Kind(other)),
    };
    let (psn, len, zero) = (u24(&mut fields)?, payload_len(&mut fields)?, fields.u32());
    must_be_zero(u32::from(zero_0 | zero_1) | zero)?;
    if len != 0 && kind != ReplyKind::ReadData {
        return Err(FrameError::Field);
    }
    Ok(Reply { psn, kind, len })
}

#[cfg(test)]
mod tests;
