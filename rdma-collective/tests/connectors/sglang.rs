//! SGLang's `BaseKVManager`, `BaseKVSender` and `BaseKVReceiver`: one sender and one receiver a request, whose `poll`
//! tells one of five states in each step of the scheduler.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use rdma_collective::kv::{Begun, Blocks, PoolUse, Receiving, Request, Sending};
use rdma_core::Deadline;

use super::{Job, Server, step_until};
use crate::common::long;

/// Pages of a chunk of prefill. SGLang's `chunked_prefill_size` is an option of each server; here both have the same.
const CHUNK: usize = 2;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum KvPoll {
    Failed,
    Bootstrapping,
    WaitingForInput,
    Transferring,
    Success,
}

/// `BaseKVManager`: one for each server.
struct Manager {
    server: Server,
    /// The time for which a request may wait for the other server.
    timeout: Duration,
}

/// Jobs of a request, one a chunk, and where they are.
struct Chunks<K: Begun> {
    manager: Rc<Manager>,
    peer: &'static str,
    room: u64,
    jobs: Vec<Job<K>>,
    state: KvPoll,
    why: Option<String>,
}

impl<K: Begun> Chunks<K>
where
    K::Error: std::error::Error,
{
    fn new(manager: &Rc<Manager>, peer: &'static str, room: u64) -> Self {
        Self {
            manager: Rc::clone(manager),
            peer,
            room,
            jobs: vec![],
            state: KvPoll::Bootstrapping,
            why: None,
        }
    }

    /// The id of the next chunk, alike at both ends.
    fn id(&self) -> String {
        format!("{}/{}", self.room, self.jobs.len())
    }

    fn deadline(&self) -> Deadline {
        Deadline::after(self.manager.timeout)
    }

    fn is_met(&self) -> bool {
        self.manager.server.node.peers().iter().any(|peer| peer.as_str() == self.peer)
    }

    /// Looks at all chunks; `ended` gets the outcome of each. Returns whether any byte has moved.
    fn look(&mut self, mut ended: impl FnMut(K::Outcome)) -> bool {
        let mut moves = false;
        let mut why = None;
        self.jobs.retain_mut(|job| {
            let Poll::Ready(end) = job.poll() else {
                moves |=
                    matches!(job.transfer(), Ok(Some(transfer)) if transfer.progress().bytes_arrived > 0);
                return true;
            };
            match end {
                Ok(Ok(outcome)) => ended(outcome),
                Ok(Err(error)) => why = Some(error.to_string()),
                Err(error) => why = Some(error.to_string()),
            }
            false
        });
        if why.is_some() {
            self.fail(why);
        }
        moves
    }

    /// Fails the request: its other chunks are given up.
    fn fail(&mut self, why: Option<String>) {
        (self.state, self.why) = (KvPoll::Failed, why);
        self.jobs.clear();
    }

    /// A state never goes back, as in SGLang.
    fn advance(&mut self, to: KvPoll) -> KvPoll {
        if self.state != KvPoll::Failed {
            self.state = self.state.max(to);
        }
        self.state
    }
}

/// `BaseKVSender`, of a request at prefill.
struct Sender {
    of: Chunks<Sending>,
    pages: usize,
    sent: usize,
    ended: usize,
    /// The metadata buffer of the request, until the push of the last chunk takes it along.
    metadata: Option<Vec<u8>>,
}

impl Sender {
    fn new(manager: &Rc<Manager>, bootstrap_room: u64) -> Self {
        Self { of: Chunks::new(manager, "d", bootstrap_room), pages: 0, sent: 0, ended: 0, metadata: None }
    }

    fn init(&mut self, num_kv_indices: usize) {
        self.pages = num_kv_indices;
    }

    /// Sends the pages of a chunk. The last one takes the metadata along.
    fn send(&mut self, kv_indices: &[u32]) {
        let id = format!("{}/{}", self.of.room, self.sent / CHUNK);
        self.sent += kv_indices.len();
        let request = Request::new(&id);
        let request = if self.sent == self.pages { request.note_later() } else { request };
        let node = &self.of.manager.server.node;
        let push = node.push(self.of.peer, request, kv_indices, self.of.deadline());
        self.of.jobs.push(Job::Begins(push));
    }

    /// `MetadataBuffers.set_buf`: the first token, its log-probabilities and so on.
    fn set_buf(&mut self, metadata: &[u8]) {
        self.metadata = Some(metadata.to_vec());
    }

    fn give_metadata(&mut self) {
        if self.sent == self.pages
            && let Some(Ok(Some(push))) = self.of.jobs.last_mut().map(Job::transfer)
            && let Some(metadata) = self.metadata.take()
        {
            push.set_note(&metadata).unwrap();
        }
    }

    fn poll(&mut self) -> KvPoll {
        self.give_metadata();
        let mut ended = 0;
        self.of.look(|_| ended += 1);
        self.ended += ended;
        let is_done = self.pages > 0 && self.sent == self.pages && self.of.jobs.is_empty();
        let is_met = self.of.is_met();
        self.of.advance(match self.sent {
            _ if is_done => KvPoll::Success,
            0 if is_met => KvPoll::WaitingForInput,
            0 => KvPoll::Bootstrapping,
            _ => KvPoll::Transferring,
        })
    }

    fn failure_exception(&mut self) -> Option<String> {
        self.of.why.take()
    }

    fn abort(&mut self) {
        self.of.fail(Some("Aborted by AbortReq.".into()));
    }
}

/// `BaseKVReceiver`, of a request at decode.
struct Receiver {
    of: Chunks<Receiving>,
    asked: bool,
    metadata: Vec<u8>,
    bytes: u64,
}

impl Receiver {
    fn new(manager: &Rc<Manager>, bootstrap_room: u64) -> Self {
        Self { of: Chunks::new(manager, "p", bootstrap_room), asked: false, metadata: vec![], bytes: 0 }
    }

    /// Meets prefill, whose blob the bootstrap server has.
    fn init(&mut self, bootstrap: &BTreeMap<&str, Vec<u8>>) {
        drop(self.of.manager.server.node.connect(&bootstrap[self.of.peer], self.of.deadline()));
    }

    /// Grants the pages, in prefill's chunks. The first `decode_prefix_len` are decode's already, and do not move.
    fn send_metadata(&mut self, kv_indices: &[u32], decode_prefix_len: usize) {
        let prefix = &kv_indices[..decode_prefix_len];
        for chunk in kv_indices.chunks(CHUNK) {
            let had: Vec<u32> = chunk.iter().copied().filter(|page| prefix.contains(page)).collect();
            let (node, list) = (&self.of.manager.server.node, Blocks::new(chunk).having(&had));
            let grant = node.grant(self.of.peer, &self.of.id(), list, self.of.deadline());
            self.of.jobs.push(Job::Begins(grant));
        }
        self.asked = true;
    }

    fn poll(&mut self) -> KvPoll {
        let (metadata, bytes) = (&mut self.metadata, &mut self.bytes);
        let moves = self.of.look(|received| {
            assert!(received.verdicts.all_valid());
            metadata.extend(&received.note);
            *bytes += received.bytes;
        });
        let is_done = self.asked && self.of.jobs.is_empty();
        let is_met = self.of.is_met();
        self.of.advance(match () {
            () if is_done => KvPoll::Success,
            () if moves || self.bytes > 0 => KvPoll::Transferring,
            () if is_met => KvPoll::WaitingForInput,
            () => KvPoll::Bootstrapping,
        })
    }

    fn failure_exception(&mut self) -> Option<String> {
        self.of.why.take()
    }

    fn abort(&mut self) {
        self.of.fail(Some("Aborted by AbortReq.".into()));
    }
}

/// Managers of a prefill and a decode, and the bootstrap server with the blob of prefill.
fn managers() -> ([Rc<Manager>; 2], BTreeMap<&'static str, Vec<u8>>) {
    let timeout = Duration::from_secs(60);
    let manager = |name, purpose| Rc::new(Manager { server: Server::new(name, purpose), timeout });
    let (p, d) = (manager("p", PoolUse::Source), manager("d", PoolUse::Destination));
    // `register_to_bootstrap`.
    let bootstrap = BTreeMap::from([("p", p.server.node.export())]);
    ([p, d], bootstrap)
}

#[test]
fn sender_and_receiver_pass_through_all_states_chunk_by_chunk() {
    let ([p, d], bootstrap) = managers();
    let (mut sender, mut receiver) = (Sender::new(&p, 77), Receiver::new(&d, 77));
    assert_eq!([sender.poll(), receiver.poll()], [KvPoll::Bootstrapping; 2]);
    receiver.init(&bootstrap);
    step_until("both have met", || [sender.poll(), receiver.poll()] == [KvPoll::WaitingForInput; 2]);
    let (texts, at_p, at_d) = ([10, 11, 12, 13, 14], [3, 9, 1, 0, 5], [2, 8, 4, 7, 6]);
    receiver.send_metadata(&at_d, 0);
    sender.init(at_p.len());
    sender.set_buf(b"first token");
    let states = RefCell::new(vec![]);
    let mut chunks = at_p.chunks(CHUNK).zip(texts.chunks(CHUNK));
    step_until("both have succeeded", || {
        // The loop of prefill: a chunk is computed and sent, and those that were sent before are looked at.
        if let Some((pages, texts)) = chunks.next() {
            assert_ne!(receiver.poll(), KvPoll::Success);
            p.server.compute_all(pages, texts);
            sender.send(pages);
        }
        states.borrow_mut().push(sender.poll());
        [sender.poll(), receiver.poll()] == [KvPoll::Success; 2]
    });
    assert!(states.borrow().is_sorted() && states.borrow()[0] == KvPoll::Transferring);
    assert_eq!((&receiver.metadata[..], sender.ended), (&b"first token"[..], 3));
    d.server.assert_has_all(&at_d, &texts);
    assert!(p.server.are_free(&at_p) && d.server.are_free(&at_d));
}

#[test]
fn pages_of_the_prefix_that_decode_has_do_not_move() {
    let ([p, d], bootstrap) = managers();
    let (mut sender, mut receiver) = (Sender::new(&p, 78), Receiver::new(&d, 78));
    receiver.init(&bootstrap);
    step_until("both have met", || [sender.poll(), receiver.poll()] == [KvPoll::WaitingForInput; 2]);
    let (texts, at_p, at_d) = ([20, 21, 22, 23], [3, 9, 1, 0], [2, 8, 4, 7]);
    d.server.compute_all(&at_d[..3], &texts[..3]);
    receiver.send_metadata(&at_d, 3);
    p.server.compute_all(&at_p, &texts);
    sender.init(at_p.len());
    at_p.chunks(CHUNK).for_each(|chunk| sender.send(chunk));
    sender.set_buf(b"");
    step_until("both have succeeded", || [sender.poll(), receiver.poll()] == [KvPoll::Success; 2]);
    assert_eq!(receiver.bytes, d.server.pool.layout().block_bytes(), "one page of four has moved");
    d.server.assert_has_all(&at_d, &texts);
}

#[test]
fn an_abort_of_either_end_fails_the_other_one_with_a_reason() {
    let ([p, d], bootstrap) = managers();
    for (room, sender_aborts) in [(1, false), (2, true), (3, false), (4, true)] {
        let (mut sender, mut receiver) = (Sender::new(&p, room), Receiver::new(&d, room));
        receiver.init(&bootstrap);
        step_until("both have met", || [sender.poll(), receiver.poll()] == [KvPoll::WaitingForInput; 2]);
        receiver.send_metadata(&[2, 8, 4], 0);
        sender.init(3);
        sender.send(&[3, 9]);
        sender.send(&[1]);
        // The last chunk stays under way, because its metadata is missing.
        step_until("the first chunk has ended", || {
            [sender.poll(), receiver.poll()] == [KvPoll::Transferring; 2] && sender.ended == 1
        });
        let why = if sender_aborts {
            sender.abort();
            step_until("decode has heard", || receiver.poll() == KvPoll::Failed);
            receiver.failure_exception()
        } else {
            receiver.abort();
            step_until("prefill has heard", || sender.poll() == KvPoll::Failed);
            sender.failure_exception()
        };
        let why = why.unwrap();
        assert!(why.contains("gave up") && why.contains(&format!("{room}/1")), "{why}");
        step_until("all pages are free", || p.server.are_free(&[3, 9, 1]) && d.server.are_free(&[2, 8, 4]));
    }
}

#[test]
fn a_request_that_meets_nobody_fails_at_its_timeout() {
    let ([p, d], bootstrap) = managers();
    let d = Rc::new(Manager { timeout: Duration::from_secs(1), ..Rc::into_inner(d).unwrap() });
    let mut receiver = Receiver::new(&d, 79);
    receiver.init(&bootstrap);
    receiver.send_metadata(&[2], 0);
    let patience = long();
    while receiver.poll() != KvPoll::Failed {
        assert!(receiver.poll() <= KvPoll::WaitingForInput && !patience.expired());
    }
    let why = receiver.failure_exception().unwrap();
    assert!(why.contains("79/0"), "it names the request: {why}");
    step_until("the page is free", || d.server.are_free(&[2]));
    drop(p);
}
