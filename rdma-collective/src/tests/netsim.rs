//! A network in simulated time: latency, bandwidth of each direction of each NIC, and loss by seed. The same seed
//! gives the same events.
//!
//! A NIC sends one message at a time and receives one at a time, in order; a message without bytes passes at once. A
//! lost message is sent again after a timeout.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

/// The parameters of a network. Times are in picoseconds, so that they are exact.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wire {
    /// From the first byte that leaves to the first byte that arrives.
    pub(crate) latency: u64,
    /// The time in which a byte passes a NIC.
    pub(crate) byte: u64,
    /// How many of a million messages are lost, and after how long they are sent again.
    pub(crate) lost_of_million: u64,
    pub(crate) timeout: u64,
    pub(crate) seed: u64,
    /// The parameters between ranks of one host, where there are hosts.
    pub(crate) hosts: Option<Hosts>,
}

/// Hosts of `ranks` ranks each, in the order of ranks, and the parameters inside them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Hosts {
    pub(crate) ranks: u32,
    /// As of a [`Wire`], between ranks of one host.
    pub(crate) latency: u64,
    pub(crate) byte: u64,
    /// Whether the ranks of a host share one NIC instead of having one each.
    pub(crate) shared: bool,
}

/// The path from one rank to another.
struct Route {
    /// The queue of the sending NIC, and of the receiving one.
    sends: usize,
    receives: usize,
    latency: u64,
    byte: u64,
    /// Whether the ranks are on different hosts.
    far: bool,
}

impl Wire {
    /// 100 Gb/s and 5 us, without loss.
    pub(crate) const FAST: Self =
        Self { latency: 5_000_000, byte: 80, lost_of_million: 0, timeout: 500_000_000, seed: 1, hosts: None };

    /// The route between two ranks. Messages inside a host have queues of their own, because they pass no NIC.
    fn route(&self, from: u32, to: u32) -> Route {
        let nics = |near: bool| [from, to].map(|rank| 2 * rank as usize + usize::from(near));
        let Self { latency, byte, .. } = *self;
        let ([sends, receives], far) = (nics(false), true);
        match self.hosts {
            Some(Hosts { ranks, latency, byte, .. }) if from / ranks == to / ranks => {
                let [sends, receives] = nics(true);
                Route { sends, receives, latency, byte, far: false }
            }
            Some(Hosts { ranks, shared: true, .. }) => {
                let [sends, receives] = [from, to].map(|rank| 2 * (rank / ranks * ranks) as usize);
                Route { sends, receives, latency, byte, far }
            }
            _ => Route { sends, receives, latency, byte, far },
        }
    }
}

/// Messages under way, each with a body.
pub(crate) struct Network<T> {
    wire: Wire,
    events: BinaryHeap<Reverse<Event<T>>>,
    made: u64,
    /// When each NIC has sent, and has received, all that it was given.
    sends_until: Vec<u64>,
    receives_until: Vec<u64>,
    random: u64,
    lost: u64,
    trace: u64,
    /// Bytes that were sent to other hosts, or to anybody where there are none.
    far: u64,
}

struct Event<T> {
    at: u64,
    /// The number of the event: of events at one time the first made comes first.
    order: u64,
    stage: Stage,
    from: u32,
    to: u32,
    bytes: u64,
    body: T,
}

#[derive(Clone, Copy)]
enum Stage {
    /// The message was lost, and is sent again.
    Again,
    /// The first byte is at the receiver's NIC.
    Reaches,
    /// The last byte is there.
    Arrives,
}

impl<T> Network<T> {
    pub(crate) fn new(nics: usize, wire: Wire) -> Self {
        Self {
            wire,
            events: BinaryHeap::new(),
            made: 0,
            sends_until: vec![0; 2 * nics],
            receives_until: vec![0; 2 * nics],
            random: wire.seed,
            lost: 0,
            trace: 0,
            far: 0,
        }
    }

    /// Hands a message to the NIC of `from` at a time that is not before that of the last event.
    pub(crate) fn send(&mut self, now: u64, from: u32, to: u32, bytes: usize, body: T) {
        let route = self.wire.route(from, to);
        let (bytes, until) = (bytes as u64, &mut self.sends_until[route.sends]);
        let starts = if bytes == 0 { now } else { now.max(*until) };
        let ends = starts + bytes * route.byte;
        *until = ends.max(*until);
        self.far += if route.far { bytes } else { 0 };
        let (at, stage) = match self.is_lost() {
            true => (ends + self.wire.timeout, Stage::Again),
            false => (starts + route.latency, Stage::Reaches),
        };
        self.push(Event { at, order: 0, stage, from, to, bytes, body });
    }

    /// The next message that arrives, and when; `None` when there are none under route.
    pub(crate) fn next(&mut self) -> Option<(u64, T)> {
        loop {
            let Reverse(event) = self.events.pop()?;
            let Event { at, stage, from, to, bytes, body, .. } = event;
            match stage {
                Stage::Again => self.send(at, from, to, bytes as usize, body),
                Stage::Reaches if bytes > 0 => {
                    let route = self.wire.route(from, to);
                    let until = &mut self.receives_until[route.receives];
                    *until = at.max(*until) + bytes * route.byte;
                    let (at, stage) = (*until, Stage::Arrives);
                    self.push(Event { at, order: 0, stage, from, to, bytes, body });
                }
                Stage::Reaches | Stage::Arrives => {
                    for word in [at, u64::from(from) << 32 | u64::from(to), bytes] {
                        self.trace = (self.trace ^ word).wrapping_mul(0x0100_0000_01b3).rotate_left(29);
                    }
                    return Some((at, body));
                }
            }
        }
    }

    /// How many messages were lost.
    pub(crate) fn lost(&self) -> u64 {
        self.lost
    }

    pub(crate) fn far(&self) -> u64 {
        self.far
    }

    /// A sum of all that arrived so far, from where and when: equal where all of it was.
    pub(crate) fn trace(&self) -> u64 {
        self.trace
    }

    fn push(&mut self, event: Event<T>) {
        self.made += 1;
        self.events.push(Reverse(Event { order: self.made, ..event }));
    }

    fn is_lost(&mut self) -> bool {
        // SplitMix64.
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.random;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        let lost = (mixed ^ mixed >> 31) % 1_000_000 < self.wire.lost_of_million;
        self.lost += u64::from(lost);
        lost
    }
}

impl<T> PartialEq for Event<T> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl<T> Eq for Event<T> {}

impl<T> PartialOrd for Event<T> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> Ord for Event<T> {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.at, self.order).cmp(&(other.at, other.order))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WIRE: Wire =
        Wire { latency: 100, byte: 1, lost_of_million: 0, timeout: 1000, seed: 1, hosts: None };

    fn arrivals(wire: Wire, sent: &[(u64, u32, u32, usize)]) -> Vec<(u64, usize)> {
        let mut network = Network::new(4, wire);
        for (index, &(now, from, to, bytes)) in sent.iter().enumerate() {
            network.send(now, from, to, bytes, index);
        }
        std::iter::from_fn(|| network.next()).collect()
    }

    #[test]
    fn a_nic_passes_one_message_at_a_time_in_each_direction() {
        assert_eq!(arrivals(WIRE, &[(5, 0, 1, 30)]), [(135, 0)]);
        // Two from one: one after the other. Two to one: the same.
        assert_eq!(arrivals(WIRE, &[(0, 0, 1, 30), (0, 0, 2, 30)]), [(130, 0), (160, 1)]);
        assert_eq!(arrivals(WIRE, &[(0, 0, 2, 30), (0, 1, 2, 30)]), [(130, 0), (160, 1)]);
        // There and back do not disturb each other, and nothing waits for what has no bytes.
        assert_eq!(
            arrivals(WIRE, &[(0, 0, 1, 30), (0, 1, 0, 30), (0, 0, 1, 0)]),
            [(100, 2), (130, 0), (130, 1)]
        );
    }

    #[test]
    fn ranks_of_a_host_pass_no_nic_and_may_share_theirs() {
        for (shared, third) in [(true, 160), (false, 130)] {
            let hosts = Some(Hosts { ranks: 2, latency: 10, byte: 2, shared });
            let sent = [(0, 0, 1, 5), (0, 0, 2, 30), (0, 1, 3, 30)];
            let mut come = arrivals(Wire { hosts, ..WIRE }, &sent);
            come.sort_unstable_by_key(|(_, index)| *index);
            assert_eq!(come, [(20, 0), (130, 1), (third, 2)]);
        }
    }

    #[test]
    fn what_is_lost_comes_later_and_by_the_seed() {
        let sent: Vec<_> = (0..100).map(|now| (now, 0, 1, 1)).collect();
        let lossy = Wire { lost_of_million: 200_000, ..WIRE };
        let come = arrivals(lossy, &sent);
        assert_eq!(come.len(), 100);
        let late = come.iter().filter(|(at, _)| *at > 1000).count();
        assert!((5..50).contains(&late), "{late}");
        assert_eq!(come, arrivals(lossy, &sent));
        assert_ne!(come, arrivals(Wire { seed: 2, ..lossy }, &sent));
    }
}
