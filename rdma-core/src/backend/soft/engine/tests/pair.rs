//! A test pair: two queue pairs and the network between them, in simulated time.

use std::time::{Duration, Instant};

use super::super::effect::{Buffer, Effect};
use super::super::keys::{Domain, KeyTable};
use super::super::message::{Reply, Request};
use super::super::requester::{Limits, Requester};
use super::super::responder::{Responder, Rules, Verdict};
use crate::backend::interface::{RawCompletion, RawOpcode, RawRecv, RawSend};
use crate::backend::soft::fault::Injected;
use crate::{Access, RnrRetry};

/// The address of each end's memory.
pub(super) const BASE: u64 = 0x10_0000;
/// Bytes of each memory.
pub(super) const BYTES: usize = 4096;
pub(super) const KEY: u32 = 0x5eed;
const DOMAIN: Domain = Domain(1);
/// Depth of the queues.
pub(super) const DEPTH: usize = 64;
const LATENCY: Duration = Duration::from_micros(10);
/// Steps after which a run is taken to be endless.
const STEPS_MAX: usize = 200_000;

/// A queue pair with its memory.
pub(super) struct End {
    pub(super) requester: Requester,
    pub(super) responder: Responder,
    pub(super) keys: KeyTable,
    pub(super) memory: Vec<u8>,
    pub(super) sends: Vec<RawCompletion>,
    pub(super) receives: Vec<RawCompletion>,
}

#[derive(Clone)]
enum Message {
    Request(Request, Vec<u8>),
    Reply(Reply, Vec<u8>),
}

/// The faults of the network, in percent of the messages.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Network {
    pub(super) lost: u64,
    pub(super) twice: u64,
    pub(super) late: u64,
    pub(super) seed: u64,
}

pub(super) struct Pair {
    pub(super) ends: [End; 2],
    pub(super) now: Instant,
    flying: Vec<(Instant, usize, Message)>,
    network: Network,
}

impl End {
    fn new(psn: u32, peer_psn: u32, access: Access, limits: Limits) -> Self {
        let mut keys = KeyTable::default();
        let rights = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ;
        let Ok(_) =
            keys.insert(DOMAIN, BASE, BYTES as u64, rights, || Ok::<_, std::convert::Infallible>(KEY));
        let mut requester = Requester::new(DEPTH);
        let mut responder = Responder::new(DEPTH);
        responder.start(peer_psn, Rules { access, rnr_timer: 10 });
        requester.start(psn, limits);
        Self { requester, responder, keys, memory: vec![0; BYTES], sends: vec![], receives: vec![] }
    }

    fn bytes(&mut self, addr: u64, len: u32) -> &mut [u8] {
        let start = (addr - BASE) as usize;
        &mut self.memory[start..start + len as usize]
    }

    /// Moves to ERR, as a queue pair does when one of its halves fails.
    fn fail(&mut self) {
        self.requester.fail(None);
        self.responder.fail();
        while let Some(done) = self.responder.next_flushed() {
            self.receives.push(done);
        }
    }
}

pub(super) fn limits() -> Limits {
    Limits {
        ack_timeout: Duration::from_millis(1),
        // Losses must not end a run, unless a test lowers this.
        retry_cnt: 255,
        rnr_retry: RnrRetry::Unlimited,
        max_rd_atomic: 4,
    }
}

pub(super) fn send(opcode: RawOpcode, local: u64, len: u32, remote: u64) -> RawSend {
    RawSend {
        wr_id: 0,
        opcode,
        signalled: true,
        inline: false,
        addr: BASE + local,
        len,
        lkey: KEY,
        remote_addr: BASE.wrapping_add(remote),
        rkey: KEY,
        imm: 0,
        hint: crate::memory::CacheHint::Cached,
    }
}

impl Pair {
    pub(super) fn new(network: Network, psn: u32) -> Self {
        Self::with_limits(network, psn, limits())
    }

    pub(super) fn with_limits(network: Network, psn: u32, limits: Limits) -> Self {
        let access = Access::REMOTE_WRITE | Access::REMOTE_READ;
        let other = psn ^ 0x5555;
        let ends = [End::new(psn, other, access, limits), End::new(other, psn, access, limits)];
        Self { ends, now: Instant::now(), flying: Vec::new(), network }
    }

    pub(super) fn post(&mut self, end: usize, send: RawSend) {
        self.ends[end].requester.post(send).expect("room in the send queue");
        self.pump(end);
    }

    pub(super) fn post_recv(&mut self, end: usize, wr_id: u64, addr: u64, len: u32) {
        let recv = RawRecv { wr_id, addr: BASE + addr, len, lkey: KEY };
        self.ends[end].responder.post(recv).expect("room in the receive queue");
        if self.ends[end].requester.is_error() {
            self.ends[end].fail();
        }
    }

    fn chance(&mut self, percent: u64) -> bool {
        // A linear congruence is chance enough here; its high bits are the good ones.
        self.network.seed =
            self.network.seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.network.seed >> 33) % 100 < percent
    }

    fn launch(&mut self, to: usize, message: Message) {
        let copies =
            if self.chance(self.network.lost) { 0 } else { 1 + usize::from(self.chance(self.network.twice)) };
        for _ in 0..copies {
            let late = if self.chance(self.network.late) { 5 } else { 0 };
            self.flying.push((self.now + LATENCY * (1 + late), to, message.clone()));
        }
    }

    fn pump(&mut self, end: usize) {
        loop {
            let here = &mut self.ends[end];
            let Some(effect) = here.requester.poll_effect(self.now, &here.keys, DOMAIN) else { break };
            match effect {
                Effect::Rewind => {}
                Effect::Complete(done) => here.sends.push(done),
                Effect::Transmit { request, payload } => {
                    let bytes = payload.map_or_else(Vec::new, |it| here.bytes(it.addr, it.len).to_vec());
                    self.launch(1 - end, Message::Request(request, bytes));
                }
            }
        }
        if self.ends[end].requester.is_error() {
            self.ends[end].fail();
        }
    }

    fn deliver(&mut self, to: usize, message: Message) {
        match message {
            Message::Request(request, payload) => self.deliver_request(to, &request, &payload),
            Message::Reply(reply, payload) => {
                let (now, here) = (self.now, &mut self.ends[to]);
                if let Some(Buffer { addr, len, serial }) = here.requester.handle_reply(now, &reply) {
                    here.bytes(addr, len).copy_from_slice(&payload);
                    here.requester.landed(now, serial);
                }
                self.pump(to);
            }
        }
    }

    fn deliver_request(&mut self, to: usize, request: &Request, payload: &[u8]) {
        let here = &mut self.ends[to];
        let mut verdict = here.responder.handle_request(request, Injected::Deliver, &here.keys, DOMAIN);
        if let Verdict::Place { addr, len, serial } = verdict {
            here.bytes(addr, len).copy_from_slice(payload);
            verdict = here.responder.placed(serial, &here.keys);
        }
        let (reply, receive, refused) = match verdict {
            Verdict::Silence => return,
            Verdict::Place { .. } => unreachable!("placed says what comes of it"),
            Verdict::Serve { reply, addr, .. } => {
                let bytes = if reply.len == 0 { vec![] } else { here.bytes(addr, reply.len).to_vec() };
                return self.launch(1 - to, Message::Reply(reply, bytes));
            }
            Verdict::Answer { reply, receive, refused } => (reply, receive, refused),
        };
        here.receives.extend(receive);
        if refused.is_some() {
            here.fail();
        }
        self.launch(1 - to, Message::Reply(reply, vec![]));
        self.pump(to);
    }

    /// Delivers one message or fires one timer, whichever is next; `false` when nothing is left to happen.
    pub(super) fn step(&mut self) -> bool {
        let message = (0..self.flying.len()).min_by_key(|index| self.flying[*index].0);
        let arrives = message.map(|index| self.flying[index].0);
        let timer = (0..2).filter_map(|end| Some((self.ends[end].requester.poll_timeout()?, end))).min();
        match (arrives, timer) {
            (None, None) => return false,
            (Some(at), timer) if timer.is_none_or(|(due, _)| at <= due) => {
                self.now = self.now.max(at);
                let (_, to, message) = self.flying.remove(message.expect("one arrives"));
                self.deliver(to, message);
            }
            (_, Some((due, end))) => {
                self.now = self.now.max(due);
                self.ends[end].requester.handle_timeout(self.now);
                self.pump(end);
            }
            (Some(_), None) => unreachable!("a message without a timer was taken above"),
        }
        true
    }

    /// Steps until nothing is left to happen.
    pub(super) fn run(&mut self) {
        for _ in 0..STEPS_MAX {
            if !self.step() {
                return;
            }
        }
        panic!("still busy after {STEPS_MAX} steps");
    }
}
