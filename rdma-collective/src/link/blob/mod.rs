//! The blob: the description of one end of a link, as versioned, checksummed, self-delimiting bytes.
//!
//! Each end needs the other's blob before it can connect. The carrier (a store, a socket, an orchestrator's message)
//! need not understand it. A blob is checked in full before any of it is used, because it may come from another
//! release, or altered. The handshake is one carrier; the contents of `payload` belong to the users of the link.

use rdma_core::{Endpoint, Gid, Lid, Mtu, Psn, QpNum, RemoteKey, RemoteMemory};

use super::codec::{Ended, NoRoom, Reader, Writer};
use crate::link::BlobError;
use crate::liveness::Process;

/// The first bytes of every blob.
const MAGIC: [u8; 4] = *b"RDML";
/// The version of the format.
pub(crate) const VERSION: u16 = 2;
/// Bytes in front of the body: magic (4), version (2), kind (2), length (4).
pub(crate) const HEADER_BYTES: usize = 12;
/// Bytes of the checksum at the end.
const CHECKSUM_BYTES: usize = 4;
/// A flag: the device is the software device.
const SOFT: u8 = 1;
/// A flag: the end sends heartbeats.
const BEATS: u8 = 2;
/// Regions that one blob can export, at most.
pub(crate) const REGIONS_MAX: usize = 16;
/// The longest payload, in bytes: a pool of 1,024 tensors at odd places takes some 20 KiB.
pub(crate) const PAYLOAD_BYTES_MAX: usize = 32 * 1024;
/// The longest blob, in bytes.
pub(crate) const BLOB_BYTES_MAX: usize = 34 * 1024;

/// The use of a link. Both ends must state the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct LinkKind(pub(crate) u16);

impl LinkKind {
    /// A link from one rank of a communicator to the next one in the ring.
    pub(crate) const COLLECTIVE: Self = Self(1);
    /// A link between a pool of source blocks and a pool of destination blocks.
    pub(crate) const KV: Self = Self(2);
    /// A link between any two ranks of a communicator.
    pub(crate) const MESH: Self = Self(3);
    /// A KV node, which has links to many others.
    pub(crate) const NODE: Self = Self(4);
    /// The introduction of a node to another one.
    pub(crate) const INTRODUCTION: Self = Self(5);
    /// The wish of a node for a link to another one.
    pub(crate) const WISH: Self = Self(6);
    /// The answer of a node to an introduction or a wish.
    pub(crate) const ANSWER: Self = Self(7);
}

/// The length of the blob that begins with `header`, in bytes; `None` if the bytes are no blob.
pub(crate) fn total_bytes(header: &[u8]) -> Option<usize> {
    let len = header.get(8..HEADER_BYTES)?.try_into().ok().map(u32::from_le_bytes)?;
    header.starts_with(&MAGIC).then_some(len as usize)
}

/// Whether `bytes` are one whole blob as its sender wrote it; another version counts too.
pub(crate) fn is_whole(bytes: &[u8]) -> bool {
    let Some((content, checksum)) = bytes.split_last_chunk() else { return false };
    total_bytes(bytes) == Some(bytes.len()) && crc32c::crc32c(content).to_le_bytes() == *checksum
}

/// Puts a header in front of a body, and a checksum behind it, so that another process can check them.
///
/// # Errors
///
/// [`BlobError::TooLong`] for more than [`BLOB_BYTES_MAX`] bytes in all, and when `body` finds no room.
pub(crate) fn seal(
    kind: LinkKind,
    body: impl FnOnce(&mut Writer<'_>) -> Result<(), NoRoom>,
) -> Result<Vec<u8>, BlobError> {
    let too_long = |NoRoom| BlobError::TooLong { limit: BLOB_BYTES_MAX };
    let mut bytes = vec![0; BLOB_BYTES_MAX];
    let mut writer = Writer::new(&mut bytes[HEADER_BYTES..BLOB_BYTES_MAX - CHECKSUM_BYTES]);
    body(&mut writer).map_err(too_long)?;
    let len = HEADER_BYTES + writer.len() + CHECKSUM_BYTES;
    let mut header = Writer::new(&mut bytes);
    (|| {
        header.put(&MAGIC)?;
        header.u16(VERSION)?;
        header.u16(kind.0)?;
        header.u32(len as u32)
    })()
    .map_err(too_long)?;
    bytes.truncate(len);
    let (content, checksum) = bytes.split_at_mut(len - CHECKSUM_BYTES);
    checksum.copy_from_slice(&crc32c::crc32c(content).to_le_bytes());
    Ok(bytes)
}

/// Checks what [`seal`] has made, and returns the body and the bytes that follow.
///
/// # Errors
///
/// [`BlobError`] for bytes that are none, that are cut off or altered, or that are of another version or kind.
pub(crate) fn unseal(bytes: &[u8], kind: LinkKind) -> Result<(&[u8], &[u8]), BlobError> {
    let truncated = |Ended| BlobError::Truncated { len: bytes.len() };
    let mut header = Reader::new(bytes);
    if header.array() != Ok(MAGIC) {
        let begins = bytes.iter().zip(MAGIC).all(|(byte, magic)| *byte == magic);
        return Err(if begins { truncated(Ended) } else { BlobError::NotABlob });
    }
    let version = header.u16().map_err(truncated)?;
    if version != VERSION {
        return Err(BlobError::OtherVersion { ours: VERSION, theirs: version });
    }
    let theirs = LinkKind(header.u16().map_err(truncated)?);
    let len = header.u32().map_err(truncated)? as usize;
    if !(HEADER_BYTES + CHECKSUM_BYTES..=BLOB_BYTES_MAX).contains(&len) {
        return Err(BlobError::Altered);
    }
    let (own, rest) = bytes.split_at_checked(len).ok_or(truncated(Ended))?;
    let (content, checksum) = own.split_at(len - CHECKSUM_BYTES);
    if checksum != crc32c::crc32c(content).to_le_bytes() {
        return Err(BlobError::Altered);
    }
    if theirs != kind {
        return Err(BlobError::OtherKind { ours: kind.0, theirs: theirs.0 });
    }
    Ok((&content[HEADER_BYTES..], rest))
}

/// The description of one end of a link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Blob {
    pub(crate) kind: LinkKind,
    /// The fingerprint of the job's token. It finds mistakes only: checking the token itself is the carrier's task.
    pub(crate) job: u32,
    /// The epoch of the lane; each new lane to the same peer has the next one.
    pub(crate) epoch: u32,
    /// Whether the device is the software device, which cannot talk to a NIC.
    pub(crate) soft: bool,
    /// Whether this end has a thread that sends heartbeats. Without one, this end's silence means nothing.
    pub(crate) beats: bool,
    pub(crate) endpoint: Endpoint,
    /// Credits that this end grants: messages that the peer may send before it must wait for a return.
    pub(crate) credits: u32,
    /// The longest control message that this end receives, in bytes.
    pub(crate) control_bytes_max: u32,
    /// The process that owns this end.
    pub(crate) process: Process,
    /// Memory of this end that the peer may write.
    pub(crate) regions: Vec<RemoteMemory>,
    /// Bytes of the users of this kind of link.
    pub(crate) payload: Vec<u8>,
}

impl Blob {
    /// Encodes the blob.
    ///
    /// # Errors
    ///
    /// [`BlobError::TooLong`] for more than [`REGIONS_MAX`] regions or [`PAYLOAD_BYTES_MAX`] bytes of payload.
    pub(crate) fn encode(&self) -> Result<Vec<u8>, BlobError> {
        if self.regions.len() > REGIONS_MAX || self.payload.len() > PAYLOAD_BYTES_MAX {
            return Err(BlobError::TooLong { limit: BLOB_BYTES_MAX });
        }
        seal(self.kind, |body| self.write_body(body))
    }

    fn write_body(&self, body: &mut Writer<'_>) -> Result<(), NoRoom> {
        body.u32(self.job)?;
        body.u32(self.epoch)?;
        body.u8((u8::from(self.soft) * SOFT) | (u8::from(self.beats) * BEATS))?;
        body.u8(self.endpoint.mtu.0)?;
        body.u16(self.endpoint.lid.0)?;
        body.u32(self.endpoint.qp_num.0)?;
        body.u32(self.endpoint.psn.value())?;
        body.put(&self.endpoint.gid.0)?;
        body.u32(self.credits)?;
        body.u32(self.control_bytes_max)?;
        self.process.write(body)?;
        body.u16(self.regions.len() as u16)?;
        body.u16(self.payload.len() as u16)?;
        for region in &self.regions {
            body.u64(region.addr)?;
            body.u64(region.len)?;
            body.u32(region.rkey.0)?;
        }
        body.put(&self.payload)
    }

    /// Reads the blob at the front of `bytes` and returns what follows it.
    ///
    /// # Errors
    ///
    /// [`BlobError`] for bytes that are no blob, that are cut off or altered, or that are of another version, kind or
    /// job.
    pub(crate) fn decode(bytes: &[u8], kind: LinkKind, job: u32) -> Result<(Self, &[u8]), BlobError> {
        let (body, rest) = unseal(bytes, kind)?;
        let blob = Self::read_body(kind, Reader::new(body))?;
        if blob.job != job {
            return Err(BlobError::OtherJob);
        }
        Ok((blob, rest))
    }

    /// Reads the body. The checksum was right, so a field with an impossible value was written so by the peer.
    fn read_body(kind: LinkKind, mut body: Reader<'_>) -> Result<Self, BlobError> {
        let malformed = |field| move |Ended| BlobError::Malformed { field };
        let job = body.u32().map_err(malformed("job"))?;
        let epoch = body.u32().map_err(malformed("epoch"))?;
        let flags = body.u8().map_err(malformed("flags"))?;
        if flags & !(SOFT | BEATS) != 0 {
            return Err(BlobError::Malformed { field: "flags" });
        }
        let (soft, beats) = (flags & SOFT != 0, flags & BEATS != 0);
        let mtu = Mtu(body.u8().map_err(malformed("MTU"))?);
        let lid = Lid(body.u16().map_err(malformed("LID"))?);
        let qp_num = QpNum(body.u32().map_err(malformed("queue pair"))?);
        let psn = Psn::new(body.u32().map_err(malformed("PSN"))?);
        let gid = Gid(body.array().map_err(malformed("GID"))?);
        let credits = body.u32().map_err(malformed("credits"))?;
        let control_bytes_max = body.u32().map_err(malformed("control message length"))?;
        let process = Process::read(&mut body).map_err(malformed("process"))?;
        let region_count = usize::from(body.u16().map_err(malformed("regions"))?);
        let payload_len = usize::from(body.u16().map_err(malformed("payload"))?);
        if mtu.bytes().is_none() {
            return Err(BlobError::Malformed { field: "MTU" });
        }
        if credits == 0 || region_count > REGIONS_MAX || payload_len > PAYLOAD_BYTES_MAX {
            return Err(BlobError::Malformed { field: "limits" });
        }
        let regions = (0..region_count).map(|_| {
            let (addr, len) = (body.u64()?, body.u64()?);
            Ok(RemoteMemory { addr, len, rkey: RemoteKey(body.u32()?) })
        });
        let regions = regions.collect::<Result<_, Ended>>().map_err(malformed("regions"))?;
        let payload = body.take(payload_len).map_err(malformed("payload"))?.to_vec();
        if !body.rest().is_empty() {
            return Err(BlobError::Malformed { field: "end" });
        }
        let endpoint = Endpoint { qp_num, psn, lid, gid, mtu };
        Ok(Self {
            kind,
            job,
            epoch,
            soft,
            beats,
            endpoint,
            credits,
            control_bytes_max,
            process,
            regions,
            payload,
        })
    }
}

#[cfg(test)]
mod tests;
