//! The twins' own exchange over TCP: versioned messages of bounded length, every wait with a deadline.
//!
//! The exchange is not perftest's, which has no version to refuse: a twin talks to a twin.

use super::test::Test;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use std::io::{self, Read, Write};
use std::net::{IpAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};
use thiserror::Error;

const MAGIC: [u8; 4] = *b"rdpt";
const VERSION: u16 = 2;
/// The longest message: the endpoints of 1024 queue pairs fit four times over.
const MESSAGE_BYTES_MAX: usize = 1 << 20;
const HEADER_BYTES: usize = 10;
/// How long a client asks a port that nobody listens on.
pub const PATIENCE: Duration = Duration::from_secs(2);

/// Options that both sides must agree on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// The test.
    pub test: Test,
    /// `-s`.
    pub size: u64,
    /// `-a`.
    pub all: bool,
    /// `-n`.
    pub iters: u32,
    /// `-q`.
    pub queue_pairs: u16,
    /// The path MTU this side can take, in bytes; the smaller one is used.
    pub mtu: u32,
    /// `-o`, or what the device takes; the smaller one is used.
    pub reads: u8,
    /// `-r`; the smaller one is used.
    pub rx_depth: u32,
    /// The device's kind and wire: a software device cannot talk to a NIC.
    pub wire: String,
}

/// A queue pair and the memory behind it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Endpoint {
    /// Local identifier; 0 on Ethernet.
    pub lid: u16,
    /// Queue pair number.
    pub qpn: u32,
    /// First packet sequence number.
    pub psn: u32,
    /// The region's remote key.
    pub rkey: u32,
    /// Where the region begins for the peer.
    pub addr: u64,
    /// Global identifier, where the port has one.
    pub gid: Option<[u8; 16]>,
}

/// Why the exchange did not come about.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ExchangeError {
    /// Nobody listens there.
    #[error("cannot connect to {peer}: {source}; start the server first: the same command without a host")]
    Connect {
        /// Where to.
        peer: String,
        /// The system's error.
        source: io::Error,
    },
    /// The port cannot be listened on.
    #[error("cannot listen on port {port}: {source}; choose another with -p, on both sides")]
    Listen {
        /// Number of the port.
        port: u16,
        /// The system's error.
        source: io::Error,
    },
    /// The other side closed or the system says no.
    #[error("lost the other side while waiting for {what}: {source}; its own message says why")]
    Lost {
        /// The message that was to come.
        what: &'static str,
        /// The system's error.
        source: io::Error,
    },
    /// Nothing came in time.
    #[error(
        "the other side sent no {what} within {within:?}; is it alive? raise --timeout if the run is that long"
    )]
    Timeout {
        /// The message that was to come.
        what: &'static str,
        /// How long was waited.
        within: Duration,
    },
    /// Bytes that are no message of ours.
    #[error(
        "what came is not from one of these tests ({0}); perftest's own ib_write_* cannot be mixed with them"
    )]
    Garbage(&'static str),
    /// The other side is of another build.
    #[error("the other side speaks version {theirs}, this side {VERSION}; run the same build on both")]
    Version {
        /// Version of the peer.
        theirs: u16,
    },
    /// A message longer than any of ours.
    #[error(
        "a message of {length} bytes was announced, and {MESSAGE_BYTES_MAX} is the most; run the same build on both"
    )]
    Oversized {
        /// Length that the peer announced.
        length: usize,
    },
    /// Both sides were given different flags.
    #[error("{what} differs: {ours} here, {theirs} there; give both sides the same flags")]
    Differs {
        /// The flag.
        what: &'static str,
        /// This side's.
        ours: String,
        /// The other side's.
        theirs: String,
    },
}

impl Hello {
    /// Holds this side's flags against the other's.
    ///
    /// # Errors
    ///
    /// [`ExchangeError::Differs`] for the first that differs; the MTU, the reads outstanding and the depth of receive
    /// queues may.
    pub fn agree(&self, theirs: &Self) -> Result<(), ExchangeError> {
        fn same<T: PartialEq + std::fmt::Debug>(
            what: &'static str,
            ours: &T,
            theirs: &T,
        ) -> Result<(), ExchangeError> {
            if ours == theirs {
                return Ok(());
            }
            Err(ExchangeError::Differs { what, ours: format!("{ours:?}"), theirs: format!("{theirs:?}") })
        }
        same("the test", &self.test.name(), &theirs.test.name())?;
        same("the wire", &self.wire, &theirs.wire)?;
        same("-a", &self.all, &theirs.all)?;
        same("-s", &self.size, &theirs.size)?;
        same("-n", &self.iters, &theirs.iters)?;
        same("-q", &self.queue_pairs, &theirs.queue_pairs)
    }
}

/// The connection to the other side.
#[derive(Debug)]
pub struct Exchange {
    stream: TcpStream,
    within: Duration,
}

impl Exchange {
    /// Waits for a client, however long that takes: that is a server's work.
    ///
    /// # Errors
    ///
    /// [`ExchangeError::Listen`].
    pub fn accept(port: u16, within: Duration) -> Result<Self, ExchangeError> {
        let listen = |source| ExchangeError::Listen { port, source };
        // Both families where the system has IPv6, IPv4 alone where not.
        let listener = TcpListener::bind(("::", port)).or_else(|_| TcpListener::bind(("0.0.0.0", port)));
        let (stream, _) = listener.and_then(|listener| listener.accept()).map_err(listen)?;
        Self::over(stream, within).map_err(listen)
    }

    /// Connects to a server, which may be starting: a refusal is final only after [`PATIENCE`].
    ///
    /// # Errors
    ///
    /// [`ExchangeError::Connect`], of the last address tried.
    pub fn connect(host: &str, port: u16, within: Duration) -> Result<Self, ExchangeError> {
        let connect = |source| ExchangeError::Connect { peer: format!("{host}:{port}"), source };
        let addresses: Vec<_> = (host, port).to_socket_addrs().map_err(connect)?.collect();
        let begin = Instant::now();
        loop {
            let mut error = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
            for address in &addresses {
                match TcpStream::connect_timeout(address, within) {
                    Ok(stream) => return Self::over(stream, within).map_err(connect),
                    Err(failed) => error = failed,
                }
            }
            if error.kind() != io::ErrorKind::ConnectionRefused || begin.elapsed() > PATIENCE {
                return Err(connect(error));
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Uses a connected stream; every wait on it ends within `within`.
    ///
    /// # Errors
    ///
    /// The system's error at the options of the connection.
    pub fn over(stream: TcpStream, within: Duration) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        stream.set_write_timeout(Some(within))?;
        Ok(Self { stream, within })
    }

    /// A second handle of the connection, by which one that waits elsewhere sees that the other side is gone.
    ///
    /// # Errors
    ///
    /// When there are no descriptors left.
    pub fn watch(&self) -> io::Result<TcpStream> {
        self.stream.try_clone()
    }

    /// This end's address, at which the other side reaches this host.
    ///
    /// # Errors
    ///
    /// [`ExchangeError::Lost`].
    pub fn local_address(&self) -> Result<IpAddr, ExchangeError> {
        let lost = |source| ExchangeError::Lost { what: "its address", source };
        Ok(self.stream.local_addr().map_err(lost)?.ip().to_canonical())
    }

    /// Sends a message and receives the other side's of the same kind.
    ///
    /// # Errors
    ///
    /// [`ExchangeError`].
    pub fn swap<T: Serialize + DeserializeOwned>(
        &mut self,
        what: &'static str,
        ours: &T,
    ) -> Result<T, ExchangeError> {
        self.send(what, ours)?;
        self.receive(what)
    }

    /// Sends a message.
    ///
    /// # Errors
    ///
    /// [`ExchangeError::Lost`], or [`ExchangeError::Oversized`] for a message that the peer would refuse.
    pub fn send<T: Serialize>(&mut self, what: &'static str, message: &T) -> Result<(), ExchangeError> {
        let lost = |source| ExchangeError::Lost { what, source };
        let body = serde_json::to_vec(message).map_err(|error| lost(error.into()))?;
        let length = u32::try_from(body.len()).unwrap_or(u32::MAX);
        if body.len() > MESSAGE_BYTES_MAX {
            return Err(ExchangeError::Oversized { length: body.len() });
        }
        let mut frame = Vec::with_capacity(HEADER_BYTES + body.len());
        frame.extend_from_slice(&MAGIC);
        frame.extend_from_slice(&VERSION.to_be_bytes());
        frame.extend_from_slice(&length.to_be_bytes());
        frame.extend_from_slice(&body);
        self.stream.write_all(&frame).map_err(lost)
    }

    /// Receives a message.
    ///
    /// # Errors
    ///
    /// [`ExchangeError`]: late, lost, or not a message of this version.
    pub fn receive<T: DeserializeOwned>(&mut self, what: &'static str) -> Result<T, ExchangeError> {
        let deadline = Instant::now() + self.within;
        let mut header = [0; HEADER_BYTES];
        self.fill(&mut header, what, deadline)?;
        let [m0, m1, m2, m3, v0, v1, l0, l1, l2, l3] = header;
        if [m0, m1, m2, m3] != MAGIC {
            return Err(ExchangeError::Garbage("its first bytes are others"));
        }
        match u16::from_be_bytes([v0, v1]) {
            VERSION => {}
            theirs => return Err(ExchangeError::Version { theirs }),
        }
        let length = u32::from_be_bytes([l0, l1, l2, l3]) as usize;
        if length > MESSAGE_BYTES_MAX {
            return Err(ExchangeError::Oversized { length });
        }
        let mut body = vec![0; length];
        self.fill(&mut body, what, deadline)?;
        serde_json::from_slice(&body).map_err(|_| ExchangeError::Garbage("its body does not parse"))
    }

    /// Reads exactly so many bytes; a trickle does not push the deadline out.
    fn fill(
        &mut self,
        mut buffer: &mut [u8],
        what: &'static str,
        deadline: Instant,
    ) -> Result<(), ExchangeError> {
        let lost = |source| ExchangeError::Lost { what, source };
        while !buffer.is_empty() {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(ExchangeError::Timeout { what, within: self.within });
            }
            self.stream.set_read_timeout(Some(left)).map_err(lost)?;
            match self.stream.read(buffer) {
                Ok(0) => return Err(lost(io::ErrorKind::UnexpectedEof.into())),
                Ok(count) => buffer = buffer.get_mut(count..).unwrap_or_default(),
                Err(error) => match error.kind() {
                    io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {}
                    _ => return Err(lost(error)),
                },
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
