//! The work of a node on threads that may block: introductions, and making and ending links.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rdma_core::Deadline;

use super::NodeError;
use super::blob::NodeBlob;
use super::inner::Inner;
use super::jobs::{Job, LinkName};
use super::link_slot::{End, Way};
use super::message::{Answer, Reason, Request, Wish};
use super::table::MAKE_WITHIN;
use crate::bootstrap::notice_vanishing;
use crate::kv::link::Opening;
use crate::kv::{Decode, LinkError, LinkOptions, PoolUse, Prefill};
use crate::link::handshake::{self, Met};
use crate::link::{HandshakeError, NamedPeer, PeerName};

/// The time of one try to introduce this node, and the pause before the next one.
const TRY_WITHIN: Duration = Duration::from_secs(1);
const TRY_PAUSE: Duration = Duration::from_millis(20);
/// The time in which a link of a peer that has gone ends by itself, with the reason, before it is dropped.
const RETIRE_AFTER: Duration = Duration::from_millis(500);

pub(super) fn run(inner: &Arc<Inner>, job: Job) {
    match job {
        Job::Introduce { peer, tries } => introduce(inner, peer, tries),
        Job::Make { peer, link, deadline, tries } => {
            let left = rails(inner).saturating_sub(tries).max(1);
            let made = make(inner, &peer, link, (deadline, left));
            let on_the_next = left > 1 && is_of_the_rail(&made);
            // A crowd of strangers may have pushed the connection out before the wish was heard.
            if (is_lost(&made) || on_the_next) && deadline.remaining() > TRY_PAUSE {
                made.as_ref().err().into_iter().for_each(warn_unmade);
                std::thread::sleep(TRY_PAUSE);
                let tries = tries + u32::from(on_the_next);
                if inner.change(|table| table.make_again(&peer, link, (deadline, tries))) {
                    return;
                }
            }
            put(inner, (&peer.name, peer.incarnation), link, made);
        }
        Job::Grant(asked) => {
            let (met, wish) = *asked;
            let link = LinkName { way: wish.way.at_peer(), number: wish.number };
            let made = grant(inner, met, &wish, link);
            inner.change(|table| table.granted(&wish));
            match made {
                // The peer tries the next rail, or says that it has tried them all.
                Err(error) if rails(inner) > 1 => {
                    warn_unmade(&error);
                    inner.change(|table| table.want_again((&wish.from, wish.incarnation), link));
                }
                made => put(inner, (&wish.from, wish.incarnation), link, made),
            }
        }
        Job::Retire(end) => retire(end),
        Job::EndWithPeer(end) => {
            end.end_with_peer();
            retire(end);
        }
        Job::Drop(end) => drop(end),
    }
}

/// Ends a job that no thread can do.
pub(super) fn fail(inner: &Arc<Inner>, job: &Job, error: &NodeError) {
    inner.change(|table| match job {
        Job::Introduce { peer, .. } => table.fail_meeting(peer, error),
        Job::Make { peer, link, .. } => table.link_failed((&peer.name, peer.incarnation), *link, error),
        Job::Grant(asked) => {
            let wish = &asked.1;
            table.granted(wish);
            let link = LinkName { way: wish.way.at_peer(), number: wish.number };
            table.link_failed((&wish.from, wish.incarnation), link, error);
        }
        Job::Retire(_) | Job::EndWithPeer(_) | Job::Drop(_) => {}
    });
}

/// The outcome of one try to introduce this node.
enum Tried {
    /// The two have met, or need not meet any more.
    Done,
    /// The reason to try again; `None` when the peer goes first.
    Again(Option<NodeError>),
    Failed(NodeError),
}

/// Introduces this node to a peer once, and has it done again if that may help.
fn introduce(inner: &Arc<Inner>, peer: Arc<NodeBlob>, tries: usize) {
    let error = match try_to_introduce(inner, &peer, tries) {
        Tried::Done => return,
        Tried::Failed(error) => error,
        Tried::Again(error) => {
            // The deadline may have become a later one meanwhile.
            let Some(until) = inner.look(|table| table.dialing(&peer)) else { return };
            if !until.expired() {
                std::thread::sleep(TRY_PAUSE.min(until.remaining()));
                let tries = tries.wrapping_add(1);
                return inner.change(|table| table.jobs.push(Job::Introduce { peer, tries }));
            }
            error.unwrap_or_else(|| NodeError::Late { peer: peer.name.clone(), waited: Duration::ZERO })
        }
    };
    inner.change(|table| table.fail_meeting(&peer, &error));
}

fn try_to_introduce(inner: &Arc<Inner>, peer: &NodeBlob, tries: usize) -> Tried {
    let Some(until) = inner.look(|table| table.dialing(peer)) else { return Tried::Done };
    if peer.process.ends_within(Duration::ZERO) {
        return Tried::Failed(NodeError::Gone { peer: peer.name.clone() });
    }
    let Some(address) = peer.addresses.get(tries % peer.addresses.len().max(1)).copied() else {
        return Tried::Failed(NodeError::Gone { peer: peer.name.clone() });
    };
    let deadline = until.min(Deadline::after(TRY_WITHIN));
    let request = Request::Introduction { to: peer.incarnation, from: inner.own.clone() };
    let met = match handshake::connect(address, &inner.token, deadline) {
        Ok(met) => met,
        Err(source) => return Tried::Again(Some(unreachable(peer, source))),
    };
    if !inner.change(|table| table.asks(peer, true)) {
        return Tried::Done;
    }
    let asked = ask(met, peer, &request, deadline);
    // A welcome counts as asked until the two have met: the peer's own introduction would come between.
    if !matches!(asked, Ok((_, Answer::Welcome(_)))) {
        inner.change(|table| table.asks(peer, false));
    }
    match asked {
        Err(error @ NodeError::Unreachable { .. }) => Tried::Again(Some(error)),
        Err(error) => Tried::Failed(error),
        Ok((met, Answer::Welcome(_))) => {
            let stream = met.into_stream();
            notice_vanishing(&stream);
            if inner.change(|table| table.welcomed(peer, Arc::new(stream), address)) {
                // The node's thread is to watch the connection.
                inner.nudge.send();
            }
            Tried::Done
        }
        Ok((_, Answer::Refused(Reason::Crossed))) => Tried::Again(None),
        Ok((_, Answer::Refused(reason))) => Tried::Failed(refused(inner, peer, reason)),
    }
}

fn unreachable(peer: &NodeBlob, source: HandshakeError) -> NodeError {
    NodeError::Unreachable { peer: peer.name.clone(), source: Arc::new(source) }
}

/// Says a request to a peer, and hears its answer.
fn ask(met: Met, peer: &NodeBlob, request: &Request, deadline: Deadline) -> Result<(Met, Answer), NodeError> {
    let mut met = met.until(deadline);
    let request = request.encode()?;
    let answer = met.say(&request).and_then(|()| met.hear()).map_err(|source| unreachable(peer, source))?;
    let violation =
        |_| NodeError::Violation { peer: peer.name.clone(), what: "it answers what no node does" };
    Ok((met, Answer::decode(&answer).map_err(violation)?))
}

/// Makes a link to a peer, which was met at an address that it listens at. So many rails are `left` to try, this one
/// included, and each has its share of the time.
fn make(
    inner: &Inner,
    peer: &NodeBlob,
    link: LinkName,
    (deadline, left): (Deadline, u32),
) -> Result<End, NodeError> {
    let unmade = |source| NodeError::Link { peer: peer.name.clone(), source: Arc::new(source) };
    let gone = || NodeError::Left { peer: peer.name.clone() };
    let address: SocketAddr = inner.look(|table| table.dialed_at(peer)).ok_or_else(gone)?;
    let mut opening = open(inner, peer.incarnation, link).map_err(unmade)?;
    let (from, incarnation) = (inner.own.name.clone(), inner.own.incarnation);
    let blob = opening.exported().to_vec();
    let LinkName { way, number } = link;
    let wish = Wish { to: peer.incarnation, from, incarnation, way, number, blob };
    let share = Deadline::after(deadline.remaining() / left);
    let met = handshake::connect(address, &inner.token, share).map_err(|source| {
        if peer.process.ends_within(Duration::ZERO) { gone() } else { unreachable(peer, source) }
    })?;
    match ask(met, peer, &Request::Wish(wish), share)? {
        (met, Answer::Welcome(theirs)) => {
            join(inner, &mut opening, (&peer.name, way), (met, &theirs), share).map_err(unmade)
        }
        (_, Answer::Refused(reason)) => Err(refused(inner, peer, reason)),
    }
}

/// Whether the connection ended before the peer answered.
fn is_lost(made: &Result<End, NodeError>) -> bool {
    matches!(made, Err(NodeError::Unreachable { source, .. }) if matches!(**source, HandshakeError::Lost { .. }))
}

/// Whether another rail may do, because this one did not or nobody knows why there is no link.
fn is_of_the_rail(made: &Result<End, NodeError>) -> bool {
    match made {
        Err(NodeError::Link { source, .. }) => matches!(**source, LinkError::Setup(_)),
        Err(NodeError::LinkUnmade { .. } | NodeError::Unreachable { .. }) => true,
        _ => false,
    }
}

/// Makes this node's end of the link that a peer has wished for.
fn grant(inner: &Inner, met: Met, wish: &Wish, link: LinkName) -> Result<End, NodeError> {
    let deadline = Deadline::after(MAKE_WITHIN);
    let mut met = met.until(deadline);
    let made = match open(inner, wish.incarnation, link) {
        Ok(mut opening) => {
            say(&mut met, &Answer::Welcome(opening.exported().to_vec()));
            join(inner, &mut opening, (&wish.from, link.way), (met, &wish.blob), deadline)
        }
        Err(error) => {
            say(&mut met, &Answer::Refused(Reason::Failed));
            Err(error)
        }
    };
    made.map_err(|source| NodeError::Link { peer: wish.from.clone(), source: Arc::new(source) })
}

/// Puts a link that was made into the table, or tells those who wait why it was not.
fn put(inner: &Arc<Inner>, peer: (&super::NodeName, u64), link: LinkName, made: Result<End, NodeError>) {
    match made {
        Ok(end) => {
            if let Err(end) = inner.change(|table| table.link_up(peer, link.number, end)) {
                retire(end);
            }
        }
        Err(error) => {
            warn_unmade(&error);
            inner.change(|table| table.link_failed(peer, link, &error));
        }
    }
}

fn warn_unmade(error: &NodeError) {
    crate::log::warn!(%error, "a link between two KV nodes was not made");
}

/// The number of rails, which is 8 at most.
fn rails(inner: &Inner) -> u32 {
    inner.engine.contexts().len() as u32
}

/// The rail of a link, as a number that both nodes count alike; each takes it modulo its own number of rails.
///
/// The incarnations are random, so that links of many peers spread. The links of two nodes in both directions are on
/// rails side by side, and so are those of consecutive numbers: a link whose rail has failed is made again on the next.
fn rail(own: u64, peer: u64, LinkName { way, number }: LinkName) -> u64 {
    let is_forth = (own < peer) == (way == Way::Out);
    own.wrapping_add(peer).wrapping_add(number.into()).wrapping_add(is_forth.into())
}

/// Opens this node's end of a link.
fn open(inner: &Inner, peer: u64, link: LinkName) -> Result<Opening, LinkError> {
    let needed = match link.way {
        Way::Out => PoolUse::Source,
        Way::In => PoolUse::Destination,
    };
    // The table asks for links of pools alone that there are.
    let pool = inner.pool(link.way).ok_or(LinkError::OtherEngine)?;
    // The cast is exact: the remainder is below 8.
    let rail = (rail(inner.own.incarnation, peer, link) % u64::from(rails(inner))) as usize;
    let options = LinkOptions { rail, ..inner.link.clone() };
    Opening::new(&inner.engine, &pool, needed, &inner.token, &options)
}

fn join(
    inner: &Inner,
    opening: &mut Opening,
    (peer, way): (&super::NodeName, Way),
    (met, theirs): (Met, &[u8]),
    deadline: Deadline,
) -> Result<End, LinkError> {
    let address = met.peer();
    let mut link = opening.join_over(met, theirs, deadline)?;
    link.peer = PeerName::Node(Arc::new(NamedPeer { name: peer.as_str().to_owned(), address }));
    let (engine, options) = (&inner.engine, &inner.link);
    Ok(match way {
        Way::Out => End::Out(Arc::new(Prefill::over(link, engine, opening.pool(), options))),
        Way::In => End::In(Arc::new(Decode::over(link, engine, opening.pool(), options))),
    })
}

/// The reason of a refusal, as this side tells it.
fn refused(inner: &Inner, peer: &NodeBlob, reason: Reason) -> NodeError {
    let peer = peer.name.clone();
    match reason {
        Reason::NameTaken => NodeError::NameTaken { name: inner.own.name.clone() },
        Reason::Gone => NodeError::Gone { peer },
        Reason::Full => NodeError::Full { node: peer, max: 0 },
        Reason::Unknown => NodeError::Left { peer },
        Reason::Crossed => NodeError::Violation { peer, what: "it lets a link cross another" },
        Reason::Unfit => NodeError::Violation { peer, what: "it says that the pools do not go together" },
        Reason::Failed => NodeError::LinkUnmade { peer },
    }
}

/// Answers a node that waits for it. One that has gone meanwhile notices by itself.
pub(super) fn say(met: &mut Met, answer: &Answer) {
    let said = answer.encode().map_err(NodeError::from).map(|bytes| met.say(&bytes));
    if !matches!(said, Ok(Ok(()))) {
        crate::log::debug!(peer = %met.peer(), "a node went away before it was answered");
    }
}

/// Ends a link, unless somebody begins a transfer on it just now, who ends it then.
fn retire(end: End) {
    let until = Instant::now() + RETIRE_AFTER;
    // The transfers end with the reason, which the engine is about to find.
    while !end.is_over() && end.is_used() && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(5));
    }
    drop(end.last());
}

#[cfg(test)]
mod tests;
