//! The meeting of ranks on one host by their job's name: a socket in the kernel's abstract namespace, at which rank 0
//! hands out the store's port and token.
//!
//! Both sides check the other's user, which the kernel vouches for (`unix(7)`, SO_PEERCRED). So no other user learns
//! the token, and no rank is led to another user's store. The name is freed when the process that holds it ends, so
//! nothing is left behind.

use std::collections::HashSet;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rdma_core::Deadline;
use rdma_core::memory::OwnProcess;
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::net::sockopt::socket_peercred;
use socket2::{Domain, SockAddr, Socket, Type};

use super::JobToken;
use crate::bootstrap::BootstrapError;

/// Bytes of the answer: magic and version (6), port (2), token (16).
const REPLY_BYTES: usize = 24;
const MAGIC: [u8; 6] = *b"rdoor\x01";
/// The time that rank 0 has to answer, once it has accepted.
const ANSWER_WITHIN: Duration = Duration::from_secs(2);
/// The longest pause between two attempts to reach rank 0.
const PAUSE_MAX: Duration = Duration::from_millis(50);
/// Ranks that may wait for an answer at once; further ones are refused by the kernel, and try again.
const BACKLOG: i32 = 1024;

/// The listener of rank 0. It answers from a thread of its own, until all ranks have been answered or it is dropped.
#[derive(Debug)]
pub(super) struct NameListener {
    wake: Arc<OwnedFd>,
    /// The thread. A forked child has no such thread, and must not join it.
    thread: OwnProcess<Option<JoinHandle<()>>>,
}

impl NameListener {
    /// Takes the name and starts the thread, which answers processes of this user.
    pub(super) fn open(
        name: &str,
        store: SocketAddr,
        token: JobToken,
        world: u32,
    ) -> Result<Self, BootstrapError> {
        let listener = listen(name).map_err(|source| taken(name, source))?;
        let failed = |what| move |source| BootstrapError::Serve { what, source };
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        let wake = Arc::new(wake.map_err(|errno| failed("make a descriptor")(errno.into()))?);
        let host =
            Host { listener, wake: Arc::clone(&wake), reply: reply(store, token), waiting_for: world - 1 };
        let thread = std::thread::Builder::new().name("door".into()).spawn(|| host.run());
        let thread = OwnProcess::new(Some(thread.map_err(failed("start a thread"))?));
        Ok(Self { wake, thread })
    }
}

impl Drop for NameListener {
    fn drop(&mut self) {
        let Ok(thread) = self.thread.get_mut() else { return };
        // The write fails only when the counter is full, and then the descriptor is readable already.
        let _ = rustix::io::write(&*self.wake, &1_u64.to_ne_bytes());
        if let Some(thread) = thread.take() {
            // The thread does not panic; and in a drop there is nobody to report a panic to.
            let _ = thread.join();
        }
    }
}

/// The state of the listener's thread.
struct Host {
    listener: UnixListener,
    wake: Arc<OwnedFd>,
    reply: [u8; REPLY_BYTES],
    /// The number of processes to answer: all ranks but rank 0.
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
                // The peer has gone again, or no descriptor is left. Pause briefly, since other threads may close
                // theirs.
                std::thread::sleep(Duration::from_millis(1));
                continue;
            };
            match socket_peercred(&stream) {
                // So few bytes always fit into the socket's buffer, and a peer that does not read them holds nobody up.
                Ok(peer) if peer.uid == own => {
                    if stream.set_nonblocking(true).is_ok() && stream.write_all(&self.reply).is_ok() {
                        processes.insert(peer.pid.as_raw_nonzero());
                    }
                }
                Ok(peer) => {
                    crate::log::warn!(
                        uid = peer.uid.as_raw(),
                        "a process of another user asked for the job's store, and was sent away"
                    )
                }
                Err(_) => {}
            }
        }
    }
}

/// The error of a name that cannot be had, with the one who holds it: anybody of this network namespace may take it.
fn taken(name: &str, source: io::Error) -> BootstrapError {
    let own = rustix::process::geteuid();
    let holder = look_at(name).ok().and_then(|socket| socket_peercred(&socket).ok());
    match holder {
        Some(holder) if holder.uid != own => {
            let (uid, own) = (holder.uid.as_raw(), own.as_raw());
            BootstrapError::Impostor { name: name.to_owned(), uid, own }
        }
        holder => {
            let holder = holder.map(|holder| holder.pid.as_raw_nonzero().get().unsigned_abs());
            BootstrapError::NameTaken { name: name.to_owned(), holder, source }
        }
    }
}

/// Asks rank 0 of the job `name` for the store's address and token, and waits for rank 0 until the deadline.
pub(super) fn ask(name: &str, deadline: Deadline) -> Result<(SocketAddr, JobToken), BootstrapError> {
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

/// Reads rank 0's answer; `None` if it is none, or comes too late.
fn answer(mut stream: UnixStream, deadline: Deadline) -> Option<(SocketAddr, JobToken)> {
    let within = deadline.remaining().clamp(Duration::from_millis(1), ANSWER_WITHIN);
    stream.set_nonblocking(false).ok()?;
    stream.set_read_timeout(Some(within)).ok()?;
    let mut reply = [0; REPLY_BYTES];
    stream.read_exact(&mut reply).ok()?;
    let (magic, rest) = reply.split_first_chunk()?;
    let (port, token) = rest.split_first_chunk()?;
    let store = SocketAddr::from((Ipv4Addr::LOCALHOST, u16::from_be_bytes(*port)));
    (*magic == MAGIC).then_some((store, JobToken::from_bytes(token.try_into().ok()?)))
}

/// The bytes of the answer.
fn reply(store: SocketAddr, token: JobToken) -> [u8; REPLY_BYTES] {
    let mut reply = [0; REPLY_BYTES];
    let parts = MAGIC.into_iter().chain(store.port().to_be_bytes()).chain(*token.as_bytes());
    reply.iter_mut().zip(parts).for_each(|(byte, part)| *byte = part);
    reply
}

/// The socket's name in the kernel's namespace. A hash, because a job's name may be longer than a socket's; with the
/// user id, so that jobs of different users do not meet by chance.
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

/// Connects to the holder of a name, who cannot send anything: rank 0 takes whoever it could answer for a rank that
/// has come.
fn look_at(name: &str) -> io::Result<Socket> {
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    socket.set_nonblocking(true)?;
    socket.shutdown(Shutdown::Read)?;
    socket.connect(&sock_addr(name)?)?;
    Ok(socket)
}

/// Connects without waiting: if the listener's queue is full, the caller tries again.
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
