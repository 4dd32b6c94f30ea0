//! The TCP connection over which both sides tell each other their addresses, before they exchange messages.

use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream, ToSocketAddrs};
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context, anyhow, bail, ensure};
use rdma_core::Deadline;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::text::{Address, BYTES, DONE};

/// The time in which a refused connection is tried again, because a server may be starting: 10 s, since a pod or an
/// emulated machine is slow to start one.
const PATIENCE: Duration = Duration::from_secs(10);
/// Time between two tries, short beside what people notice.
const PAUSE: Duration = Duration::from_millis(50);

/// A connection to the other side; every wait on it ends after `within`.
#[derive(Debug)]
pub struct Meeting {
    stream: TcpStream,
    peer: String,
    within: Duration,
}

impl Meeting {
    /// Waits for a client.
    pub fn accept(port: u16, within: Duration) -> anyhow::Result<Self> {
        // Both families where the system has IPv6, IPv4 alone where not.
        let listener = TcpListener::bind(("::", port)).or_else(|_| TcpListener::bind(("0.0.0.0", port)));
        let listener =
            listener.with_context(|| format!("cannot listen on TCP port {port}; take another with -p"))?;
        listener.set_nonblocking(true).context("the listening socket")?;
        let deadline = Deadline::after(within);
        loop {
            match listener.accept() {
                Ok((stream, peer)) => {
                    stream.set_nonblocking(false).context("the connection")?;
                    return Self::over(stream, format!("the client at {}", peer.ip().to_canonical()), within);
                }
                Err(error) if is_early(&error) => {}
                Err(error) => return Err(error).with_context(|| format!("accept on TCP port {port}")),
            }
            ensure!(
                !deadline.expired(),
                "no client came to TCP port {port} within {within:?}; start it with this host's name, or raise \
                 --timeout"
            );
            await_readable(&PollFd::new(&listener, PollFlags::IN), deadline.remaining())?;
        }
    }

    /// Connects to a server, which may be starting.
    pub fn connect(host: &str, port: u16, within: Duration) -> anyhow::Result<Self> {
        let name = || format!("cannot connect to {host}:{port}");
        let addresses: Vec<_> = (host, port).to_socket_addrs().with_context(name)?.collect();
        let deadline = Deadline::after(within);
        let patience = Deadline::after(PATIENCE.min(within));
        loop {
            let mut error = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
            for address in &addresses {
                // A timeout of zero is an error.
                let left = deadline.remaining().max(Duration::from_millis(1));
                match TcpStream::connect_timeout(address, left) {
                    Ok(stream) => return Self::over(stream, format!("the server {host}"), within),
                    Err(failed) if error.kind() != io::ErrorKind::ConnectionRefused => error = failed,
                    // A host without IPv6 has no route to one of the addresses, which says nothing about the server.
                    Err(_) => {}
                }
            }
            if error.kind() != io::ErrorKind::ConnectionRefused || patience.expired() {
                let mend = "start the server first, with the same -p";
                return Err(anyhow!(error)).with_context(|| format!("{} ({mend})", name()));
            }
            sleep(PAUSE);
        }
    }

    fn over(stream: TcpStream, peer: String, within: Duration) -> anyhow::Result<Self> {
        stream.set_nodelay(true).context("the connection")?;
        stream.set_write_timeout(Some(within)).context("the connection")?;
        Ok(Self { stream, peer, within })
    }

    /// Tells the other side this one's address.
    pub fn tell(&mut self, address: &Address) -> anyhow::Result<()> {
        self.send(address.text().as_bytes(), "its peer's address")
    }

    /// Reads the other side's address.
    pub fn hear(&mut self) -> anyhow::Result<Address> {
        let text = self.receive(BYTES, "an address")?;
        Address::read(&text).with_context(|| self.peer.clone())
    }

    /// Tells the server that its address arrived.
    pub fn say_done(&mut self) -> anyhow::Result<()> {
        self.send(DONE, "`done`")
    }

    /// Waits until the client has this side's address.
    pub fn await_done(&mut self) -> anyhow::Result<()> {
        let text = self.receive(DONE.len(), "`done`")?;
        if text != DONE {
            bail!("{} sent `{}` in place of `done`", self.peer, text.escape_ascii());
        }
        Ok(())
    }

    fn send(&mut self, text: &[u8], what: &str) -> anyhow::Result<()> {
        self.stream.write_all(text).with_context(|| format!("{} ended before it had {what}", self.peer))
    }

    /// Reads to the first zero byte, at most `length` bytes: an old text is shorter than today's.
    fn receive(&mut self, length: usize, what: &str) -> anyhow::Result<Vec<u8>> {
        let deadline = Deadline::after(self.within);
        let mut text = Vec::new();
        while text.len() < length && text.last() != Some(&0) {
            ensure!(
                !deadline.expired(),
                "{} is connected, and sent {} of {what} within {:?}; see what it waits for, or raise --timeout",
                self.peer,
                if text.is_empty() {
                    "nothing".to_owned()
                } else {
                    format!("only `{}`", text.escape_ascii())
                },
                self.within
            );
            let left = deadline.remaining().max(Duration::from_millis(1));
            self.stream.set_read_timeout(Some(left)).context("the connection")?;
            let mut chunk = vec![0; length - text.len()];
            match self.stream.read(&mut chunk) {
                Ok(0) => bail!("{} ended before it sent {what}; its own message says why", self.peer),
                Ok(count) => text.extend(chunk.into_iter().take(count)),
                Err(error) if is_early(&error) => {}
                Err(error) => {
                    return Err(error).with_context(|| format!("{} ended before it sent {what}", self.peer));
                }
            }
        }
        Ok(text)
    }
}

/// Whether there was nothing to do yet.
fn is_early(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut | io::ErrorKind::Interrupted)
}

/// Sleeps until there is something to read, or a signal came; returns false if neither was `within` that time.
pub(super) fn await_readable(fd: &PollFd<'_>, within: Duration) -> anyhow::Result<bool> {
    let timeout = Timespec { tv_sec: within.as_secs() as i64, tv_nsec: within.subsec_nanos().into() };
    match poll(&mut [fd.clone()], Some(&timeout)) {
        Ok(ready) => Ok(ready > 0),
        Err(rustix::io::Errno::INTR) => Ok(true),
        Err(error) => Err(error).context("poll"),
    }
}
