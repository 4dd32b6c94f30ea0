//! What the two processes say to each other: a line of JSON each way, at most 4 KiB long.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;

use rdma_core::{Endpoint, Gid, Lid, Mtu, Psn, QpNum, RemoteKey, RemoteMemory};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// Bytes of the longest line.
const LINE_BYTES_MAX: u64 = 4096;

/// An endpoint, in numbers.
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

/// A region of the peer, in numbers.
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

/// What the peer is asked to do.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub enum Request {
    /// Make a queue pair, connect it to `to`, and export a region of `bytes`.
    Connect {
        /// Our end.
        to: Address,
        /// Bytes of the region.
        bytes: usize,
    },
    /// Post a receive of so many bytes.
    PostRecv(usize),
    /// Take the next completion.
    Wait,
    /// Fill the region with a pattern.
    Fill(u64),
    /// Tell whether the region holds that pattern in `len` bytes at `at`, and zeros elsewhere.
    Holds {
        /// The pattern's seed.
        seed: u64,
        /// Where it begins.
        at: usize,
        /// Its bytes.
        len: usize,
    },
    /// Send a pattern.
    Send {
        /// Its seed.
        seed: u64,
        /// Its bytes.
        len: usize,
    },
    /// Deregister the region, overwrite it with ones, and watch for a while that it stays so.
    Revoke,
    /// Fence the queue pair.
    Fence,
    /// End the process at once.
    Die,
}

/// What the peer answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Answer {
    /// Done.
    Done,
    /// To `Connect`.
    Connected {
        /// Its end.
        end: Address,
        /// Its region.
        region: Exported,
    },
    /// To `Wait`.
    Completed {
        /// Bytes.
        bytes: u32,
        /// Immediate.
        imm: Option<u32>,
        /// The received bytes, when there is a buffer of at most 256.
        data: Vec<u8>,
    },
    /// To `Wait`: it failed.
    Failed(u32),
    /// To `Holds` and `Revoke`.
    Is(bool),
    /// It could not be done.
    Error(String),
}

/// A connection that carries lines.
pub struct Lines {
    reader: BufReader<TcpStream>,
}

impl Lines {
    /// Over `stream`, whose timeouts bound each line.
    #[must_use]
    pub fn new(stream: TcpStream) -> Self {
        Self { reader: BufReader::new(stream) }
    }

    /// Says `message`.
    ///
    /// # Errors
    ///
    /// The connection is gone.
    pub fn say<T: Serialize>(&mut self, message: &T) -> Result<()> {
        let mut line = serde_json::to_vec(message)?;
        line.push(b'\n');
        Ok(self.reader.get_mut().write_all(&line)?)
    }

    /// The next message; `None` when the other side has closed.
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
            Some(_) => Err("a line that is too long or cut short".into()),
        }
    }
}
