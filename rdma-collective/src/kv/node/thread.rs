//! The node's own thread: it accepts peers, notices when they leave, and wakes tasks whose deadline has passed.

use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::thread::Builder;
use std::time::Instant;

use rdma_core::Deadline;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};

use super::inner::{Inner, Rest, tell};
use super::jobs::Job;
use super::message::{Answer, NOTE_BYTES, Request};
use super::table::{MAKE_WITHIN, is_open};
use super::work::{self, say};
use super::{NodeError, NodeName};
use crate::bootstrap::notice_vanishing;
use crate::link::handshake::{First, Met, Strangers};
use crate::wake::wake_all;

/// The pause after a failure, of the listener for example, so that it does not keep a core busy.
const FAILED_PAUSE: std::time::Duration = std::time::Duration::from_millis(100);

/// A peer that was met, and the connection to it.
type Watched = (NodeName, u64, Arc<TcpStream>);

pub(super) fn start(inner: &Arc<Inner>, listener: TcpListener) -> Result<(), NodeError> {
    let own = Arc::clone(inner);
    let started = Builder::new().name("rdma-node".to_owned()).spawn(move || {
        run(&own, listener);
        end(&own);
        wake_all(own.finish());
    });
    started.map(drop).map_err(|source| NodeError::Thread { source: Arc::new(source) })
}

/// Runs until the node is closed.
fn run(inner: &Arc<Inner>, listener: TcpListener) {
    let mut strangers = Strangers::default();
    loop {
        strangers.dismiss_overdue();
        let overdue = strangers.next_deadline().map(Deadline::instant);
        let ((watched, is_closed), next) = inner.look_before_sleep(overdue, |table| {
            let watched = table
                .met()
                .map(|(peer, stream)| (peer.blob.name.clone(), peer.blob.incarnation, Arc::clone(stream)));
            (watched.collect::<Vec<Watched>>(), table.is_closed)
        });
        if is_closed {
            return;
        }
        let readable = wait((inner, &listener), &strangers, &watched, next.map(Deadline::at));
        inner.nudge.clear();
        for ((name, incarnation, stream), _) in watched.iter().zip(readable).filter(|(_, readable)| *readable)
        {
            if !hear_peer(inner, name, stream) {
                inner.change(|table| table.forget((name, *incarnation), Some(stream)));
            }
        }
        drop(watched);
        inner.change(|table| table.wake_due(Instant::now()));
        accept((inner, &listener), &mut strangers);
    }
}

/// Waits until the workers have ended all that the node has begun, and have ended themselves.
fn end(inner: &Arc<Inner>) {
    loop {
        let ((), next) = inner.look_before_sleep(None, |_| ());
        match inner.rest() {
            Rest::Done(threads) if threads.is_empty() => return,
            Rest::Done(threads) => threads.into_iter().for_each(|thread| _ = thread.join()),
            Rest::Stranded(job) => {
                work::run(inner, job);
                inner.change(|table| table.wake_due(Instant::now()));
            }
            Rest::Busy => {
                let mut nudged = [PollFd::from_borrowed_fd(inner.nudge.as_fd(), PollFlags::IN)];
                // A thread that gives back the end of a link nudges nobody.
                let next = next.into_iter().chain([Instant::now() + FAILED_PAUSE]).min();
                _ = poll(&mut nudged, next.map(|next| timeout(Deadline::at(next))).as_ref());
                inner.nudge.clear();
                inner.change(|table| table.wake_due(Instant::now()));
            }
        }
    }
}

/// The time until a deadline.
fn timeout(deadline: Deadline) -> Timespec {
    let left = deadline.remaining();
    Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() }
}

/// Waits until somebody connects, speaks or leaves, until the node is nudged, or until `next`. Returns which of those
/// watched have to be looked at.
fn wait(
    (inner, listener): (&Inner, &TcpListener),
    strangers: &Strangers,
    watched: &[Watched],
    next: Option<Deadline>,
) -> Vec<bool> {
    let fixed = [inner.nudge.as_fd(), listener.as_fd()];
    let streams = watched.iter().map(|(.., stream)| stream.as_fd());
    let all = fixed.into_iter().chain(streams).chain(strangers.descriptors());
    let mut polled: Vec<_> = all.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
    // An interrupted wait, or one that the system refuses, is one that looks at all.
    let looked = poll(&mut polled, next.map(timeout).as_ref());
    let streams = polled.iter().skip(fixed.len()).take(watched.len());
    streams.map(|fd| looked.is_err() || !fd.revents().is_empty()).collect()
}

/// Hears what a peer says; `false` when it has closed its connection, or says what no node does.
fn hear_peer(inner: &Arc<Inner>, peer: &NodeName, stream: &Arc<TcpStream>) -> bool {
    let mut bytes = [0_u8; 64 * NOTE_BYTES];
    match recv(stream, &mut bytes[..], RecvFlags::DONTWAIT) {
        Ok((0, _)) => false,
        Ok((len, _)) => inner.change(|table| table.hear(peer, stream, &bytes[..len], Instant::now())),
        Err(error) => matches!(error, Errno::AGAIN | Errno::INTR),
    }
}

/// Accepts whoever has connected, and answers those of the job.
fn accept((inner, listener): (&Arc<Inner>, &TcpListener), strangers: &mut Strangers) {
    loop {
        let deadline = Deadline::after(MAKE_WITHIN);
        match strangers.look(listener, &inner.token, First::Request, deadline) {
            Ok(Some((met, said))) => hear(inner, met, &said),
            Ok(None) => return,
            Err(error) => {
                crate::log::error!(%error, "the listener of a KV node does not accept");
                std::thread::sleep(FAILED_PAUSE);
                return;
            }
        }
    }
}

/// Hears the request of a process of the job.
fn hear(inner: &Arc<Inner>, mut met: Met, said: &[u8]) {
    let job = inner.token.fingerprint();
    match Request::decode(said, job) {
        Ok(Request::Introduction { to, from }) => {
            let stream = Arc::new(met.into_stream());
            notice_vanishing(&stream);
            // A node that waits no more has introduced itself again since.
            if !is_open(&stream) {
                return;
            }
            let introduced = inner.change(|table| table.introduced(to, from, Arc::clone(&stream)));
            if let Err(reason) = introduced {
                tell(&stream, &Answer::Refused(reason).encode().unwrap_or_default());
            }
        }
        Ok(Request::Wish(wish)) => match inner.change(|table| table.hear_wish(&wish, Instant::now())) {
            Ok(()) => inner.change(|table| table.jobs.push(Job::Grant(Box::new((met, wish))))),
            Err(reason) => say(&mut met, &Answer::Refused(reason)),
        },
        Err(error) => {
            crate::log::warn!(peer = %met.peer(), %error, "a process of the job asked a KV node for nothing that it knows")
        }
    }
}
