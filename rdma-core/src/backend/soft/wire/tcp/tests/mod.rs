//! Two ends of the wire over real sockets, each with a scripted state that lists what happens.

mod sharing;
mod strangers;
mod traffic;

use std::collections::{HashSet, VecDeque};
use std::net::{Ipv4Addr, TcpStream};

use super::super::{Right, Token};
use super::*;
use crate::backend::soft::engine::message::RequestOp;
use crate::{Gid, QpNum};

/// A scripted state that records every call.
#[derive(Default)]
struct Scripted {
    qps: SlotMap<QpRef, ()>,
    /// The hellos that are accepted, and the queue pair of each.
    takes: Vec<(Hello, QpRef)>,
    revoked: HashSet<u64>,
    /// Serials of requests that are carried out, and whose payload is therefore revoked.
    done: HashSet<u64>,
    /// The memory of placements; the token of a placement is its address.
    target: Vec<u8>,
    requests: Vec<Request>,
    replies: Vec<Reply>,
    placed: Vec<u32>,
    moved: usize,
    to_send: VecDeque<(QpRef, Reply, Option<Payload>)>,
    placing: Option<Request>,
    silent: bool,
}

impl Scripted {
    fn token(qp: QpRef, serial: u64) -> Token {
        Token { qp, right: Right::Placing { serial } }
    }

    fn answer(&mut self, qp: QpRef, request: &Request) {
        if !self.silent {
            self.to_send.push_back((qp, Reply { psn: request.psn, kind: ReplyKind::Ack, len: 0 }, None));
        }
    }
}

impl Sink for Scripted {
    fn accept(&mut self, hello: &Hello) -> Option<QpRef> {
        self.takes.iter().find(|(it, _)| it == hello).map(|(_, qp)| *qp)
    }

    fn request(&mut self, _: Instant, qp: QpRef, request: &Request) -> Option<Payload> {
        self.requests.push(*request);
        let (at, len) = (request.remote_addr as usize, request.len);
        if request.op == RequestOp::Read {
            let addr = self.target[at..].as_ptr().expose_provenance() as u64;
            let token = Token { qp, right: Right::Requested { serial: request.psn.into() } };
            let reply = Reply { psn: request.psn, kind: ReplyKind::ReadData, len };
            self.to_send.push_back((qp, reply, Some(Payload { token, addr, len })));
            return None;
        }
        let target = self.target.get_mut(at..at + len as usize)?;
        let addr = target.as_mut_ptr().expose_provenance() as u64;
        self.placing = Some(*request);
        Some(Payload { token: Self::token(qp, request.psn.into()), addr, len })
    }

    fn reply(&mut self, _: Instant, _: QpRef, reply: &Reply) -> Option<Payload> {
        self.replies.push(*reply);
        None
    }

    fn placed(&mut self, _: Instant, token: Token) {
        let request = self.placing.take().unwrap();
        assert_eq!(token, Self::token(token.qp, request.psn.into()));
        self.placed.push(request.psn);
        self.answer(token.qp, &request);
    }

    fn still_valid(&self, token: Token) -> bool {
        let (Right::Requested { serial } | Right::Placing { serial }) = token.right else { return false };
        !self.revoked.contains(&serial) && !self.done.contains(&serial)
    }

    fn carried_out(&self, token: Token) -> bool {
        matches!(token.right, Right::Requested { serial } if self.done.contains(&serial))
    }

    fn moving(&mut self, _: Instant, _: QpRef) {
        self.moved += 1;
    }
}

/// A request for `len` bytes from offset 0 of the target on, which asks for no acknowledgement.
fn request(op: RequestOp, psn: u32, len: u32) -> Request {
    Request { psn, op, imm: None, remote_addr: 0, rkey: 7, len, ack_req: false }
}

/// A process: a TCP wire and its scripted state.
struct End {
    epoll: Arc<OwnedFd>,
    tcp: Tcp,
    state: Scripted,
    gid: Gid,
    qp: QpRef,
    device: DeviceRef,
}

impl End {
    fn new(num: u8) -> Self {
        let epoll = Arc::new(epoll::create(epoll::CreateFlags::CLOEXEC).unwrap());
        let mut tcp = Tcp::new(Arc::clone(&epoll), Arc::new(HeldAcks::new()));
        let device = SlotMap::<DeviceRef, ()>::with_key().insert(());
        let port = tcp.listen(device, SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0)).unwrap();
        let [p0, p1] = port.to_be_bytes();
        let gid = Gid([0xfd, b's', b'o', b'f', b't', 0, p0, p1, num, 0, 0, 0, 127, 0, 0, 1]);
        let mut state = Scripted { target: vec![0; 4 << 20], ..Scripted::default() };
        let qp = state.qps.insert(());
        Self { epoll, tcp, state, gid, qp, device }
    }

    fn hello_to(&self, peer: &Self) -> Hello {
        Hello {
            source_gid: self.gid,
            source_qp: QpNum(self.gid.0[8].into()),
            destination_gid: peer.gid,
            destination_qp: QpNum(peer.gid.0[8].into()),
        }
    }

    /// Accepts the peer's requester, and connects this one's.
    fn join(&mut self, peer: &Self) {
        let hello = self.hello_to(peer);
        self.state.takes.push((peer.hello_to(self), self.qp));
        self.tcp.connect(self.device, self.qp, &hello);
    }

    fn pair() -> (Self, Self) {
        let (mut a, mut b) = (Self::new(1), Self::new(2));
        a.join(&b);
        b.join(&a);
        (a, b)
    }

    /// Runs one pass of a driver.
    fn turn(&mut self) {
        self.turn_at(Instant::now());
    }

    fn turn_at(&mut self, now: Instant) {
        let mut events = Vec::with_capacity(16);
        let soon = rustix::event::Timespec { tv_sec: 0, tv_nsec: 1_000_000 };
        epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut events), Some(&soon)).unwrap();
        for event in events {
            self.tcp.ready(now, event.data.u64(), &mut self.state);
            self.send_replies();
        }
        self.tcp.flush(now, &mut self.state);
    }

    fn send_replies(&mut self) {
        for (qp, reply, payload) in self.state.to_send.drain(..) {
            self.tcp.enqueue_reply(qp, &reply, payload);
        }
    }

    /// Queues a write of `source` to offset `at` of the peer's target, which asks for its acknowledgement.
    fn write(&mut self, psn: u32, source: &[u8], at: usize) {
        self.write_asking(psn, source, at, true);
    }

    fn write_asking(&mut self, psn: u32, source: &[u8], at: usize, ack_req: bool) {
        let len = source.len() as u32;
        let request = Request { remote_addr: at as u64, ack_req, ..request(RequestOp::Write, psn, len) };
        let addr = source.as_ptr().expose_provenance() as u64;
        let right = Right::Requested { serial: psn.into() };
        let payload = Payload { token: Token { qp: self.qp, right }, addr, len };
        self.tcp.enqueue_request(self.qp, &request, (len > 0).then_some(payload));
    }

    fn connections(&self) -> usize {
        self.tcp.sockets.values().filter(|socket| !matches!(socket.kind, Kind::Listener)).count()
    }

    /// A connection from something that is no requester of this library.
    fn stranger(&self) -> TcpStream {
        TcpStream::connect(gid::listens_at(self.gid).unwrap()).unwrap()
    }
}

/// Turns both until `done`; fails after a bounded wait instead of hanging.
fn until(a: &mut End, b: &mut End, mut done: impl FnMut(&End, &End) -> bool) {
    let begun = Instant::now();
    while !done(a, b) {
        a.turn();
        b.turn();
        assert!(begun.elapsed() < Duration::from_secs(60), "nothing more happens");
    }
}

/// Checks that a message goes from `a` to `b` and is acknowledged.
fn assert_works(a: &mut End, b: &mut End) {
    let source = vec![0x5a; 100_000];
    b.state.target[..source.len()].fill(0);
    let (placed, replies) = (b.state.placed.len(), a.state.replies.len());
    a.write(0xff_0000, &source, 0);
    until(a, b, |a, b| b.state.placed.len() > placed && a.state.replies.len() > replies);
    assert!(b.state.target[..source.len()] == source);
}
