//! The blob of a node: its name, its addresses, and what its pools hold. One blob serves all peers.

use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::name::NAME_BYTES_MAX;
use super::{NodeError, NodeName};
use crate::kv::PoolUse;
use crate::kv::layout::Layout;
use crate::link::blob::{seal, unseal};
use crate::link::codec::{Ended, NoRoom, Reader, Writer};
use crate::link::{BlobError, LinkKind};
use crate::liveness::Process;

/// Addresses of a node, at most.
pub(super) const ADDRESSES_MAX: usize = 8;
/// The latest format of the body.
const FORMAT: u8 = 1;

/// The description of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct NodeBlob {
    /// The fingerprint of the job's token.
    pub(super) job: u32,
    pub(super) name: NodeName,
    /// A random number of the process's node, which tells it from others of the name.
    pub(super) incarnation: u64,
    pub(super) process: Process,
    /// The time after which nobody may connect by this blob, in seconds since 1970; 0 for never.
    pub(super) expires: u64,
    /// Whether the device is the software device, which cannot talk to a NIC.
    pub(super) soft: bool,
    pub(super) addresses: Vec<SocketAddr>,
    /// The pool that the node sends from, and the one that it receives into.
    pub(super) source: Option<(PoolUse, Layout)>,
    pub(super) destination: Option<Layout>,
}

impl NodeBlob {
    pub(super) fn encode(&self) -> Result<Vec<u8>, BlobError> {
        seal(LinkKind::NODE, |body| self.write(body))
    }

    /// Writes the body, which an introduction has too.
    pub(super) fn write(&self, body: &mut Writer<'_>) -> Result<(), NoRoom> {
        body.u8(FORMAT)?;
        body.u32(self.job)?;
        body.u64(self.incarnation)?;
        self.process.write(body)?;
        body.u64(self.expires)?;
        body.u8(self.soft.into())?;
        put_name(body, &self.name)?;
        body.u8(self.addresses.len() as u8)?;
        for address in &self.addresses {
            let (family, bytes) = match address.ip() {
                IpAddr::V4(ip) => (4, ip.to_ipv6_mapped().octets()),
                IpAddr::V6(ip) => (6, ip.octets()),
            };
            body.u8(family)?;
            body.put(&bytes)?;
            body.u16(address.port())?;
        }
        let destination = self.destination.as_ref().map(|layout| (PoolUse::Destination, layout));
        let source = self.source.as_ref().map(|(purpose, layout)| (*purpose, layout));
        for pool in [source, destination] {
            let Some((purpose, layout)) = pool else {
                body.u8(0)?;
                continue;
            };
            body.u8(purpose.code())?;
            let mut bytes = Vec::new();
            layout.encode_to(&mut bytes);
            body.put(&bytes)?;
        }
        Ok(())
    }

    /// Reads a blob, which must be of this job.
    pub(super) fn decode(bytes: &[u8], job: u32) -> Result<Self, NodeError> {
        let (body, rest) = unseal(bytes, LinkKind::NODE)?;
        if !rest.is_empty() {
            return Err(BlobError::Malformed { field: "end" }.into());
        }
        Self::read(body, job)
    }

    /// Reads a body to its end.
    pub(super) fn read(body: &[u8], job: u32) -> Result<Self, NodeError> {
        let mut reader = Reader::new(body);
        let blob = Self::read_fields(&mut reader)?;
        if !reader.rest().is_empty() {
            return Err(BlobError::Malformed { field: "end" }.into());
        }
        if blob.job != job {
            return Err(BlobError::OtherJob.into());
        }
        Ok(blob)
    }

    fn read_fields(body: &mut Reader<'_>) -> Result<Self, NodeError> {
        let malformed = |field| move |Ended| BlobError::Malformed { field };
        if body.u8().map_err(malformed("format"))? != FORMAT {
            return Err(BlobError::Malformed { field: "format" }.into());
        }
        let job = body.u32().map_err(malformed("job"))?;
        let incarnation = body.u64().map_err(malformed("incarnation"))?;
        let process = Process::read(body).map_err(malformed("process"))?;
        let expires = body.u64().map_err(malformed("time"))?;
        let soft = match body.u8() {
            Ok(flag @ 0..=1) => flag == 1,
            _ => return Err(BlobError::Malformed { field: "device" }.into()),
        };
        let name = take_name(body)?;
        let count = usize::from(body.u8().map_err(malformed("addresses"))?);
        if !(1..=ADDRESSES_MAX).contains(&count) {
            return Err(BlobError::Malformed { field: "addresses" }.into());
        }
        let addresses = (0..count).map(|_| take_address(body)).collect::<Result<_, _>>()?;
        let source = take_pool(body, &name)?;
        let destination = take_pool(body, &name)?;
        let source_fits = source.as_ref().is_none_or(|(purpose, _)| purpose.at_prefill().is_some());
        let destination_fits = destination.as_ref().is_none_or(|(purpose, _)| purpose.at_decode().is_some());
        if !source_fits || !destination_fits {
            return Err(BlobError::Malformed { field: "pools" }.into());
        }
        let destination = destination.map(|(_, layout)| layout);
        Ok(Self { job, name, incarnation, process, expires, soft, addresses, source, destination })
    }

    /// The time since which nobody may connect by this blob; `None` while one may.
    pub(super) fn expired(&self, now: SystemTime) -> Option<Duration> {
        let now = now.duration_since(UNIX_EPOCH).unwrap_or_default();
        if self.expires == 0 { None } else { now.checked_sub(Duration::from_secs(self.expires)) }
    }
}

/// Writes a name.
pub(super) fn put_name(body: &mut Writer<'_>, name: &NodeName) -> Result<(), NoRoom> {
    body.u8(name.as_str().len() as u8)?;
    body.put(name.as_str().as_bytes())
}

/// Reads a name.
pub(super) fn take_name(body: &mut Reader<'_>) -> Result<NodeName, BlobError> {
    let malformed = || BlobError::Malformed { field: "name" };
    let len = usize::from(body.u8().map_err(|Ended| malformed())?);
    let bytes = body.take(len.min(NAME_BYTES_MAX + 1)).map_err(|Ended| malformed())?;
    let name = std::str::from_utf8(bytes).map_err(|_| malformed())?;
    NodeName::new(name).map_err(|_| malformed())
}

fn take_address(body: &mut Reader<'_>) -> Result<SocketAddr, BlobError> {
    let malformed = || BlobError::Malformed { field: "addresses" };
    let family = body.u8().map_err(|Ended| malformed())?;
    let ip = std::net::Ipv6Addr::from(body.array::<16>().map_err(|Ended| malformed())?);
    let port = body.u16().map_err(|Ended| malformed())?;
    let ip = match (family, ip.to_ipv4_mapped()) {
        (4, Some(ip)) => IpAddr::V4(ip),
        (6, _) => IpAddr::V6(ip),
        _ => return Err(malformed()),
    };
    Ok(SocketAddr::new(ip, port))
}

fn take_pool(body: &mut Reader<'_>, peer: &NodeName) -> Result<Option<(PoolUse, Layout)>, NodeError> {
    let malformed = || NodeError::from(BlobError::Malformed { field: "pools" });
    let code = body.u8().map_err(|Ended| malformed())?;
    if code == 0 {
        return Ok(None);
    }
    let purpose = PoolUse::from_code(code).ok_or_else(malformed)?;
    let unfit = |source| NodeError::Layout { peer: peer.clone(), source };
    let layout = Layout::decode_from(body).map_err(unfit)?;
    Ok(Some((purpose, layout)))
}
