//! Accepted connections that are not identified yet: reads their hello, then invites or refuses them.

use rustix::io::Errno;

use super::super::super::accepting::{accept, has_hung_up};
use super::descriptors::{self, Received, Sent};
use super::frame::FrameError;
use super::*;
use crate::error::limit_advice;

/// An accepted connection that has not sent its hello, or whose queue pair is not ready yet.
#[derive(Debug)]
pub(super) struct Stranger {
    pub(super) deadline: Instant,
    /// The hello, and a pidfd of its process.
    hello: Option<(Hello, Arc<OwnedFd>)>,
    /// End of the attempts to send the invitation, once these met too many descriptors in flight.
    crowded: Option<Instant>,
    _place: Place,
}

impl Rendezvous {
    /// Accepts the waiting connections of a listener.
    pub(super) fn accept(&mut self, now: Instant, listener: SocketKey, host: &mut dyn Host) {
        for _ in 0..ACCEPTS {
            let Some(Socket { fd, device, .. }) = self.sockets.get(listener) else { return };
            let device = *device;
            let accepted = accept(fd.as_fd()).and_then(|fd| {
                let Some(fd) = fd else { return Ok(false) };
                let _place = self.take_place(now, host);
                let (hello, crowded) = (None, None);
                let kind = Kind::Stranger(Stranger { deadline: now + HELLO_WAIT, hello, crowded, _place });
                let key = self.insert(Socket { fd, device, kind }, EventFlags::IN)?;
                self.strangers.push_back(key);
                Ok(true)
            });
            match accepted {
                Ok(true) => {}
                Ok(false) => return,
                // Most likely this process is out of descriptors or memory. A listener that stays ready would keep
                // the driver busy.
                Err(why) => {
                    self.warn(now, &why, "accepting a neighbour failed; trying again in a moment");
                    self.drop_oldest(now, host);
                    self.accept_paused = Some(now + ACCEPT_PAUSE);
                    return self.watch_listeners(EventFlags::empty());
                }
            }
        }
    }

    /// Takes a place for a newcomer; the oldest strangers make room for it.
    fn take_place(&mut self, now: Instant, host: &mut dyn Host) -> Place {
        loop {
            match Place::take(Door::Mapped) {
                Some(place) => return place,
                None if self.drop_oldest(now, host) => {}
                None => return Place::first(Door::Mapped),
            }
        }
    }

    /// Closes the oldest stranger after one last look, because its hello may just have arrived; `false` if there is
    /// none.
    fn drop_oldest(&mut self, now: Instant, host: &mut dyn Host) -> bool {
        let Some(oldest) = self.strangers.front().copied() else { return false };
        let crowded = self.read_hello(now, oldest, host).err().unwrap_or(UnmappedReason::Crowded);
        if self.strangers.front() == Some(&oldest) {
            self.lose(now, oldest, crowded, host);
        }
        true
    }

    /// Reads a stranger's hello.
    pub(super) fn read_hello(
        &mut self,
        now: Instant,
        key: SocketKey,
        host: &mut dyn Host,
    ) -> Result<(), UnmappedReason> {
        let Some(Socket { fd, device, kind: Kind::Stranger(stranger) }) = self.sockets.get_mut(key) else {
            return Ok(());
        };
        if stranger.hello.is_some() {
            // Once complete, a stranger is watched for its end alone. Another thread may also have been told of the
            // hello and come here later.
            return if has_hung_up(fd.as_fd())? { Err(UnmappedReason::Closed) } else { Ok(()) };
        }
        let received = match descriptors::receive(fd.as_fd()) {
            // A refusal has the same encoding in every version, so a peer of any version can read it.
            Err(UnmappedReason::Frame(FrameError::Version(version))) => {
                refuse(fd.as_fd(), Refusal::Version(frame::VERSION));
                return Err(FrameError::Version(version).into());
            }
            received => received?,
        };
        let Some(Received { frame, .. }) = received else { return Ok(()) };
        let Frame::Hello(hello) = frame else { return Err(FrameError::Unexpected.into()) };
        if device.is_some_and(|device| host.has_other_wire(device))
            && descriptors::is_in_last_quarter(fd.as_fd())
        {
            return Err(refused(fd.as_fd(), Refusal::limit(&Errno::MFILE.into())));
        }
        let process = self.credentials.check(fd.as_fd()).inspect_err(|reason| {
            let refusal = match reason {
                UnmappedReason::OtherUser { .. } | UnmappedReason::OverflowUser { .. } => Refusal::User,
                UnmappedReason::NoPidfd(error) if limit_advice(error).is_some() => Refusal::limit(error),
                _ => Refusal::Pidfd,
            };
            refuse(fd.as_fd(), refusal);
        })?;
        stranger.hello = Some((hello, Arc::new(process)));
        self.watch(key, EventFlags::empty())?;
        self.introduce(now, key, host);
        Ok(())
    }

    /// Tries again whether a queue pair takes each waiting stranger.
    pub(super) fn introduce_all(&mut self, now: Instant, host: &mut dyn Host) {
        for at in (0..self.strangers.len()).rev() {
            if let Some(key) = self.strangers.get(at).copied() {
                self.introduce(now, key, host);
            }
        }
    }

    /// Invites a stranger if a queue pair takes it; it then replaces the writer that was invited before.
    fn introduce(&mut self, now: Instant, key: SocketKey, host: &mut dyn Host) {
        let Some(Socket { fd, kind: Kind::Stranger(stranger), .. }) = self.sockets.get(key) else { return };
        let Some((hello, process)) = &stranger.hello else { return };
        let Some(qp) = host.accept(hello) else { return };
        let welcomed = match welcome(fd.as_fd(), qp, Arc::clone(process), host) {
            Ok(Some(writer)) => {
                self.admit(key, writer);
                self.send(now, key)
            }
            Ok(None) => self.postpone(now, key),
            Err(reason) => Err(reason),
        };
        if let Err(reason) = welcomed {
            self.lose(now, key, reason, host);
        }
    }

    /// Makes a stranger the writer of its queue pair, in place of a former one.
    fn admit(&mut self, key: SocketKey, writer: InvitedWriter) {
        let qp = writer.qp;
        self.strangers.retain(|it| *it != key);
        if let Some(socket) = self.sockets.get_mut(key) {
            socket.kind = Kind::InvitedWriter(writer);
        }
        if let Some(old) = self.writers.insert(qp, key) {
            self.remove(old);
        }
    }

    /// Lets a stranger that met too many descriptors in flight wait. Not for long: its requests wait meanwhile, and
    /// can take another wire.
    fn postpone(&mut self, now: Instant, key: SocketKey) -> Result<(), UnmappedReason> {
        let Some(Socket { fd, kind: Kind::Stranger(stranger), .. }) = self.sockets.get_mut(key) else {
            return Ok(());
        };
        if *stranger.crowded.get_or_insert(now + CROWD_WAIT) <= now {
            return Err(refused(fd.as_fd(), Refusal::limit(&Errno::TOOMANYREFS.into())));
        }
        self.crowded.get_or_insert(now + CROWD_PAUSE);
        Ok(())
    }
}

/// Sends the invitation to a writer of `qp`; `None` when its socket takes no descriptors now.
fn welcome(
    fd: BorrowedFd<'_>,
    qp: QpRef,
    process: Arc<OwnedFd>,
    host: &mut dyn Host,
) -> Result<Option<InvitedWriter>, UnmappedReason> {
    let invitation = host.invite(qp, process).map_err(|refusal| refused(fd, refusal))?;
    let Invitation { mailbox, keys, doorbell, memories } = invitation;
    let frame = Frame::Welcome { mailbox: mailbox.1, keys: keys.1 };
    match descriptors::send(fd, &frame, &[mailbox.0, keys.0, doorbell]) {
        Ok(sent) => Ok((sent == Sent::Whole).then(|| InvitedWriter::new(qp, memories))),
        Err(UnmappedReason::Io(error)) => {
            refuse(fd, Refusal::limit(&error));
            Err(UnmappedReason::Io(error))
        }
        Err(reason) => Err(reason),
    }
}

/// Refuses a requester, which must take another wire; returns the reason for the log.
fn refused(fd: BorrowedFd<'_>, refusal: Refusal) -> UnmappedReason {
    refuse(fd, refusal);
    UnmappedReason::Refused(refusal)
}

/// Sends a refusal. A requester that is gone does not need it, so errors are ignored.
fn refuse(fd: BorrowedFd<'_>, refusal: Refusal) {
    let _ = descriptors::send(fd, &Frame::Refused(refusal), &NONE);
}
