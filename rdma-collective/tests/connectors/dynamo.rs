//! Dynamo's KVBM: the transfer manager of a worker, and the session in which one instance holds blocks and the other
//! one pulls them.

use std::collections::BTreeMap;
use std::collections::VecDeque;
use std::task::Poll;
use std::time::Duration;

use rdma_collective::kv::{BlockShare, HoldKind, PoolUse, Receiving, Request, Sending};
use rdma_core::Deadline;

use super::{Job, Server, look, step_until};
use crate::common::long;
use crate::pair::SHAPE;

/// `SequenceHash`: the name of what a block has. Its number is that of the text.
type SequenceHash = u32;

/// `TransferManager`, of one worker.
struct TransferManager {
    server: Server,
}

/// `TransferCompleteNotification`.
enum Notification {
    Sends(Job<Sending>),
    Receives(Job<Receiving>),
}

/// An end of `execute_transfer`: blocks of this worker, or those of a worker whose metadata was imported.
#[derive(Clone, Copy)]
enum Layout<'a> {
    Local(&'a [u32]),
    Remote(&'a str),
}

impl TransferManager {
    fn register_layout(server: Server) -> Self {
        Self { server }
    }

    fn export_metadata(&self) -> Vec<u8> {
        self.server.node.export()
    }

    /// The handle of the remote layout is the name of its node.
    fn import_metadata(&self, metadata: &[u8]) {
        drop(self.server.node.connect(metadata, long()));
    }

    /// Moves blocks from one layout to the other. Both workers call it, because each names blocks of its own alone:
    /// `id` pairs the two calls, and takes the place of the remote block ids.
    fn execute_transfer(
        &self,
        id: &str,
        from: Layout<'_>,
        to: Layout<'_>,
        notification: u64,
    ) -> Notification {
        let request = Request::new(id).note(&notification.to_le_bytes());
        match (from, to) {
            (Layout::Local(blocks), Layout::Remote(peer)) => {
                Notification::Sends(Job::Begins(self.server.node.push(peer, request, blocks, long())))
            }
            (Layout::Remote(peer), Layout::Local(blocks)) => {
                Notification::Receives(Job::Begins(self.server.node.grant(peer, request, blocks, long())))
            }
            _ => panic!("one end is here, and one is not"),
        }
    }
}

impl Notification {
    /// The notification value of the other end, once all bytes are there.
    fn poll(&mut self) -> Poll<u64> {
        let note = match self {
            Self::Sends(job) => job.poll().map(|sent| sent.unwrap().unwrap().note),
            Self::Receives(job) => job.poll().map(|received| received.unwrap().unwrap().note),
        };
        note.map(|note| u64::from_le_bytes(note.try_into().unwrap()))
    }
}

/// A frame of a session. It goes over Dynamo's own messages. `PullComplete` and `PullAck` are not among them, because a
/// pull and an offer of one id pair by themselves, and the offer ends when the pull has.
#[derive(Debug, PartialEq, Eq)]
enum Frame {
    Commit(Vec<SequenceHash>),
    Available(Vec<SequenceHash>),
    Drained,
    Pull { pull_id: u64, hashes: Vec<SequenceHash> },
    Detach,
}

/// `Session`, of one instance. The frames for the other one wait in `outbox`.
struct Session<'a> {
    of: &'a TransferManager,
    peer: &'static str,
    session_id: u64,
    outbox: VecDeque<Frame>,
    /// Blocks that are held for the peer, each with the share that pins it.
    available: BTreeMap<SequenceHash, (u32, BlockShare)>,
    offers: Vec<(Vec<SequenceHash>, Job<Sending>)>,
    peer_committed: Vec<SequenceHash>,
    peer_available: Vec<SequenceHash>,
    pulls: u64,
    is_detached: bool,
}

impl<'a> Session<'a> {
    fn open(of: &'a TransferManager, peer: &'static str, session_id: u64) -> Self {
        let (outbox, available, offers, peer_committed, peer_available) = Default::default();
        Self {
            of,
            peer,
            session_id,
            outbox,
            available,
            offers,
            peer_committed,
            peer_available,
            pulls: 0,
            is_detached: false,
        }
    }

    fn commit(&mut self, hashes: &[SequenceHash]) {
        self.outbox.push_back(Frame::Commit(hashes.to_vec()));
    }

    /// Pins blocks, and tells the peer that it may pull them.
    fn make_available(&mut self, blocks: &[(SequenceHash, u32)]) {
        for (hash, block) in blocks {
            let pin = self.of.server.pool.share(&[*block]).unwrap();
            self.available.insert(*hash, (*block, pin));
        }
        self.outbox.push_back(Frame::Available(blocks.iter().map(|(hash, _)| *hash).collect()));
    }

    fn finish_availability(&mut self) {
        self.outbox.push_back(Frame::Drained);
    }

    /// Pulls blocks of the peer into blocks of this instance, pair by pair.
    fn pull(&mut self, hashes: &[SequenceHash], destination: &[u32]) -> Job<Receiving> {
        assert!(hashes.iter().all(|hash| self.peer_available.contains(hash)));
        self.pulls += 1;
        self.outbox.push_back(Frame::Pull { pull_id: self.pulls, hashes: hashes.to_vec() });
        let id = format!("{}/{}/{}", self.session_id, self.of.server.node.name(), self.pulls);
        Job::Begins(self.of.server.node.pull(self.peer, &id, destination, long()))
    }

    /// Takes a frame of the peer.
    fn hear(&mut self, frame: Frame) {
        match frame {
            Frame::Commit(hashes) => self.peer_committed.extend(hashes),
            Frame::Available(hashes) => self.peer_available.extend(hashes),
            Frame::Drained => {}
            Frame::Pull { pull_id, hashes } => {
                let blocks: Vec<u32> = hashes.iter().map(|hash| self.available[hash].0).collect();
                let id = format!("{}/{}/{pull_id}", self.session_id, self.peer);
                let offer = self.of.server.node.offer(self.peer, &id, &blocks, long());
                self.offers.push((hashes, Job::Begins(offer)));
            }
            Frame::Detach => self.close(),
        }
    }

    /// Looks at the pulls of the peer, and lets go of what it has.
    fn step(&mut self) {
        let available = &mut self.available;
        let mut is_lost = false;
        self.offers.retain_mut(|(hashes, offer)| {
            let Poll::Ready(ended) = offer.poll() else { return true };
            is_lost |= !matches!(ended, Ok(Ok(_)));
            hashes.iter().for_each(|hash| drop(available.remove(hash)));
            false
        });
        if is_lost {
            self.close();
        }
    }

    /// Ends the session: pins and transfers are given up.
    fn close(&mut self) {
        self.available.clear();
        self.offers.clear();
        self.is_detached = true;
    }
}

/// Delivers the frames of both ends, and has both look at their transfers.
fn step(a: &mut Session<'_>, b: &mut Session<'_>) {
    while let Some(frame) = a.outbox.pop_front() {
        b.hear(frame);
    }
    while let Some(frame) = b.outbox.pop_front() {
        a.hear(frame);
    }
    a.step();
    b.step();
}

/// Workers of a prefill and a decode that know each other's metadata, and may each hold blocks for the other one.
fn workers() -> [TransferManager; 2] {
    let [p, d] =
        ["p", "d"].map(|name| TransferManager::register_layout(Server::new(name, PoolUse::BothToPull)));
    d.import_metadata(&p.export_metadata());
    p.import_metadata(&d.export_metadata());
    [p, d]
}

#[test]
fn a_transfer_moves_whole_blocks_and_notifies_the_other_end() {
    let [p, d] = workers();
    let (texts, at_p, at_d) = ([30, 31], [5, 0], [1, 9]);
    p.server.compute_all(&at_p, &texts);
    let mut received = d.execute_transfer("t", Layout::Remote("p"), Layout::Local(&at_d), 1);
    let mut ends = [None; 2];
    step_until("it waits for the other end", || received.poll().is_pending() && !d.server.are_free(&at_d));
    let mut sent = p.execute_transfer("t", Layout::Local(&at_p), Layout::Remote("d"), 42);
    step_until("both ends have ended", || {
        for (end, notification) in ends.iter_mut().zip([&mut received, &mut sent]) {
            if let Poll::Ready(value) = notification.poll() {
                *end = Some(value);
            }
        }
        ends == [Some(42), Some(1)]
    });
    d.server.assert_has_all(&at_d, &texts);
}

#[test]
fn a_session_pins_blocks_until_each_is_pulled() {
    let [p, d] = workers();
    let (mut holder, mut puller) = (Session::open(&p, "d", 1), Session::open(&d, "p", 1));
    holder.commit(&[20, 21, 22]);
    let mut pulled: Vec<(Job<Receiving>, bool)> = vec![];
    // The first block is available before the others are computed.
    for (blocks, to) in [(&[(20, 4)][..], &[7_u32][..]), (&[(21, 6), (22, 5)], &[3, 2])] {
        for (text, block) in blocks {
            p.server.compute_all(&[*block], &[*text]);
        }
        holder.make_available(blocks);
        step(&mut holder, &mut puller);
        assert!(blocks.iter().all(|(_, block)| p.server.pool.held(*block) == Some(HoldKind::Shared)));
        // In the order of the puller, which is not the holder's.
        let hashes: Vec<SequenceHash> = blocks.iter().rev().map(|(hash, _)| *hash).collect();
        pulled.push((puller.pull(&hashes, to), false));
    }
    holder.finish_availability();
    step_until("all is pulled", || {
        step(&mut holder, &mut puller);
        for (pull, is_done) in &mut pulled {
            if let Poll::Ready(received) = pull.poll() {
                *is_done = received.unwrap().unwrap().verdicts.all_valid();
            }
        }
        pulled.iter().all(|(_, is_done)| *is_done) && holder.available.is_empty()
    });
    assert_eq!(puller.peer_committed, [20, 21, 22]);
    d.server.assert_has_all(&[7, 3, 2], &[20, 22, 21]);
    assert!(p.server.are_free(&[4, 5, 6]));
}

/// `RemotePrefillRequest`: decode has the first blocks, prefill computes the others.
#[test]
fn a_remote_prefill_pulls_the_prefix_of_decode_and_decode_pulls_the_rest() {
    let [p, d] = workers();
    let (mut at_p, mut at_d) = (Session::open(&p, "d", 2), Session::open(&d, "p", 2));
    let (texts, prefix) = ([40, 41, 42], 1);
    let (p_blocks, d_blocks) = ([8, 3, 5], [2, 1, 6]);
    d.server.compute_all(&d_blocks[..prefix], &texts[..prefix]);
    at_d.commit(&texts[..prefix]);
    at_d.make_available(&[(texts[0], d_blocks[0])]);
    at_d.finish_availability();
    step(&mut at_p, &mut at_d);
    let mut there = at_p.pull(&texts[..prefix], &p_blocks[..prefix]);
    step_until("the prefix is there", || {
        step(&mut at_p, &mut at_d);
        matches!(there.poll(), Poll::Ready(Ok(Ok(_))))
    });
    p.server.assert_has_all(&p_blocks[..prefix], &texts[..prefix]);
    p.server.compute_all(&p_blocks[prefix..], &texts[prefix..]);
    at_p.commit(&texts[prefix..]);
    at_p.make_available(&[(texts[1], p_blocks[1]), (texts[2], p_blocks[2])]);
    step(&mut at_p, &mut at_d);
    let mut back = at_d.pull(&texts[prefix..], &d_blocks[prefix..]);
    step_until("the rest is back", || {
        step(&mut at_p, &mut at_d);
        matches!(back.poll(), Poll::Ready(Ok(Ok(_))))
    });
    d.server.assert_has_all(&d_blocks, &texts);
    at_d.outbox.push_back(Frame::Detach);
    step_until("the session has ended", || {
        step(&mut at_p, &mut at_d);
        at_p.is_detached && p.server.are_free(&p_blocks)
    });
}

/// Blocks that are offered come back by themselves; blocks that are only pinned come back with `lifecycle`'s event.
#[test]
fn pins_of_a_puller_that_is_gone_are_free_again() {
    let [p, d] = workers();
    let mut holder = Session::open(&p, "d", 3);
    step_until("they have met", || p.server.node.peers().len() == 1);
    let mut left = p.server.node.left("d");
    holder.make_available(&[(50, 4), (51, 5)]);
    holder.hear(Frame::Pull { pull_id: 1, hashes: vec![50] });
    holder.step();
    assert!(look(&mut left).is_pending() && !p.server.are_free(&[4]) && !p.server.are_free(&[5]));
    drop(d);
    step_until("the offer has ended", || {
        holder.step();
        holder.is_detached
    });
    step_until("the peer has left", || look(&mut left).is_ready());
    assert!(p.server.are_free(&[4, 5]));
}

/// The watchdog of a session. A lease is a deadline, which the holder moves while the session lasts.
#[test]
fn a_lease_is_extended_while_the_puller_says_so_and_ends_when_it_does_not() {
    let [p, d] = workers();
    step_until("they have met", || p.server.node.peers().len() == 1);
    let lease = || Deadline::after(Duration::from_secs(3));
    let mut offer = Job::Begins(p.server.node.offer("d", 1, &[4], lease()));
    step_until("it has begun", || matches!(offer.transfer(), Ok(Some(_))));
    let until = Deadline::after(Duration::from_secs(5));
    while !until.expired() {
        assert!(offer.poll().is_pending(), "the lease is extended");
        let Ok(Some(offer)) = offer.transfer() else { panic!("it has begun") };
        offer.extend(lease()).unwrap();
        std::thread::sleep(Duration::from_millis(100));
    }
    step_until("the lease has ended", || matches!(offer.poll(), Poll::Ready(Ok(Err(_)))));
    assert!(p.server.are_free(&[4]));
    // A pull that comes too late reads nothing.
    let late = d.server.node.pull("p", 1, &[SHAPE.blocks - 1], lease());
    let mut late = Job::Begins(late);
    step_until("it is refused", || matches!(late.poll(), Poll::Ready(Ok(Err(_)))));
}
