//! Connections of which nobody knows yet whether they are of the job: they show the token, and may then speak.
//!
//! Nothing here waits for a single stranger, because thousands may come and say nothing.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use rdma_core::Deadline;
use rdma_core::strangers::{Door, Place};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use socket2::SockRef;

use super::{CONNECT_PAUSE, GREETING_BYTES, Met, Verdict, greeting_of, is_passing, read_greeting};
use crate::bootstrap::{JobToken, is_exhausted};
use crate::link::HandshakeError;
use crate::link::blob::{BLOB_BYTES_MAX, HEADER_BYTES, is_whole, total_bytes};

/// The time that a stranger has for its greeting, so that a silent one does not hold a place.
const GREETING_WITHIN: Duration = Duration::from_secs(2);
/// The time that a stranger has for its blob, once it has shown the token.
pub(super) const BLOB_WITHIN: Duration = Duration::from_secs(5);
/// Connections accepted in a row, before the strangers that are there are listened to again.
const ACCEPTED_MAX: usize = 256;

/// The words of a process before it counts as met.
#[derive(Debug, Clone, Copy)]
pub(crate) enum First<'a> {
    /// The token alone.
    Token,
    /// The token and a blob, which is answered by this one.
    Blob(&'a [u8]),
    /// The token and a blob, which its receiver will answer.
    Request,
}

/// The strangers of one listener.
#[derive(Debug, Default)]
pub(crate) struct Strangers {
    waiting: VecDeque<Stranger>,
    /// Whether it was warned that one had the token and sent no blob.
    warned: bool,
}

/// A process that has connected, and has not shown the token or sent its blob yet.
#[derive(Debug)]
struct Stranger {
    stream: TcpStream,
    peer: SocketAddr,
    until: Deadline,
    /// The greeting, and then the blob, as far as they have arrived.
    said: Vec<u8>,
    /// Whether the stranger has shown the token.
    greeted: bool,
    _place: Place,
}

/// The outcome of listening to a stranger.
enum Heard {
    /// The stranger is a process of the job; its blob, if one was waited for.
    Met(Met, Vec<u8>),
    /// More bytes are to come.
    Waits(Stranger),
    /// The stranger went away, or was sent away.
    Gone,
}

impl Strangers {
    /// Sends those away whose time is over.
    pub(crate) fn dismiss_overdue(&mut self) {
        let Self { waiting, warned } = self;
        waiting.retain(|stranger| !stranger.is_overdue(warned));
    }

    /// The connections, to be polled for what they say.
    pub(crate) fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.waiting.iter().map(|stranger| stranger.stream.as_fd())
    }

    /// The time at which the next one is overdue.
    pub(crate) fn next_deadline(&self) -> Option<Deadline> {
        self.waiting.iter().map(|stranger| stranger.until).reduce(Deadline::min)
    }

    /// Waits until a connection or bytes arrive, or until the deadline or a stranger's time is over.
    pub(super) fn wait(&self, listener: &TcpListener, deadline: Deadline) -> io::Result<()> {
        let mut polled = vec![PollFd::from_borrowed_fd(listener.as_fd(), PollFlags::IN)];
        polled.extend(self.descriptors().map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)));
        let left = self.next_deadline().map_or(deadline, |next| next.min(deadline)).remaining();
        let timeout = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
        match poll(&mut polled, Some(&timeout)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Accepts all waiting connections, listens to all strangers, and returns the first that has said what is to come
    /// `first`, with its blob. Look again before you wait: others may have done so too. Never waits, unless no
    /// descriptor is left.
    ///
    /// # Errors
    ///
    /// The listener does not accept.
    pub(crate) fn look(
        &mut self,
        listener: &TcpListener,
        token: &JobToken,
        first: First<'_>,
        deadline: Deadline,
    ) -> io::Result<Option<(Met, Vec<u8>)>> {
        // All waiting connections are accepted before any is listened to: with one at a time, a crowd of strangers
        // would keep the peer in the listener's queue.
        for _ in 0..ACCEPTED_MAX {
            let (accepted, exhausted) = match listener.accept() {
                Ok(accepted) => (Some(accepted), false),
                // The connection went away again, another thread was faster, or the wake-up was for a stranger.
                Err(error) if is_passing(&error) => break,
                Err(error) if is_exhausted(&error) => (None, true),
                Err(error) => return Err(error),
            };
            // The oldest make room, each after one last look: its bytes may just have arrived.
            let mut place = if exhausted { None } else { Place::take(Door::Handshake) };
            while place.is_none()
                && let Some(oldest) = self.waiting.pop_front()
            {
                let heard = oldest.hear(token, first, deadline, &mut self.warned);
                place = Place::take(Door::Handshake);
                if let Heard::Met(met, theirs) = heard {
                    if let Some((stream, peer)) = accepted {
                        let place = place.unwrap_or_else(|| Place::first(Door::Handshake));
                        self.waiting.extend(Stranger::new(stream, peer, place));
                    }
                    return Ok(Some((met, theirs)));
                }
            }
            match (accepted, place) {
                (Some((stream, peer)), place) => {
                    let place = place.unwrap_or_else(|| Place::first(Door::Handshake));
                    self.waiting.extend(Stranger::new(stream, peer, place));
                }
                // No descriptor is left, and no stranger of this listener has one.
                (None, None) => {
                    std::thread::sleep(CONNECT_PAUSE.min(deadline.remaining()));
                    break;
                }
                (None, Some(_)) => {}
            }
        }
        for _ in 0..self.waiting.len() {
            let Some(stranger) = self.waiting.pop_front() else { break };
            match stranger.hear(token, first, deadline, &mut self.warned) {
                Heard::Met(met, theirs) => return Ok(Some((met, theirs))),
                Heard::Waits(stranger) => self.waiting.push_back(stranger),
                Heard::Gone => {}
            }
        }
        Ok(None)
    }
}

impl Stranger {
    fn new(stream: TcpStream, peer: SocketAddr, place: Place) -> Option<Self> {
        stream.set_nonblocking(true).ok()?;
        SockRef::from(&stream).set_send_buffer_size(2 * BLOB_BYTES_MAX).ok()?;
        let until = Deadline::after(GREETING_WITHIN);
        Some(Self { stream, peer, until, said: Vec::new(), greeted: false, _place: place })
    }

    /// Whether the time for the greeting or the blob is over.
    fn is_overdue(&self, warned: &mut bool) -> bool {
        let overdue = self.until.expired();
        if overdue {
            self.say_why(&HandshakeError::Silent { peer: self.peer }, warned);
        }
        overdue
    }

    /// Logs why this connection is closed. Warns of the first one that has shown the job's token: many know it, and may
    /// come again and again.
    fn say_why(&self, error: &HandshakeError, warned: &mut bool) {
        if self.greeted && !std::mem::replace(warned, true) {
            crate::log::warn!(%error, "a connection with the job's token sent no blob, and was closed");
        } else {
            crate::log::debug!(%error, "a connection was sent away in the handshake");
        }
    }

    /// Reads what has arrived, and answers a greeting or a blob once it is complete. Never waits.
    fn hear(mut self, token: &JobToken, first: First<'_>, deadline: Deadline, warned: &mut bool) -> Heard {
        match self.answer(token, first) {
            Ok(false) => return Heard::Waits(self),
            Ok(true) => {}
            Err(error) => {
                self.say_why(&error, warned);
                return Heard::Gone;
            }
        }
        let Self { stream, peer, said, .. } = self;
        match stream.set_nonblocking(false) {
            Ok(()) => Heard::Met(Met { stream, peer, deadline }, said),
            Err(_) => Heard::Gone,
        }
    }

    /// Answers what has arrived. Returns whether this is the peer.
    fn answer(&mut self, token: &JobToken, first: First<'_>) -> Result<bool, HandshakeError> {
        if !self.greeted {
            if !self.listen(GREETING_BYTES)? {
                return Ok(false);
            }
            self.answer_greeting(token)?;
        }
        if matches!(first, First::Token) {
            return Ok(true);
        }
        if !self.listen(HEADER_BYTES)? {
            return Ok(false);
        }
        // The length is only the peer's word, so no more than the longest blob is ever waited for.
        let total = total_bytes(&self.said).filter(|total| (HEADER_BYTES..=BLOB_BYTES_MAX).contains(total));
        let garbage = HandshakeError::Garbage { peer: self.peer };
        match total {
            None => Err(garbage),
            Some(total) if !self.listen(total)? => Ok(false),
            Some(_) if !is_whole(&self.said) => Err(garbage),
            Some(_) => match first {
                First::Blob(blob) => self.say(blob).map(|()| true),
                First::Token | First::Request => Ok(true),
            },
        }
    }

    /// Checks the token and answers. Only a stranger that has shown the token is sent it back.
    fn answer_greeting(&mut self, token: &JobToken) -> Result<(), HandshakeError> {
        let peer = self.peer;
        let said = std::mem::take(&mut self.said);
        let greeting = said.try_into().map_err(|_| HandshakeError::Garbage { peer })?;
        let (_, theirs) = read_greeting(peer, greeting)?;
        if theirs != *token {
            self.say(&greeting_of(Verdict::OTHER_TOKEN, &[0; 16]))?;
            return Err(HandshakeError::OtherToken { peer });
        }
        self.say(&greeting_of(Verdict::WELCOME, token.as_bytes()))?;
        self.greeted = true;
        self.until = Deadline::after(BLOB_WITHIN);
        Ok(())
    }

    /// Reads up to `len` bytes in all, and returns whether all have arrived. Never waits.
    fn listen(&mut self, len: usize) -> Result<bool, HandshakeError> {
        let mut buffer = [0; BLOB_BYTES_MAX];
        while let Some(missing) = len.checked_sub(self.said.len()).filter(|missing| *missing > 0) {
            let into = buffer.get_mut(..missing).unwrap_or_default();
            match self.stream.read(into) {
                Ok(0) => return Err(self.lost(ErrorKind::UnexpectedEof.into())),
                Ok(read) => self.said.extend(into.iter().take(read)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(error) if is_passing(&error) => {}
                Err(source) => return Err(self.lost(source)),
            }
        }
        Ok(true)
    }

    /// Sends at most a blob, which always fits into the socket's buffer. A peer that lets them not fit is lost.
    fn say(&mut self, bytes: &[u8]) -> Result<(), HandshakeError> {
        self.stream.write_all(bytes).map_err(|source| self.lost(source))
    }

    fn lost(&self, source: io::Error) -> HandshakeError {
        HandshakeError::Lost { peer: self.peer, source }
    }
}
