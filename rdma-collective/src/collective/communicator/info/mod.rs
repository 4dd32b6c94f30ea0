//! Introductions: the options and the identity that each rank gives to all others before any rank connects.
//!
//! All ranks compare the same introductions, so all of them find the same difference.

use rdma_core::Context;

use super::algorithms::TUNED;
use super::lanes::Lanes;
use super::tuning::Tuning;
use super::{Algorithms, CommunicatorOptions};
use crate::collective::CommunicatorError;
use crate::engine::Engine;
use crate::link::codec::{NoRoom, Reader, Writer};
use crate::liveness::Process;

/// The version of the encoding below. Ranks of different versions must not join.
const VERSION: u16 = 8;
/// The longest encoded name of a host, a device or a tuning table, in bytes.
const NAME_BYTES_MAX: usize = 64;
/// The longest encoding, in bytes.
const BYTES_MAX: usize = 2 + 1 + 4 + 2 + 8 + 8 + 1 + 1 + 1 + TUNED + 8 + 4 * (1 + NAME_BYTES_MAX);

/// A rank's process, host and device, as the rank itself reported them.
///
/// Returned by [`Communicator::ranks`](crate::collective::Communicator::ranks).
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct RankInfo {
    /// The process id on the rank's host.
    pub pid: u32,
    /// The name of the host.
    pub host: String,
    /// The name of the device; of several, their names with commas between, cut after 64 bytes.
    pub device: String,
    /// Whether the first device is the software device.
    pub soft: bool,
}

/// A rank's info, and the options that must be the same on all ranks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Introduction {
    pub(super) info: RankInfo,
    /// The identity of the rank's host, which tells it from others.
    pub(super) host_id: String,
    /// Whether a user gave that identity. Otherwise it is the host's boot id.
    pub(super) host_is_named: bool,
    /// Slots of a mailbox. This and the next options shape messages, so a difference would garble data.
    pub(super) slots: u16,
    pub(super) slot_bytes: u64,
    pub(super) chunk_bytes_min: u64,
    pub(super) reproducible: bool,
    /// Lanes of each link.
    pub(super) lanes: u8,
    pub(super) algorithms: Algorithms,
    pub(super) tuning: TableInfo,
}

/// The identity of the tuning table, which selects algorithm and protocol.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct TableInfo {
    /// The source of the table. Ranks may read the same table from different paths, so this is not compared.
    source: String,
    /// A digest of the rows. Ranks with different rows would choose different algorithms and wait for each other.
    digest: u64,
}

impl TableInfo {
    fn of(tuning: &Tuning) -> Self {
        Self { source: tuning.source().to_owned(), digest: tuning.digest() }
    }

    /// The table's name for an error text; empty if the two tables have the same digest, so that they compare equal.
    fn told_beside(&self, other: &Self) -> String {
        if self.digest == other.digest {
            String::new()
        } else {
            format!("{} ({:x})", self.source, self.digest)
        }
    }
}

impl Introduction {
    /// The introduction of this rank.
    pub(super) fn own(engine: &Engine, options: &CommunicatorOptions) -> Self {
        // The node name is for people. `host_id` decides which ranks share a host, since node names may repeat.
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        let info = RankInfo {
            pid: std::process::id(),
            host,
            device: engine.contexts().map(Context::name).collect::<Vec<_>>().join(","),
            soft: engine.context().is_soft(),
        };
        Self {
            host_id: options.host_id.as_ref().map_or_else(|| machine(&info), |id| shortened(id)),
            host_is_named: options.host_id.is_some(),
            info,
            slots: options.slots,
            slot_bytes: options.slot_bytes as u64,
            chunk_bytes_min: options.chunk_bytes_min as u64,
            reproducible: options.reproducible,
            lanes: Lanes::count(engine, options),
            algorithms: options.algorithms,
            tuning: TableInfo::of(&options.tuning),
        }
    }

    /// Encodes the introduction. Names longer than [`NAME_BYTES_MAX`] are cut.
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![0; BYTES_MAX];
        let mut writer = Writer::new(&mut bytes);
        let written = self.write(&mut writer);
        debug_assert!(written.is_ok(), "names are cut to what is told");
        let len = writer.len();
        bytes.truncate(len);
        bytes
    }

    fn write(&self, writer: &mut Writer<'_>) -> Result<(), NoRoom> {
        writer.u16(VERSION)?;
        writer.u8(self.info.soft.into())?;
        writer.u32(self.info.pid)?;
        writer.u16(self.slots)?;
        writer.u64(self.slot_bytes)?;
        writer.u64(self.chunk_bytes_min)?;
        writer.u8(self.reproducible.into())?;
        writer.u8(self.lanes)?;
        writer.u8(self.host_is_named.into())?;
        writer.put(&self.algorithms.bits())?;
        writer.u64(self.tuning.digest)?;
        for name in [&self.info.host, &self.info.device, &self.tuning.source, &self.host_id] {
            // The cut may fall inside a character; `decode` replaces what is left of it.
            let told = &name.as_bytes()[..name.len().min(NAME_BYTES_MAX)];
            writer.u8(told.len() as u8)?;
            writer.put(told)?;
        }
        Ok(())
    }

    /// Decodes the introduction of `rank`.
    ///
    /// # Errors
    ///
    /// The version differs, or the bytes are malformed.
    pub(super) fn decode(bytes: &[u8], rank: u32) -> Result<Self, CommunicatorError> {
        let malformed = |_| CommunicatorError::Introduction { rank };
        let mut reader = Reader::new(bytes);
        // The version is read first, because nothing behind it means the same in another version.
        let version = reader.u16().map_err(malformed)?;
        if version != VERSION {
            let (ours, theirs) = (VERSION.to_string(), version.to_string());
            return Err(CommunicatorError::Differs { field: "version", rank, ours, theirs });
        }
        let soft = reader.u8().map_err(malformed)? != 0;
        let pid = reader.u32().map_err(malformed)?;
        let slots = reader.u16().map_err(malformed)?;
        let slot_bytes = reader.u64().map_err(malformed)?;
        let chunk_bytes_min = reader.u64().map_err(malformed)?;
        let reproducible = reader.u8().map_err(malformed)? != 0;
        let lanes = reader.u8().map_err(malformed)?;
        let host_is_named = reader.u8().map_err(malformed)? != 0;
        let mut sets = [0; TUNED];
        sets.copy_from_slice(reader.take(TUNED).map_err(malformed)?);
        let algorithms = Algorithms::from_bits(sets);
        let digest = reader.u64().map_err(malformed)?;
        let mut name = || {
            let len = usize::from(reader.u8().map_err(malformed)?);
            let told = reader.take(len).map_err(malformed)?;
            Ok::<_, CommunicatorError>(String::from_utf8_lossy(told).into_owned())
        };
        let (host, device, source, host_id) = (name()?, name()?, name()?, name()?);
        // Bytes behind the last field mean another encoding under the same version.
        if !reader.rest().is_empty() {
            return Err(CommunicatorError::Introduction { rank });
        }
        let info = RankInfo { pid, host, device, soft };
        let tuning = TableInfo { source, digest };
        Ok(Self {
            info,
            host_id,
            host_is_named,
            slots,
            slot_bytes,
            chunk_bytes_min,
            reproducible,
            lanes,
            algorithms,
            tuning,
        })
    }

    /// Compares this rank's introduction with that of `rank`.
    ///
    /// # Errors
    ///
    /// The first option that differs, with both values.
    pub(super) fn check(&self, theirs: &Self, rank: u32) -> Result<(), CommunicatorError> {
        let kind = |soft: bool| if soft { "the software device" } else { "an RDMA device" }.to_owned();
        let fields = [
            ("slots", self.slots.to_string(), theirs.slots.to_string()),
            ("slot_bytes", self.slot_bytes.to_string(), theirs.slot_bytes.to_string()),
            ("chunk_bytes_min", self.chunk_bytes_min.to_string(), theirs.chunk_bytes_min.to_string()),
            ("reproducible", self.reproducible.to_string(), theirs.reproducible.to_string()),
            ("lanes", self.lanes.to_string(), theirs.lanes.to_string()),
            ("algorithms", self.algorithms.to_string(), theirs.algorithms.to_string()),
            ("tuning", self.tuning.told_beside(&theirs.tuning), theirs.tuning.told_beside(&self.tuning)),
            ("device", kind(self.info.soft), kind(theirs.info.soft)),
        ];
        match fields.into_iter().find(|(_, ours, theirs)| ours != theirs) {
            Some((field, ours, theirs)) => Err(CommunicatorError::Differs { field, rank, ours, theirs }),
            None => Ok(()),
        }
    }
}

/// The identity of a machine that no user has named: its kernel's boot id, or else its host name.
fn machine(info: &RankInfo) -> String {
    match u128::from_be_bytes(Process::own().boot) {
        0 => shortened(&info.host),
        boot => format!("{boot:032x}"),
    }
}

/// Shortens a name to the encoded length. A checksum replaces the end of a long name, so that two names with the same
/// beginning stay different.
fn shortened(name: &str) -> String {
    if name.len() <= NAME_BYTES_MAX {
        return name.to_owned();
    }
    let begin: String = name.chars().take(NAME_BYTES_MAX / 8).collect();
    format!("{begin}…{:08x}", crc32c::crc32c(name.as_bytes()))
}

#[cfg(test)]
mod tests;
