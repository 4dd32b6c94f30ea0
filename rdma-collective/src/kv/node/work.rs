//! The work of a node on threads that may block: introductions, and making and ending links.

use std::net::TcpStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rdma_core::Deadline;
use socket2::{SockRef, TcpKeepalive};

use super::NodeError;
use super::blob::NodeBlob;
use super::inner::Inner;
use super::link_slot::{End, Way};
use super::message::{Answer, Reason, Request, Wish};
use super::table::{Job, MAKE_WITHIN};
use crate::kv::link::Opening;
use crate::kv::{Decode, LinkError, Prefill};
use crate::link::handshake::{self, Met};

/// The pause before a node introduces itself again to one that goes first.
const CROSSED_PAUSE: Duration = Duration::from_millis(20);
/// A peer whose host has vanished is noticed after this silence, and three tries a second apart.
const KEEPALIVE_AFTER: Duration = Duration::from_secs(5);
/// The time in which a link of a peer that has gone ends by itself, with the reason, before it is dropped.
const RETIRE_AFTER: Duration = Duration::from_millis(500);

pub(super) fn run(inner: &Arc<Inner>, job: Job) {
    match job {
        Job::Introduce { peer, deadline } => {
            let introduced = introduce(inner, &peer, deadline);
            if let Err(error) = introduced {
                inner.change(|table| table.fail_meeting(&peer.name, peer.incarnation, &error));
            }
        }
        Job::Make { peer, way, number, deadline } => match make(inner, &peer, (way, number), deadline) {
            Ok(end) => up(inner, &peer, end),
            Err(error) => {
                inner.change(|table| table.link_failed((&peer.name, peer.incarnation), way, &error))
            }
        },
        Job::Grant(asked) => grant(inner, asked.0, &asked.1),
        Job::Retire(end) => retire(end),
        Job::Drop(end) => drop(end),
    }
}

/// Ends a job that no thread can do.
pub(super) fn fail(inner: &Arc<Inner>, job: Job, error: &NodeError) {
    match job {
        Job::Introduce { peer, .. } => {
            inner.change(|table| table.fail_meeting(&peer.name, peer.incarnation, error));
        }
        Job::Make { peer, way, .. } => {
            inner.change(|table| table.link_failed((&peer.name, peer.incarnation), way, error));
        }
        Job::Grant(asked) => {
            let Wish { from, incarnation, way, .. } = &asked.1;
            inner.change(|table| table.link_failed((from, *incarnation), way.at_peer(), error));
        }
        Job::Retire(end) => retire(end),
        Job::Drop(end) => drop(end),
    }
}

/// Introduces this node to a peer, until the two have met.
fn introduce(inner: &Arc<Inner>, peer: &Arc<NodeBlob>, deadline: Deadline) -> Result<(), NodeError> {
    let request = Request::Introduction { to: peer.incarnation, from: inner.own.clone() };
    let started = Instant::now();
    loop {
        let (met, answer) = ask(inner, peer, &request, deadline)?;
        match answer {
            Answer::Welcome(_) => {
                let stream = met.into_stream();
                keep_alive(&stream);
                if inner.change(|table| table.meet(NodeBlob::clone(peer), stream, true)) {
                    inner.nudge.send();
                    return Ok(());
                }
                return Err(NodeError::NameTaken { name: peer.name.clone() });
            }
            Answer::Refused(Reason::Crossed) if !deadline.expired() => {
                std::thread::sleep(CROSSED_PAUSE.min(deadline.remaining()));
                if inner.look(|table| table.has_met(&peer.name, peer.incarnation)) != Some(false) {
                    return Ok(());
                }
            }
            Answer::Refused(Reason::Crossed) => {
                return Err(NodeError::Late { peer: peer.name.clone(), waited: started.elapsed() });
            }
            Answer::Refused(reason) => return Err(refused(inner, peer, reason)),
        }
    }
}

/// Makes a link to a peer.
fn make(
    inner: &Inner,
    peer: &NodeBlob,
    (way, number): (Way, u32),
    deadline: Deadline,
) -> Result<End, NodeError> {
    let unmade = |source: LinkError| NodeError::Link { peer: peer.name.clone(), source: Arc::new(source) };
    let mut opening = open(inner, way).map_err(unmade)?;
    let (from, incarnation) = (inner.own.name.clone(), inner.own.incarnation);
    let blob = opening.exported().to_vec();
    let wish = Wish { to: peer.incarnation, from, incarnation, way, number, blob };
    match ask(inner, peer, &Request::Wish(wish), deadline)? {
        (met, Answer::Welcome(theirs)) => {
            join(inner, &mut opening, way, met, &theirs, deadline).map_err(unmade)
        }
        (_, Answer::Refused(reason)) => Err(refused(inner, peer, reason)),
    }
}

/// Answers a peer's wish for a link, and makes this node's end of it.
fn grant(inner: &Arc<Inner>, met: Met, wish: &Wish) {
    let deadline = Deadline::after(MAKE_WITHIN);
    let mut met = met.until(deadline);
    if let Err(reason) = inner.change(|table| table.hear_wish(wish, Instant::now())) {
        return say(&mut met, &Answer::Refused(reason));
    }
    let way = wish.way.at_peer();
    let peer = (&wish.from, wish.incarnation);
    let made = open(inner, way).and_then(|mut opening| {
        say(&mut met, &Answer::Welcome(opening.exported().to_vec()));
        join(inner, &mut opening, way, met, &wish.blob, deadline)
    });
    match made {
        Ok(end) => {
            if let Err(end) = inner.change(|table| table.link_up(peer, end)) {
                retire(end);
            }
        }
        Err(source) => {
            let error = NodeError::Link { peer: wish.from.clone(), source: Arc::new(source) };
            crate::log::warn!(%error, "a link that a peer has asked for was not made");
            inner.change(|table| table.link_failed(peer, way, &error));
        }
    }
}

fn up(inner: &Arc<Inner>, peer: &NodeBlob, end: End) {
    if let Err(end) = inner.change(|table| table.link_up((&peer.name, peer.incarnation), end)) {
        retire(end);
    }
}

/// Opens this node's end of a link.
fn open(inner: &Inner, way: Way) -> Result<Opening, LinkError> {
    let pool = match way {
        Way::Out => inner.source.as_ref(),
        Way::In => inner.destination.as_ref(),
    };
    let pool = pool.ok_or(LinkError::OtherEngine)?;
    Opening::new(&inner.engine, pool, pool.purpose(), &inner.token, &inner.link)
}

fn join(
    inner: &Inner,
    opening: &mut Opening,
    way: Way,
    met: Met,
    theirs: &[u8],
    deadline: Deadline,
) -> Result<End, LinkError> {
    let link = opening.join_over(met, theirs, deadline)?;
    let (engine, options) = (&inner.engine, &inner.link);
    Ok(match way {
        Way::Out => End::Out(Arc::new(Prefill::over(link, engine, opening.pool(), options))),
        Way::In => End::In(Arc::new(Decode::over(link, engine, opening.pool(), options))),
    })
}

/// Dials a peer, and returns its answer to a request.
fn ask(
    inner: &Inner,
    peer: &NodeBlob,
    request: &Request,
    deadline: Deadline,
) -> Result<(Met, Answer), NodeError> {
    let gone = || NodeError::Gone { peer: peer.name.clone() };
    if peer.process.ends_within(Duration::ZERO) {
        return Err(gone());
    }
    let request = request.encode()?;
    let mut last = None;
    for (number, address) in peer.addresses.iter().enumerate() {
        let share = deadline.remaining() / (peer.addresses.len() - number) as u32;
        let asked = handshake::connect(*address, &inner.token, Deadline::after(share)).and_then(|met| {
            let mut met = met.until(deadline);
            met.say(&request)?;
            let answer = met.hear()?;
            Ok((met, answer))
        });
        match asked {
            Ok((met, answer)) => return Ok((met, Answer::decode(&answer)?)),
            Err(error) => last = Some(error),
        }
        if peer.process.ends_within(Duration::ZERO) {
            return Err(gone());
        }
    }
    match last {
        Some(source) => Err(NodeError::Unreachable { peer: peer.name.clone(), source: Arc::new(source) }),
        None => Err(gone()),
    }
}

/// The reason of a refusal, as this side tells it.
fn refused(inner: &Inner, peer: &NodeBlob, reason: Reason) -> NodeError {
    let peer = peer.name.clone();
    match reason {
        Reason::NameTaken => NodeError::NameTaken { name: inner.own.name.clone() },
        Reason::Gone => NodeError::Gone { peer },
        Reason::Full => NodeError::Full { node: peer, max: 0 },
        Reason::Unknown => NodeError::Left { peer },
        Reason::Crossed => NodeError::Violation { peer, what: "a refusal" },
        Reason::Unfit => NodeError::NothingToMove { own: inner.own.name.clone(), peer },
        Reason::Failed => {
            NodeError::Violation { peer, what: "the peer could not make its end of the link; see its log" }
        }
    }
}

/// Answers a node that waits for it. One that has gone meanwhile notices by itself.
pub(super) fn say(met: &mut Met, answer: &Answer) {
    let said = answer.encode().map_err(NodeError::from).map(|bytes| met.say(&bytes));
    if !matches!(said, Ok(Ok(()))) {
        crate::log::debug!(peer = %met.peer(), "a node went away before it was answered");
    }
}

/// Has the kernel notice when the host of a connection's other end vanishes.
pub(super) fn keep_alive(stream: &TcpStream) {
    let keepalive =
        TcpKeepalive::new().with_time(KEEPALIVE_AFTER).with_interval(Duration::from_secs(1)).with_retries(3);
    if let Err(error) = SockRef::from(stream).set_tcp_keepalive(&keepalive) {
        crate::log::warn!(%error, "cannot watch the connection of a peer: a host that vanishes is noticed by the next transfer only");
    }
}

/// Ends a link, unless somebody begins a transfer on it just now, who ends it then.
pub(super) fn retire(end: End) {
    let until = Instant::now() + RETIRE_AFTER;
    // The transfers end with the reason, which the engine is about to find.
    while !end.is_over() && end.is_used() && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(5));
    }
    drop(end.last());
}
