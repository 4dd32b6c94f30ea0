//! The protocol between the two processes: a line of JSON each way, at most 4 KiB long.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;

use rdma_core::{Endpoint, Gid, Lid, Mtu, Psn, QpNum, RemoteKey, RemoteMemory};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// Bytes of the longest line.
const LINE_BYTES_MAX: u64 = 4096;

/// An endpoint as plain numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Address {
    qp_num: u32,
    psn: u32,
    lid: u16,
    gid: [u8; 16],
    mtu: u8,
}

impl From<Endpoint> for Address {
    fn from(end: Endpoint) -> Self {
        Self { qp_num: end.qp_num.0, psn: end.psn.value(), lid: end.lid.0, gid: end.gid.0, mtu: end.mtu.0 }
    }
}

impl From<Address> for Endpoint {
    fn from(address: Address) -> Self {
        Self {
            qp_num: QpNum(address.qp_num),
            psn: Psn::new(address.psn),
            lid: Lid(address.lid),
            gid: Gid(address.gid),
            mtu: Mtu(address.mtu),
        }
    }
}

/// A region of the peer as plain numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exported {
    addr: u64,
    len: u64,
    rkey: u32,
}

impl From<RemoteMemory> for Exported {
    fn from(memory: RemoteMemory) -> Self {
        Self { addr: memory.addr, len: memory.len, rkey: memory.rkey.0 }
    }
}

impl From<Exported> for RemoteMemory {
    fn from(exported: Exported) -> Self {
        Self { addr: exported.addr, len: exported.len, rkey: RemoteKey(exported.rkey) }
    }
}

/// An order to the peer.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub enum Request {
    /// Make a queue pair, connect it to `to`, and export a region of `bytes`.
    Connect {
        /// The endpoint of the client.
        to: Address,
        /// Bytes of the region.
        bytes: usize,
    },
    /// Post a receive of this many bytes.
    PostRecv(usize),
    /// Wait for the next completion.
    Wait,
    /// Fill the region with the pattern of this seed.
    Fill(u64),
    /// Say whether the region holds a pattern in `len` bytes at `at`, and zeros elsewhere.
    Holds {
        /// The seed of the pattern.
        seed: u64,
        /// The offset of the pattern.
        at: usize,
        /// The length of the pattern in bytes.
        len: usize,
    },
    /// Send a pattern.
    Send {
        /// The seed of the pattern.
        seed: u64,
        /// The length of the pattern in bytes.
        len: usize,
    },
    /// Deregister the region, overwrite it with ones, and watch for a while that it stays so.
    Revoke,
    /// Fence the queue pair.
    Fence,
    /// End the process at once.
    Die,
}

/// The answer of the peer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Answer {
    /// The order is carried out.
    Done,
    /// The answer to `Connect`.
    Connected {
        /// The endpoint of the peer.
        end: Address,
        /// The region that the peer exports.
        region: Exported,
    },
    /// The answer to `Wait`: a success.
    Completed {
        /// The length of the message in bytes.
        bytes: u32,
        /// The immediate, if the message carried one.
        imm: Option<u32>,
        /// The received bytes, when there is a buffer of at most 256.
        data: Vec<u8>,
    },
    /// The answer to `Wait`: a failure with this status.
    Failed(u32),
    /// The answer to `Holds` and `Revoke`.
    Is(bool),
    /// The order could not be carried out, for this reason.
    Error(String),
}

/// A connection that carries lines.
pub struct Lines {
    reader: BufReader<TcpStream>,
}

impl Lines {
    /// Wraps `stream`, whose timeouts bound each line.
    #[must_use]
    pub fn new(stream: TcpStream) -> Self {
        Self { reader: BufReader::new(stream) }
    }

    /// Sends `message`.
    ///
    /// # Errors
    ///
    /// The connection is gone.
    pub fn say<T: Serialize>(&mut self, message: &T) -> Result<()> {
        let mut line = serde_json::to_vec(message)?;
        line.push(b'\n');
        Ok(self.reader.get_mut().write_all(&line)?)
    }

    /// Receives the next message; `None` when the other side has closed the connection.
    ///
    /// # Errors
    ///
    /// The line is too long or not a message, or none came in time.
    pub fn hear<T: DeserializeOwned>(&mut self) -> Result<Option<T>> {
        let mut line = Vec::new();
        (&mut self.reader).take(LINE_BYTES_MAX).read_until(b'\n', &mut line)?;
        match line.last() {
            None => Ok(None),
            Some(b'\n') => Ok(Some(serde_json::from_slice(&line)?)),
            Some(_) => Err("the line is too long or cut short".into()),
        }
    }
}
