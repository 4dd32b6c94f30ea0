//! Accepts connections, identifies them by their hello, and parts from those whose queue pair is gone.

use super::super::accepting::{accept, has_hung_up};
use super::*;

/// Connections accepted in one hold of the lock, so that others get it in between.
const ACCEPTS: usize = 16;

impl Tcp {
    /// Accepts the waiting connections of a listener. Each stranger is read when it has sent something, so that a
    /// slow one delays no other.
    pub(super) fn accept(&mut self, now: Instant, listener: SocketKey, sink: &mut dyn Sink) {
        for _ in 0..ACCEPTS {
            let Some(Socket { fd, device, .. }) = self.sockets.get(listener) else { return };
            let device = *device;
            let accepted = accept(fd.as_fd()).and_then(|fd| {
                fd.iter().try_for_each(socket::no_delay)?;
                Ok(fd)
            });
            let fd = match accepted {
                Ok(Some(fd)) => fd,
                Ok(None) => return,
                Err(why) => {
                    self.warn(&why, "accepting failed; trying again in a moment");
                    self.drop_oldest(sink);
                    return self.pause_accepting(now);
                }
            };
            let place = self.take_place(sink);
            let kind = Kind::Stranger(Stranger::new(now + HELLO_WAIT, place));
            match self.insert(Socket { fd, device, kind }, EventFlags::IN) {
                Ok(key) => self.strangers.push_back(key),
                Err(why) => self.warn(&why, "a connection cannot be watched"),
            }
        }
    }

    /// Takes a place for a newcomer; the oldest strangers make room for it.
    fn take_place(&mut self, sink: &mut dyn Sink) -> Place {
        loop {
            match Place::take(Door::Tcp) {
                Some(place) => return place,
                None if self.drop_oldest(sink) => {}
                None => return Place::first(Door::Tcp),
            }
        }
    }

    /// Closes the oldest stranger after one last look, because its hello may just have arrived; `false` if there is
    /// none.
    fn drop_oldest(&mut self, sink: &mut dyn Sink) -> bool {
        let Some(oldest) = self.strangers.front().copied() else { return false };
        let crowded = self.read_hello(oldest, sink).err().unwrap_or(LinkError::Crowded);
        if self.strangers.front() == Some(&oldest) {
            self.lose(oldest, &crowded);
        }
        true
    }

    /// Pauses accepting. Most likely this process is out of descriptors or memory, and a listener that stays ready
    /// would keep the driver busy.
    pub(super) fn pause_accepting(&mut self, now: Instant) {
        self.accept_paused = Some(now + ACCEPT_PAUSE);
        self.watch_listeners(EventFlags::empty());
    }

    /// Lets epoll watch all listeners for `events`.
    pub(super) fn watch_listeners(&self, events: EventFlags) {
        for (key, socket) in &self.sockets {
            if matches!(socket.kind, Kind::Listener)
                && let Err(error) = epoll::modify(&self.epoll, &socket.fd, data(key), events)
            {
                crate::log::error!(%error, "a listener cannot be watched any more");
            }
        }
    }

    /// Reads a stranger's hello, and gives the connection to the queue pair that it names.
    pub(super) fn read_hello(&mut self, key: SocketKey, sink: &mut dyn Sink) -> Result<(), LinkError> {
        let Some(Socket { fd, kind: Kind::Stranger(stranger), .. }) = self.sockets.get_mut(key) else {
            return Ok(());
        };
        if stranger.is_complete() {
            // Once complete, a stranger is watched for its end alone. Another thread may also have been told of the
            // hello and come here later.
            return if has_hung_up(fd.as_fd())? { Err(LinkError::Closed) } else { Ok(()) };
        }
        let Some(hello) = stranger.read(fd.as_fd())? else { return Ok(()) };
        if !self.introduce(key, &hello, sink) {
            // The queue pair does not exist or is not ready: tried again when one becomes ready. Whatever follows the
            // hello waits in the socket.
            self.watch(key, EventFlags::empty())?;
        }
        Ok(())
    }

    /// Tries the waiting strangers again when a queue pair has become ready.
    pub(super) fn retry_waiting(&mut self, sink: &mut dyn Sink) {
        if !std::mem::take(&mut self.retry_waiting_due) {
            return;
        }
        for at in (0..self.strangers.len()).rev() {
            let key = self.strangers[at];
            let Some(Kind::Stranger(stranger)) = self.sockets.get(key).map(|it| &it.kind) else { continue };
            if let Ok(Some(hello)) = stranger.hello()
                && self.introduce(key, &hello, sink)
                && let Err(why) = self.watch(key, EventFlags::IN)
            {
                self.lose(key, &why);
            }
        }
    }

    /// Gives the connection to a queue pair that takes it, in place of the one it had. Returns whether one does.
    fn introduce(&mut self, key: SocketKey, hello: &Hello, sink: &mut dyn Sink) -> bool {
        let Some(qp) = sink.accept(hello) else { return false };
        // A requester that connects again is the same peer with a new connection, so the older connection is dead or
        // about to be.
        self.be_asked_on(qp, key);
        self.strangers.retain(|it| *it != key);
        if let Some(socket) = self.sockets.get_mut(key) {
            socket.kind = Kind::Link(Link::new(qp, true));
        }
        true
    }

    /// Answers the peer of `qp` on this connection from now on, in place of the one that it had.
    pub(super) fn be_asked_on(&mut self, qp: QpRef, key: SocketKey) {
        if let Some(old) = self.responders.insert(qp, key).filter(|old| *old != key) {
            self.remove(old);
        }
    }

    /// Lets epoll watch a socket for `events`.
    pub(super) fn watch(&self, key: SocketKey, events: EventFlags) -> Result<(), LinkError> {
        if let Some(socket) = self.sockets.get(key) {
            epoll::modify(&self.epoll, &socket.fd, data(key), events).map_err(io::Error::from)?;
        }
        Ok(())
    }

    /// Parts from the connection of a responder that is gone: the next flush sends its last replies.
    pub(super) fn linger(&mut self, key: SocketKey) {
        let Some(Socket { kind, .. }) = self.sockets.get_mut(key) else { return };
        let Kind::Link(link) = kind else { return };
        let mut outflow = std::mem::take(&mut link.outflow);
        if !outflow.keep_short_replies() {
            return self.remove(key);
        }
        *kind = Kind::Lingering(Lingering { deadline: None, outflow });
        if let Some(oldest) = self.lingering.front().filter(|_| self.lingering.len() >= LINGERING_MAX) {
            self.lose(*oldest, &LinkError::Crowded);
        }
        self.lingering.push_back(key);
        self.dirty.push(key);
    }

    /// Returns the connection that waits longest, of the strangers and those that linger.
    #[inline]
    pub(super) fn oldest_waiting(&self) -> Option<(SocketKey, Instant)> {
        // Asked at every release of the lock, so the usual case must be cheap.
        if self.strangers.is_empty() && self.lingering.is_empty() {
            return None;
        }
        let deadline = |key: &SocketKey| match &self.sockets.get(*key)?.kind {
            Kind::Stranger(stranger) => Some((*key, stranger.deadline)),
            Kind::Lingering(lingering) => Some((*key, lingering.deadline?)),
            Kind::Listener | Kind::Link(_) => None,
        };
        let oldest = [&self.strangers, &self.lingering].map(|queue| queue.front().and_then(deadline));
        oldest.into_iter().flatten().min_by_key(|(_, deadline)| *deadline)
    }
}
