//! Connections whose two ends know each other: the frames that each end receives and sends.
//!
//! [`stranger`] has the connections before that.

use std::os::fd::AsRawFd;

use rustix::fs::OFlags;

use rustix::mm::ProtFlags;

use super::super::segment::{MAPPINGS_PER_PATCH, READ_WRITE, Segment};
use super::descriptors::{self, Received, Sent};
use super::frame::FrameError;
use super::*;

/// Frames read in one hold of the lock; epoll reports the socket again for the rest.
const FRAMES: usize = 64;

/// The connection of a requester of this process.
#[derive(Debug)]
pub(super) struct Requester {
    pub(super) qp: QpRef,
    /// Pidfd of the peer's process.
    pub(super) process: Arc<OwnedFd>,
    pub(super) invited: bool,
    /// Memories that the peer has announced on this connection. A patch of any other is refused, because its mapping
    /// may not be of this peer.
    pub(super) memories: HashSet<u64>,
}

impl Rendezvous {
    /// Serves a socket that is ready: reads it, and sends what waits for it.
    pub(super) fn serve(&mut self, now: Instant, key: SocketKey, host: &mut dyn Host) {
        let served = match self.sockets.get(key).map(|socket| &socket.kind) {
            None => Ok(()),
            Some(Kind::Listener) => {
                self.accept(now, key, host);
                Ok(())
            }
            Some(Kind::Stranger(_)) => self.read_hello(now, key, host),
            Some(Kind::Requester(_)) => self.read_from_owner(now, key, host),
            Some(Kind::InvitedWriter(_)) => {
                self.read_from_writer(now, key, host).and_then(|()| self.send(now, key))
            }
        };
        if let Err(reason) = served {
            self.lose(now, key, reason, host);
        }
    }

    /// Reads what the peer of a requester announces.
    fn read_from_owner(
        &mut self,
        now: Instant,
        key: SocketKey,
        host: &mut dyn Host,
    ) -> Result<(), UnmappedReason> {
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
                    for memfd in descriptors {
                        let memory = match host.existing_mapping(qp, id) {
                            Some(memory) => memory,
                            None => Arc::new(map("memory", &memfd, len, READ_WRITE)?),
                        };
                        host.add_memory(now, qp, id, memory);
                    }
                }
                (Frame::Patch { id, offset, len, version }, true) => {
                    if !requester.memories.contains(&id) {
                        return Err(UnmappedReason::UnknownMemory);
                    }
                    leave_room(MAPPINGS_PER_PATCH)?;
                    for memfd in descriptors {
                        let patch = Patch { version, offset, bytes: len, memfd: Arc::new(memfd) };
                        host.patch_memory(now, qp, id, &patch)
                            .map_err(|source| UnmappedReason::Segment { what: "pages", source })?;
                    }
                }
                (Frame::Resume { id }, true) => host.resume_memory(now, qp, id),
                (Frame::Forget { id }, true) => {
                    requester.memories.remove(&id);
                    host.forget_memory(now, qp, id);
                }
                (Frame::Refused(refusal), false) => return Err(UnmappedReason::Refused(refusal)),
                _ => return Err(FrameError::Unexpected.into()),
            }
        }
        Ok(())
    }

    /// Reads what the writer of a responder says: nudges alone.
    fn read_from_writer(
        &mut self,
        now: Instant,
        key: SocketKey,
        host: &mut dyn Host,
    ) -> Result<(), UnmappedReason> {
        let Some(Socket { fd, kind: Kind::InvitedWriter(writer), .. }) = self.sockets.get(key) else {
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
        // Also when the connection ended right behind the nudge: the writer may have refused a request and then died.
        if nudged {
            host.nudged(now, writer.qp);
        }
        heard
    }

    /// Sends a writer the notices that wait for it.
    pub(super) fn send(&mut self, now: Instant, key: SocketKey) -> Result<(), UnmappedReason> {
        let Some(Socket { fd, kind: Kind::InvitedWriter(writer), .. }) = self.sockets.get_mut(key) else {
            return Ok(());
        };
        let wanted = match writer.send(fd.as_fd())? {
            Sent::Whole => EventFlags::IN,
            Sent::Full => EventFlags::IN | EventFlags::OUT,
            Sent::Crowded => {
                self.crowded.get_or_insert(now + CROWD_PAUSE);
                EventFlags::IN
            }
        };
        self.watch(key, wanted)
    }

    /// Sends what was held back because too many descriptors were in flight. No event reports that there are fewer,
    /// so a timer tries again.
    pub(super) fn send_again(&mut self, now: Instant, host: &mut dyn Host) {
        if self.crowded.is_none_or(|until| until > now) {
            return;
        }
        self.crowded = None;
        let keys: Vec<_> = self.writers.values().copied().collect();
        for key in keys {
            if let Err(reason) = self.send(now, key) {
                self.lose(now, key, reason, host);
            }
        }
        self.introduce_all(now, host);
    }

    /// Tells every writer that was invited to `device` of a change.
    pub(crate) fn tell(&mut self, now: Instant, device: DeviceRef, change: &Change, host: &mut dyn Host) {
        let mut told = Vec::new();
        for (key, socket) in &mut self.sockets {
            if socket.device == Some(device)
                && let Kind::InvitedWriter(writer) = &mut socket.kind
            {
                writer.tell(change);
                told.push(key);
            }
        }
        for key in told {
            if let Err(reason) = self.send(now, key) {
                self.lose(now, key, reason, host);
            }
        }
    }

    /// Ends a connection that broke or was refused, and reports it to the host.
    pub(super) fn lose(&mut self, now: Instant, key: SocketKey, reason: UnmappedReason, host: &mut dyn Host) {
        match self.remove(key) {
            Some(Kind::Requester(Requester { qp, .. })) => host.requester_closed(now, qp, reason),
            Some(Kind::InvitedWriter(InvitedWriter { qp, .. })) => host.responder_closed(now, qp, &reason),
            Some(Kind::Stranger(_)) if reason.is_departure() => {
                crate::log::debug!(%reason, "a neighbour has left")
            }
            Some(Kind::Stranger(_)) => self.warn(now, &reason, "turning a neighbour away"),
            Some(Kind::Listener) | None => {}
        }
    }

    /// Writes a log line that a stranger has caused, unless there were many of late.
    pub(super) fn warn(&mut self, now: Instant, why: &dyn std::error::Error, what: &str) {
        if let Some(left_out) = self.throttle.admit(now) {
            crate::log::warn!(%why, left_out, "{what}");
        }
    }
}

/// The descriptors of a frame that has none.
pub(super) const NONE: [OwnedFd; 0] = [];

/// Checks the descriptors of an invitation, and maps its segments.
fn take_invitation(
    (mailbox, keys): (u64, u64),
    descriptors: Vec<OwnedFd>,
) -> Result<AcceptedInvitation, UnmappedReason> {
    let came = descriptors.len();
    let Ok([mailbox_fd, keys_fd, doorbell]) = <[OwnedFd; 3]>::try_from(descriptors) else {
        return Err(UnmappedReason::Descriptors { came, wanted: 3 });
    };
    // A doorbell that blocks would stop a thread of this process, with the fabric's lock held.
    if !rustix::fs::fcntl_getfl(&doorbell).map_err(io::Error::from)?.contains(OFlags::NONBLOCK) {
        return Err(UnmappedReason::BlockingDoorbell);
    }
    if !is_eventfd(&doorbell) {
        return Err(UnmappedReason::NoDoorbell);
    }
    Ok(AcceptedInvitation {
        mailbox: map("mailbox", &mailbox_fd, mailbox, READ_WRITE)?,
        keys: map("table of keys", &keys_fd, keys, ProtFlags::READ)?,
        doorbell,
    })
}

/// Refuses `more` mappings of peers' memory when this process has too many.
fn leave_room(more: usize) -> Result<(), UnmappedReason> {
    if Segment::peer_mappings() + more > MAPPINGS_MAX { Err(UnmappedReason::TooMuchMemory) } else { Ok(()) }
}

/// Maps a memfd of a peer, if this process has room for one more mapping.
fn map(
    what: &'static str,
    memfd: &OwnedFd,
    len: u64,
    protection: ProtFlags,
) -> Result<Segment, UnmappedReason> {
    leave_room(1)?;
    Segment::map(memfd.as_fd(), len, protection).map_err(|source| UnmappedReason::Segment { what, source })
}

/// Whether a descriptor is an eventfd. The peer could send anything else, and writing to a file or a device would do
/// more than count.
fn is_eventfd(fd: &OwnedFd) -> bool {
    let target = std::fs::read_link(format!("/proc/self/fd/{}", fd.as_raw_fd()));
    target.is_ok_and(|target| target.as_os_str() == "anon_inode:[eventfd]")
}
