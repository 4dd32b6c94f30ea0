//! What each kind of connection hears and says.

use std::os::fd::AsRawFd;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::OFlags;

use super::super::segment::{Protection, Segment};
use super::descriptors::{self, Received, Sent};
use super::frame::FrameError;
use super::*;

/// Frames heard in one hold of the lock; epoll tells of the rest again.
const FRAMES: usize = 64;

/// An accepted connection that has not said whose it is, or whose queue pair is not ready yet.
#[derive(Debug)]
pub(super) struct Stranger {
    pub(super) deadline: Instant,
    /// Whom it wants to write to, and its process.
    hello: Option<(Hello, Arc<OwnedFd>)>,
}

/// The connection of a requester of this process.
#[derive(Debug)]
pub(super) struct Requester {
    pub(super) qp: QpRef,
    /// Of the peer.
    pub(super) process: Arc<OwnedFd>,
    pub(super) invited: bool,
    /// Those of the peer that it was told of.
    pub(super) memories: HashSet<u64>,
    /// How often it was told of other pages, of those that it was.
    pub(super) patches: HashMap<u64, usize>,
}

impl Requester {
    /// Whether the peer has this process make more mappings than it may.
    fn is_crowded(&self) -> bool {
        // Each takes one itself, and parts that around it in two.
        self.memories.len() + 2 * self.patches.values().sum::<usize>() > MEMORIES_MAX
    }
}

impl Rendezvous {
    /// A socket is ready: it is heard, and sent what waits for it.
    pub(super) fn serve(&mut self, now: Instant, key: SocketKey, host: &mut dyn Host) {
        let served = match self.sockets.get(key).map(|socket| &socket.kind) {
            None => Ok(()),
            Some(Kind::Listener) => {
                self.accept(now, key, host);
                Ok(())
            }
            Some(Kind::Stranger(_)) => self.hear(now, key, host),
            Some(Kind::Requester(_)) => self.hear_owner(now, key, host),
            Some(Kind::Responder(_)) => self.hear_writer(now, key, host).and_then(|()| self.send(now, key)),
        };
        if let Err(reason) = served {
            self.lose(now, key, reason, host);
        }
    }

    /// Accepts what waits at a listener.
    fn accept(&mut self, now: Instant, listener: SocketKey, host: &mut dyn Host) {
        for _ in 0..ACCEPTS {
            let Some(Socket { fd, device, .. }) = self.sockets.get(listener) else { return };
            let device = *device;
            let accepted = listener::accept(fd.as_fd()).and_then(|fd| {
                let Some(fd) = fd else { return Ok(None) };
                let kind = Kind::Stranger(Stranger { deadline: now + HELLO_WAIT, hello: None });
                self.insert(Socket { fd, device, kind }, EventFlags::IN).map(Some)
            });
            match accepted {
                Ok(None) => return,
                Ok(Some(key)) => {
                    if self.strangers.len() >= WAITING_MAX
                        && let Some(oldest) = self.strangers.front()
                    {
                        self.lose(now, *oldest, Reason::Crowded, host);
                    }
                    self.strangers.push_back(key);
                }
                // Out of descriptors or memory, most likely: a listener that stays ready would keep the driver busy.
                Err(why) => {
                    self.warn(now, &why, "accepting a neighbour failed; trying again in a moment");
                    self.accept_paused = Some(now + ACCEPT_PAUSE);
                    return self.watch_listeners(EventFlags::empty());
                }
            }
        }
    }

    /// Hears a stranger out.
    fn hear(&mut self, now: Instant, key: SocketKey, host: &mut dyn Host) -> Result<(), Reason> {
        let Some(Socket { fd, kind: Kind::Stranger(stranger), .. }) = self.sockets.get_mut(key) else {
            return Ok(());
        };
        if stranger.hello.is_some() {
            // Watched for nothing but its end; another thread may have been told of the hello, too, and come later.
            return if has_hung_up(fd.as_fd())? { Err(Reason::Closed) } else { Ok(()) };
        }
        let received = match descriptors::receive(fd.as_fd()) {
            // Of every version it is said in which words it can be answered.
            Err(Reason::Frame(FrameError::Version(version))) => {
                refuse(fd.as_fd(), Refusal::Version(frame::VERSION));
                return Err(FrameError::Version(version).into());
            }
            received => received?,
        };
        let Some(Received { frame, .. }) = received else { return Ok(()) };
        let Frame::Hello(hello) = frame else { return Err(FrameError::Unexpected.into()) };
        let process = self.credentials.check(fd.as_fd()).inspect_err(|reason| {
            let refusal = match reason {
                Reason::OtherUser { .. } => Refusal::User,
                _ => Refusal::Pidfd,
            };
            refuse(fd.as_fd(), refusal);
        })?;
        stranger.hello = Some((hello, Arc::new(process)));
        self.watch(key, EventFlags::empty())?;
        self.introduce(now, key, host);
        Ok(())
    }

    /// Invites a stranger if a queue pair takes it; it then replaces whom that had invited before.
    pub(super) fn introduce(&mut self, now: Instant, key: SocketKey, host: &mut dyn Host) {
        let Some(Socket { fd, kind: Kind::Stranger(stranger), .. }) = self.sockets.get(key) else { return };
        let Some((hello, process)) = &stranger.hello else { return };
        let Some(qp) = host.accept(hello) else { return };
        let invited = host.invite(qp, Arc::clone(process)).map_err(|refusal| {
            refuse(fd.as_fd(), refusal);
            Reason::Refused(refusal)
        });
        let invited = invited.and_then(|invitation| {
            let Invitation { mailbox, keys, doorbell, memories } = invitation;
            let frame = Frame::Welcome { mailbox: mailbox.1, keys: keys.1 };
            if descriptors::send(fd.as_fd(), &frame, &[mailbox.0, keys.0, doorbell])? != Sent::Whole {
                // It asks again when it has something to send.
                return Err(Reason::Crowded);
            }
            Ok(Responder::new(qp, memories))
        });
        let welcomed = invited.and_then(|responder| {
            self.strangers.retain(|it| *it != key);
            if let Some(socket) = self.sockets.get_mut(key) {
                socket.kind = Kind::Responder(responder);
            }
            if let Some(old) = self.responders.insert(qp, key) {
                self.remove(old);
                self.responders.insert(qp, key);
            }
            self.send(now, key)
        });
        if let Err(reason) = welcomed {
            self.lose(now, key, reason, host);
        }
    }

    /// Hears what the peer of a requester says.
    fn hear_owner(&mut self, now: Instant, key: SocketKey, host: &mut dyn Host) -> Result<(), Reason> {
        for _ in 0..FRAMES {
            let Some(Socket { fd, kind: Kind::Requester(requester), .. }) = self.sockets.get_mut(key) else {
                return Ok(());
            };
            let Some(Received { frame, descriptors }) = descriptors::receive(fd.as_fd())? else {
                return Ok(());
            };
            let qp = requester.qp;
            match (frame, requester.invited) {
                (Frame::Welcome { mailbox, keys }, false) => {
                    let invited = take_invitation((mailbox, keys), descriptors)?;
                    requester.invited = true;
                    host.invited(now, qp, invited)?;
                }
                (Frame::Memory { id, len }, true) => {
                    requester.memories.insert(id);
                    if requester.is_crowded() {
                        return Err(Reason::TooMuchMemory);
                    }
                    for memfd in descriptors {
                        let memory = match host.shared(qp, id) {
                            Some(memory) => memory,
                            None => Arc::new(map("memory", &memfd, len, Protection::ReadWrite)?),
                        };
                        host.memory(now, qp, id, memory);
                    }
                }
                (Frame::Patch { id, offset, len, version }, true) => {
                    if !requester.memories.contains(&id) {
                        return Err(Reason::Unknown);
                    }
                    *requester.patches.entry(id).or_default() += 1;
                    if requester.is_crowded() {
                        return Err(Reason::TooMuchMemory);
                    }
                    for memfd in descriptors {
                        let patch = Patch { version, offset, bytes: len, memfd: Arc::new(memfd) };
                        host.patch(now, qp, id, &patch)
                            .map_err(|source| Reason::Segment { what: "pages", source })?;
                    }
                }
                (Frame::Resume { id }, true) => host.resume(now, qp, id),
                (Frame::Forget { id }, true) => {
                    requester.memories.remove(&id);
                    requester.patches.remove(&id);
                    host.forget(now, qp, id);
                }
                (Frame::Refused(refusal), false) => return Err(Reason::Refused(refusal)),
                _ => return Err(FrameError::Unexpected.into()),
            }
        }
        Ok(())
    }

    /// Hears what the peer's requester says, which is not much.
    fn hear_writer(&mut self, now: Instant, key: SocketKey, host: &mut dyn Host) -> Result<(), Reason> {
        let Some(Socket { fd, kind: Kind::Responder(responder), .. }) = self.sockets.get(key) else {
            return Ok(());
        };
        let (mut heard, mut nudged) = (Ok(()), false);
        for _ in 0..FRAMES {
            match descriptors::receive(fd.as_fd()) {
                Ok(None) => break,
                Ok(Some(Received { frame: Frame::Nudge, .. })) => nudged = true,
                Ok(Some(_)) => heard = Err(FrameError::Unexpected.into()),
                Err(reason) => heard = Err(reason),
            }
            if heard.is_err() {
                break;
            }
        }
        // Also when it was the last thing that it said.
        if nudged {
            host.nudged(now, responder.qp);
        }
        heard
    }

    /// Sends a peer's requester what waits for it.
    fn send(&mut self, now: Instant, key: SocketKey) -> Result<(), Reason> {
        let Some(Socket { fd, kind: Kind::Responder(responder), .. }) = self.sockets.get_mut(key) else {
            return Ok(());
        };
        let wanted = match responder.send(fd.as_fd())? {
            Sent::Whole => EventFlags::IN,
            Sent::Full => EventFlags::IN | EventFlags::OUT,
            Sent::Crowded => {
                self.crowded.get_or_insert(now + CROWD_PAUSE);
                EventFlags::IN
            }
        };
        self.watch(key, wanted)
    }

    /// Sends what could not be sent since too many descriptors were under way.
    pub(super) fn send_again(&mut self, now: Instant, host: &mut dyn Host) {
        if self.crowded.is_none_or(|until| until > now) {
            return;
        }
        self.crowded = None;
        let keys: Vec<_> = self.responders.values().copied().collect();
        for key in keys {
            if let Err(reason) = self.send(now, key) {
                self.lose(now, key, reason, host);
            }
        }
    }

    /// Tells something to all that were invited to write to `device`.
    pub(super) fn tell(
        &mut self,
        now: Instant,
        device: DeviceRef,
        say: impl Fn(&mut Responder),
        host: &mut dyn Host,
    ) {
        let mut told = Vec::new();
        for (key, socket) in &mut self.sockets {
            if socket.device == Some(device)
                && let Kind::Responder(responder) = &mut socket.kind
            {
                say(responder);
                told.push(key);
            }
        }
        for key in told {
            if let Err(reason) = self.send(now, key) {
                self.lose(now, key, reason, host);
            }
        }
    }

    /// A connection is over by itself.
    pub(super) fn lose(&mut self, now: Instant, key: SocketKey, reason: Reason, host: &mut dyn Host) {
        match self.remove(key) {
            Some(Kind::Requester(Requester { qp, .. })) => host.over(now, qp, reason),
            Some(Kind::Responder(Responder { qp, .. })) => host.left(now, qp, &reason),
            Some(Kind::Stranger(_)) if reason.is_departure() => {
                tracing::debug!(%reason, "a neighbour has left")
            }
            Some(Kind::Stranger(_)) => self.warn(now, &reason, "turning a neighbour away"),
            Some(Kind::Listener) | None => {}
        }
    }

    /// Writes a line that a stranger has caused, unless there were many of late.
    fn warn(&mut self, now: Instant, why: &dyn std::error::Error, what: &str) {
        if let Some(left_out) = self.throttle.admit(now) {
            tracing::warn!(%why, left_out, "{what}");
        }
    }
}

/// Descriptors of a frame without any.
pub(super) const NONE: [OwnedFd; 0] = [];

/// Tells a requester that it has to take another wire; one that is not there any more need not know.
fn refuse(fd: BorrowedFd<'_>, refusal: Refusal) {
    let _ = descriptors::send(fd, &Frame::Refused(refusal), &NONE);
}

fn take_invitation((mailbox, keys): (u64, u64), descriptors: Vec<OwnedFd>) -> Result<Invited, Reason> {
    let came = descriptors.len();
    let Ok([mailbox_fd, keys_fd, doorbell]) = <[OwnedFd; 3]>::try_from(descriptors) else {
        return Err(Reason::Descriptors { came, wanted: 3 });
    };
    if !rustix::fs::fcntl_getfl(&doorbell).map_err(io::Error::from)?.contains(OFlags::NONBLOCK) {
        return Err(Reason::BlockingDoorbell);
    }
    if !is_eventfd(&doorbell) {
        return Err(Reason::NoDoorbell);
    }
    Ok(Invited {
        mailbox: map("mailbox", &mailbox_fd, mailbox, Protection::ReadWrite)?,
        keys: map("table of keys", &keys_fd, keys, Protection::Read)?,
        doorbell,
    })
}

fn map(what: &'static str, memfd: &OwnedFd, len: u64, protection: Protection) -> Result<Segment, Reason> {
    Segment::map(memfd.as_fd(), len, protection).map_err(|source| Reason::Segment { what, source })
}

/// Whether writing to it does nothing but count.
fn is_eventfd(fd: &OwnedFd) -> bool {
    let target = std::fs::read_link(format!("/proc/self/fd/{}", fd.as_raw_fd()));
    target.is_ok_and(|target| target.as_os_str() == "anon_inode:[eventfd]")
}

/// Whether the connection is over in both directions.
fn has_hung_up(fd: BorrowedFd<'_>) -> io::Result<bool> {
    // These two are told whatever is asked for.
    let over = PollFlags::HUP | PollFlags::ERR;
    let mut fds = [PollFd::from_borrowed_fd(fd, PollFlags::empty())];
    poll(&mut fds, Some(&Timespec::default()))?;
    Ok(fds[0].revents().intersects(over))
}
