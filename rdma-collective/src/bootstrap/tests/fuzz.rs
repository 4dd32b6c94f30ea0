//! Fuzzing of frames and of the store. The store is compared with a model that knows its rules and none of its code.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use super::JobToken;
use super::frame::{Frame, FrameReader, HEADER_BYTES};
use super::message::{Hello, REPLY_BYTES_MAX, Refusal, Reply, Request, run_hash, take_number, with_number};
use super::store::{Effect, Served, Store};

/// Reads `data` as frames in pieces whose sizes it also chooses; what decodes must encode to the same bytes.
pub(crate) fn frame(data: &[u8]) {
    let Some((&step, mut data)) = data.split_first() else { return };
    let mut reader = FrameReader::new(REPLY_BYTES_MAX);
    while !data.is_empty() {
        let len = (usize::from(step) + 1).min(reader.wanted()).min(data.len());
        let (piece, rest) = data.split_at(len);
        data = rest;
        match reader.push(piece) {
            Ok(Some(frame)) => message(&frame),
            Ok(None) => {}
            Err(_) => break,
        }
    }
    // Few inputs have a header: the bytes as payloads of every kind.
    for kind in (0..7).chain(128..136) {
        message(&Frame { kind, id: 1, payload: data.into() });
    }
}

fn message(frame: &Frame) {
    assert_eq!(frame.encode().len(), HEADER_BYTES + frame.payload.len());
    if let Ok(request) = Request::decode(frame) {
        assert_eq!(request.encode(frame.id), *frame);
    }
    if let Ok((number, request)) = take_number(frame) {
        assert_eq!(with_number(number, &request), *frame);
    }
    if let Ok(reply) = Reply::decode(frame) {
        assert_eq!(reply.encode(frame.id), *frame);
    }
}

/// Requests one behind the other, to be read in pieces: what fuzzing begins with.
#[cfg(test)]
pub(crate) fn frames() -> Vec<u8> {
    let requests = [
        Request::Set { key: "rank/1".to_owned(), value: vec![5; 40] },
        Request::Get { wait_ms: 500, key: "rank/0".to_owned() },
        Request::Gather { wait_ms: 500, name: "blobs".to_owned(), value: vec![6; 20] },
    ];
    let frames = (1..).zip(requests).flat_map(|(id, request)| request.encode(id).encode());
    std::iter::once(63).chain(frames).collect()
}

const WORLD: u32 = 3;
const TOKEN: JobToken = JobToken::from_bytes([9; 16]);

fn hello(rank: u32, attempt: u64) -> Hello {
    Hello { token: TOKEN, rank, world: WORLD, attempt, run: run_hash(""), pid: 1 }
}

/// The identifier of a request, the request, and when its wait ends.
type UnderWay = (u32, Request, Instant);

/// The state that the store should have, by its documentation.
struct Model {
    store: Store,
    now: Instant,
    next: u64,
    /// Open connections that joined: rank, and the request under way with the end of its wait.
    open: BTreeMap<u64, (u32, Option<UnderWay>)>,
    /// The attempt of each rank, and whether it has made a request.
    joined: BTreeMap<u32, (u64, bool)>,
    values: BTreeMap<String, Vec<u8>>,
    /// The gatherings for which ranks have waited in vain, by rank.
    given_up: BTreeSet<(u32, String)>,
    /// The rank that leaves now.
    leaves: Option<u32>,
    /// Whether another job may use the store's port.
    at_ports: bool,
    /// Whether a second process came before all ranks had met.
    two_jobs: bool,
}

/// Takes `data` as joins, claims, requests, departures and passing time, at a port of its own and at one that two jobs
/// may use.
pub(crate) fn store(data: &[u8]) {
    events(data, false);
    events(data, true);
}

fn events(data: &[u8], at_ports: bool) {
    let mut model = Model {
        store: Store::new(TOKEN, WORLD, Served { at_ports, ..Served::default() }),
        at_ports,
        two_jobs: false,
        now: Instant::now(),
        next: 0,
        open: BTreeMap::new(),
        joined: BTreeMap::new(),
        values: BTreeMap::new(),
        given_up: BTreeSet::new(),
        leaves: None,
    };
    for &[event, first, second] in data.as_chunks().0 {
        match event % 8 {
            0 | 1 => match u32::from(first) % (WORLD + 2) {
                rank if rank <= WORLD => model.join(rank, u64::from(second) % 3),
                _ => model.claim(),
            },
            2..=5 => model.request(event, first, second),
            6 => model.pass(Duration::from_millis(u64::from(first))),
            _ => model.leave(usize::from(first)),
        }
        model.check();
    }
    while !model.open.is_empty() {
        model.leave(0);
        model.check();
    }
    assert_eq!(model.store.poll_timeout(), None);
    assert_eq!(model.store.present().count, 0);
}

impl Model {
    fn join(&mut self, rank: u32, attempt: u64) {
        let from = SocketAddr::from((Ipv4Addr::LOCALHOST, attempt as u16));
        let connection = self.next;
        self.next += 1;
        let outcome = self.store.join(connection, from, &hello(rank, attempt));
        if self.two_jobs {
            assert!(matches!(outcome, Err(Refusal::TwoJobs { .. })));
            return;
        }
        if rank >= WORLD {
            assert_eq!(outcome, Err(Refusal::NoSuchRank { rank, world: WORLD }));
            return;
        }
        let before = self.joined.get(&rank).copied();
        if self.at_ports && self.is_open(rank) && before.is_some_and(|(first, _)| first != attempt) {
            assert!(matches!(outcome, Err(Refusal::TwoJobs { rank: second, .. }) if second == rank));
            self.second();
            return;
        }
        if before.is_none_or(|before| before == (attempt, false)) {
            assert_eq!(outcome, Ok(()));
            let old = self.open.iter().find(|(_, (other, _))| *other == rank).map(|(id, _)| *id);
            if let Some(connection) = old {
                self.open.remove(&connection);
                assert_eq!(self.store.poll_effect(), Some(Effect::Close { connection }));
            }
            self.joined.insert(rank, (attempt, false));
            self.open.insert(connection, (rank, None));
        } else {
            assert!(matches!(outcome, Err(Refusal::JoinedTwice { rank: refused, .. }) if refused == rank));
        }
        assert_eq!(self.store.poll_effect(), None);
    }

    fn claim(&mut self) {
        assert!(matches!(self.store.claim(&hello(0, 0)), Refusal::TwoJobs { rank: 0, .. }));
        self.second();
    }

    /// A second process came: unless all ranks have met, everybody hears that two jobs are there.
    fn second(&mut self) {
        self.two_jobs |= self.at_ports && self.joined.len() < WORLD as usize;
        self.take_effects();
        assert!(!self.two_jobs || self.open.values().all(|(_, request)| request.is_none()));
    }

    fn request(&mut self, event: u8, first: u8, second: u8) {
        let idle = self.open.iter().filter(|(_, (_, request))| request.is_none()).map(|(id, _)| *id);
        let idle: Vec<u64> = idle.collect();
        let Some(&connection) = idle.get(usize::from(first) % idle.len().max(1)) else { return };
        let (key, value) = (format!("k{}", second % 2), vec![first; usize::from(second % 5)]);
        let wait_ms = u32::from(second);
        let request = match event % 8 {
            2 => Request::Set { key, value },
            3 => Request::Get { wait_ms, key },
            _ => Request::Gather { wait_ms, name: key, value },
        };
        let id = u32::from(first) << 8 | u32::from(second);
        let until = self.now + Duration::from_millis(wait_ms.into());
        if let Some((rank, under_way)) = self.open.get_mut(&connection) {
            *under_way = Some((id, request.clone(), until));
            self.joined.entry(*rank).and_modify(|joined| joined.1 = true);
        }
        if let Request::Set { key, value } = &request
            && !self.two_jobs
        {
            self.values.insert(key.clone(), value.clone());
        }
        self.store.handle_request(self.now, connection, id, request);
        self.take_effects();
    }

    fn pass(&mut self, time: Duration) {
        self.now += time;
        self.store.handle_timeout(self.now);
        self.take_effects();
        for (_, request) in self.open.values() {
            assert!(request.as_ref().is_none_or(|(_, _, until)| *until > self.now), "a wait has no end");
        }
    }

    fn leave(&mut self, index: usize) {
        let Some(&connection) = self.open.keys().nth(index % self.open.len().max(1)) else { return };
        let Some((rank, _)) = self.open.remove(&connection) else { return };
        if self.joined.get(&rank).is_some_and(|(_, confirmed)| !confirmed) {
            self.joined.remove(&rank);
        }
        self.store.handle_disconnect(connection);
        self.leaves = Some(rank);
        self.take_effects();
        self.leaves = None;
    }

    /// Every answer must be to a request under way, and one that the rules allow.
    fn take_effects(&mut self) {
        let before: Vec<(u32, Request)> = self
            .open
            .values()
            .filter_map(|(rank, request)| request.as_ref().map(|(_, request, _)| (*rank, request.clone())))
            .collect();
        while let Some(effect) = self.store.poll_effect() {
            let Effect::Send { connection, frame } = effect else { panic!("closed for no reason") };
            let (rank, under_way) = self.open.get_mut(&connection).expect("an answer to nobody");
            let waiting = *rank;
            let (id, request, until) = under_way.take().expect("an answer to nothing");
            assert_eq!(frame.id, id);
            let late = until <= self.now;
            match (request, Reply::decode(&frame).expect("a message")) {
                (_, Reply::Refused(Refusal::TwoJobs { .. })) => assert!(self.two_jobs),
                (_, reply) if self.two_jobs => panic!("{reply:?} for two jobs"),
                (Request::Set { .. }, Reply::Done) => {}
                (Request::Get { key, .. }, Reply::Value(value)) => {
                    assert_eq!(Some(&value), self.values.get(&key))
                }
                (Request::Get { key, .. }, Reply::TimedOut(_)) => {
                    assert!(late && !self.values.contains_key(&key));
                }
                (Request::Gather { name, .. }, Reply::Gathered(values)) => {
                    let mut expected: Vec<_> = before
                        .iter()
                        .filter_map(|(rank, request)| match request {
                            Request::Gather { name: other, value, .. } if *other == name => {
                                Some((*rank, value.clone()))
                            }
                            _ => None,
                        })
                        .collect();
                    expected.sort();
                    assert_eq!(expected.len(), WORLD as usize);
                    assert!(values.iter().eq(expected.iter().map(|(_, value)| value)));
                }
                (Request::Gather { name, .. }, Reply::TimedOut(missing)) => {
                    // Or a rank leaves that has waited in vain.
                    let left = |rank| self.given_up.contains(&(rank, name.clone()));
                    assert!((late || self.leaves.is_some_and(left)) && missing.count > 0);
                    self.given_up.insert((waiting, name));
                }
                (Request::Gather { .. }, Reply::Refused(Refusal::Left { rank })) => {
                    assert!(self.joined.contains_key(&rank) && !self.is_open(rank));
                }
                (request, reply) => panic!("{reply:?} to {request:?}"),
            }
        }
    }

    fn is_open(&self, rank: u32) -> bool {
        self.open.values().any(|(other, _)| *other == rank)
    }

    fn check(&self) {
        let ends = self.open.values().filter_map(|(_, request)| request.as_ref().map(|(_, _, until)| *until));
        assert_eq!(self.store.poll_timeout(), ends.min());
        assert_eq!(self.store.present().count as usize, self.open.len());
        let names = self.open.values().filter_map(|(_, request)| match request {
            Some((_, Request::Gather { name, .. }, _)) => Some(name),
            _ => None,
        });
        let names: BTreeSet<&String> = names.collect();
        assert_eq!(self.store.gatherings.keys().collect::<BTreeSet<_>>(), names, "gatherings without a rank");
        for (connection, (_, request)) in &self.open {
            assert_eq!(self.store.is_waiting(*connection), request.is_some());
        }
    }
}
