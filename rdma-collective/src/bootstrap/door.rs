//! Where ranks of one host meet by their job's name: a socket in the kernel's abstract namespace, at which rank 0 says
//! where the store listens and with which token.
//!
//! The kernel vouches for the user on both sides (`unix(7)`, SO_PEERCRED), so that nobody else learns the token and
//! nobody is led to somebody else's store. The name goes with the process that holds it: nothing is left behind.

use std::collections::HashSet;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rdma_core::Deadline;
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::net::sockopt::socket_peercred;
use socket2::{Domain, SockAddr, Socket, Type};

use super::JobToken;
use crate::bootstrap::BootstrapError;

/// Magic and version, port, token.
const TOLD_BYTES: usize = 24;
const MAGIC: [u8; 6] = *b"rdoor\x01";
/// How long rank 0 may take to say it, once it has let somebody in.
const ANSWER_WITHIN: Duration = Duration::from_secs(2);
/// The longest pause between two looks for rank 0.
const PAUSE_MAX: Duration = Duration::from_millis(50);
/// Ranks of one host that may knock at once; others try again.
const BACKLOG: i32 = 1024;

/// Rank 0's side: it answers from a thread of its own until all ranks have been told, or it is dropped.
#[derive(Debug)]
pub(super) struct Door {
    wake: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
    /// The process whose thread it is: a forked child has no such thread.
    pid: u32,
}

impl Door {
    /// Answers those who know the name and are of this user.
    pub(super) fn open(
        name: &str,
        store: SocketAddr,
        token: JobToken,
        world: u32,
    ) -> Result<Self, BootstrapError> {
        let taken = |source| BootstrapError::NameTaken { name: name.to_owned(), source };
        let listener = listen(name).map_err(taken)?;
        let failed = |what| move |source| BootstrapError::Serve { what, source };
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        let wake = Arc::new(wake.map_err(|errno| failed("make a descriptor")(errno.into()))?);
        let host =
            Host { listener, wake: Arc::clone(&wake), told: told(store, token), waiting_for: world - 1 };
        let thread = std::thread::Builder::new().name("door".into()).spawn(|| host.run());
        let thread = Some(thread.map_err(failed("start a thread"))?);
        Ok(Self { wake, thread, pid: std::process::id() })
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        if self.pid != std::process::id() {
            std::mem::forget(self.thread.take());
            return;
        }
        // Fails only when it is readable already, and so wakes all the same.
        let _ = rustix::io::write(&*self.wake, &1_u64.to_ne_bytes());
        if let Some(thread) = self.thread.take() {
            // It does not panic; and if it did, there would be nobody to tell.
            let _ = thread.join();
        }
    }
}

struct Host {
    listener: UnixListener,
    wake: Arc<OwnedFd>,
    told: [u8; TOLD_BYTES],
    /// Ranks that have not been told.
    waiting_for: u32,
}

impl Host {
    fn run(self) {
        let own = rustix::process::geteuid();
        let mut processes = HashSet::new();
        while (processes.len() as u32) < self.waiting_for {
            let mut fds = [
                PollFd::new(&self.listener, PollFlags::IN),
                PollFd::from_borrowed_fd(self.wake.as_fd(), PollFlags::IN),
            ];
            match poll(&mut fds, None) {
                Err(rustix::io::Errno::INTR) => continue,
                Err(_) => return,
                Ok(_) if !fds[1].revents().is_empty() => return,
                Ok(_) => {}
            }
            let Ok((mut stream, _)) = self.listener.accept() else {
                // It has gone again, or there is no descriptor left: others may give theirs back.
                std::thread::sleep(Duration::from_millis(1));
                continue;
            };
            match socket_peercred(&stream) {
                // So few bytes always fit, and a peer that does not read them holds nobody up.
                Ok(peer) if peer.uid == own => {
                    if stream.set_nonblocking(true).is_ok() && stream.write_all(&self.told).is_ok() {
                        processes.insert(peer.pid.as_raw_nonzero());
                    }
                }
                Ok(peer) => {
                    tracing::warn!(uid = peer.uid.as_raw(), "another user knocked, and was sent away")
                }
                Err(_) => {}
            }
        }
    }
}

/// Asks rank 0 of the job `name` where the store is, waiting for it until the deadline.
pub(super) fn knock(name: &str, deadline: Deadline) -> Result<(SocketAddr, JobToken), BootstrapError> {
    let started = Instant::now();
    let own = rustix::process::geteuid();
    let mut pause = Duration::from_millis(1);
    loop {
        if let Ok(stream) = connect(name) {
            if let Ok(peer) = socket_peercred(&stream)
                && peer.uid != own
            {
                let (uid, own) = (peer.uid.as_raw(), own.as_raw());
                return Err(BootstrapError::Impostor { name: name.to_owned(), uid, own });
            }
            if let Some(answer) = answer(stream, deadline) {
                return Ok(answer);
            }
        }
        let pausing = pause.min(deadline.remaining());
        if pausing.is_zero() {
            return Err(BootstrapError::NobodyByName { name: name.to_owned(), waited: started.elapsed() });
        }
        std::thread::sleep(pausing);
        pause = (pause * 2).min(PAUSE_MAX);
    }
}

fn answer(mut stream: UnixStream, deadline: Deadline) -> Option<(SocketAddr, JobToken)> {
    let within = deadline.remaining().clamp(Duration::from_millis(1), ANSWER_WITHIN);
    stream.set_nonblocking(false).ok()?;
    stream.set_read_timeout(Some(within)).ok()?;
    let mut told = [0; TOLD_BYTES];
    stream.read_exact(&mut told).ok()?;
    let (magic, rest) = told.split_first_chunk()?;
    let (port, token) = rest.split_first_chunk()?;
    let store = SocketAddr::from((Ipv4Addr::LOCALHOST, u16::from_be_bytes(*port)));
    (*magic == MAGIC).then_some((store, JobToken::from_bytes(token.try_into().ok()?)))
}

fn told(store: SocketAddr, token: JobToken) -> [u8; TOLD_BYTES] {
    let mut told = [0; TOLD_BYTES];
    let parts = MAGIC.into_iter().chain(store.port().to_be_bytes()).chain(*token.as_bytes());
    told.iter_mut().zip(parts).for_each(|(byte, part)| *byte = part);
    told
}

/// The name in the kernel's namespace: of any length outside, and the user's own.
fn address(name: &str) -> Vec<u8> {
    let uid = rustix::process::geteuid().as_raw();
    let hash = JobToken::derived(&["door", name]).to_hex();
    format!("\0rdma-collective/{uid}/{hash}").into_bytes()
}

fn listen(name: &str) -> io::Result<UnixListener> {
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    socket.bind(&sock_addr(name)?)?;
    socket.listen(BACKLOG)?;
    socket.set_nonblocking(true)?;
    Ok(UnixListener::from(OwnedFd::from(socket)))
}

/// Does not wait where the queue of those who knock is full.
fn connect(name: &str) -> io::Result<UnixStream> {
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    socket.set_nonblocking(true)?;
    socket.connect(&sock_addr(name)?)?;
    Ok(UnixStream::from(OwnedFd::from(socket)))
}

fn sock_addr(name: &str) -> io::Result<SockAddr> {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;
    SockAddr::unix(OsStr::from_bytes(&address(name)))
}
