//! The time that a schedule takes on a simulated [`Network`], and the messages, bytes and memory that it needs.
//!
//! Only the lengths of messages are simulated, not their elements, so that a thousand ranks are fast. A slot that is
//! given back before it was read, and a message whose length its receiver does not expect, are still found.

use crate::collective::schedule::Step;
use crate::link::mailbox::SHORT_BYTES_MAX;
use crate::tests::netsim::{Network, Wire};

/// The costs of a link and of a processor.
#[derive(Clone, Copy, Debug)]
pub(in crate::collective::schedule) struct Costs {
    pub(in crate::collective::schedule) wire: Wire,
    /// Picoseconds a byte to reduce or to copy.
    pub(in crate::collective::schedule) arithmetic: u64,
}

/// The cost of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::collective::schedule) struct Report {
    /// Picoseconds until the last rank has taken its last step.
    pub(in crate::collective::schedule) time: u64,
    /// Messages sent by the rank that sends most.
    pub(in crate::collective::schedule) messages: u64,
    /// Bytes sent by the rank that sends most.
    pub(in crate::collective::schedule) bytes: u64,
    /// Bytes of all ranks together to other hosts.
    pub(in crate::collective::schedule) far: u64,
    /// The most peers that a rank has, and the most from which a rank receives.
    pub(in crate::collective::schedule) peers: usize,
    pub(in crate::collective::schedule) senders: usize,
    pub(in crate::collective::schedule) lost: u64,
    /// A hash of all arrivals: equal if every message arrived at the same time.
    pub(in crate::collective::schedule) trace: u64,
}

/// The reason why a run did not end, with the trace until then.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::collective::schedule) struct Failure {
    pub(in crate::collective::schedule) what: String,
    pub(in crate::collective::schedule) at: u64,
    pub(in crate::collective::schedule) trace: u64,
}

/// Nanoseconds until the last rank has taken its last step.
pub(in crate::collective::schedule) fn nanos<P: Iterator<Item = Step>>(
    programs: impl IntoIterator<Item = P>,
    slots: u16,
    costs: Costs,
) -> f64 {
    simulate(programs, slots, costs).expect("an end").time as f64 / 1000.0
}

/// Runs the programs of all ranks to their end.
pub(in crate::collective::schedule) fn simulate<P: Iterator<Item = Step>>(
    programs: impl IntoIterator<Item = P>,
    slots: u16,
    costs: Costs,
) -> Result<Report, Failure> {
    let ranks: Vec<_> = programs.into_iter().map(Rank::new).collect();
    let mut run = Run {
        costs,
        slots: slots.into(),
        network: Network::new(ranks.len(), costs.wire),
        by_ends: vec![NONE; ranks.len() * ranks.len()],
        links: Vec::new(),
        arrived: Vec::new(),
        ranks,
    };
    let mut now = 0;
    let outcome = run.drive(&mut now);
    outcome.map_err(|what| Failure { what, at: now, trace: run.network.trace() })?;
    Ok(run.report())
}

struct Run<P> {
    costs: Costs,
    slots: u64,
    network: Network<Body>,
    ranks: Vec<Rank<P>>,
    /// The link of a sender and a receiver, once there is one.
    by_ends: Vec<u32>,
    links: Vec<Link>,
    /// For each slot of each link: one more than the number of the message that was written last, and its bytes.
    arrived: Vec<(u64, usize)>,
}

const NONE: u32 = u32::MAX;

struct Rank<P> {
    program: P,
    next: Option<Step>,
    clock: u64,
    messages: u64,
    bytes: u64,
}

#[derive(Default)]
struct Link {
    from: u32,
    to: u32,
    sent: u64,
    /// Messages that have arrived, that the receiver has read and given back, of which it has told the sender, and of
    /// which the sender knows.
    arrived: u64,
    read: u64,
    given_back: u64,
    told: u64,
    freed: u64,
}

enum Body {
    Message { link: u32, number: u64, bytes: usize },
    Credit { link: u32, consumed: u64 },
}

impl<P: Iterator<Item = Step>> Rank<P> {
    fn new(mut program: P) -> Self {
        let next = program.next();
        Self { program, next, clock: 0, messages: 0, bytes: 0 }
    }
}

impl<P: Iterator<Item = Step>> Run<P> {
    fn drive(&mut self, now: &mut u64) -> Result<(), String> {
        for rank in 0..self.ranks.len() as u32 {
            self.advance(rank, 0)?;
        }
        while let Some((at, body)) = self.network.next() {
            *now = at;
            let rank = match body {
                Body::Message { link, number, bytes } => {
                    let rank = self.write(link, number, bytes);
                    self.tell(at, link, false);
                    rank
                }
                Body::Credit { link, consumed } => {
                    let link = &mut self.links[link as usize];
                    link.freed = link.freed.max(consumed);
                    link.from
                }
            };
            self.advance(rank, at)?;
        }
        let stuck = self.ranks.iter().position(|rank| rank.next.is_some());
        if let Some(rank) = stuck {
            return Err(format!("rank {rank} is stuck at {:?}", self.ranks[rank].next));
        }
        match self.links.iter().find(|link| (link.told, link.sent) != (link.freed, link.given_back)) {
            Some(Link { from, to, .. }) => Err(format!("the link from {from} to {to} misses credits")),
            None => Ok(()),
        }
    }

    /// Takes all steps that a rank can take, now that it has waited until `at`.
    fn advance(&mut self, rank: u32, at: u64) -> Result<(), String> {
        while let Some(step) = self.ranks[rank as usize].next {
            if !self.take(rank, at, step)? {
                return Ok(());
            }
            let rank = &mut self.ranks[rank as usize];
            rank.next = rank.program.next();
        }
        Ok(())
    }

    /// Takes one step; `false` when it has to wait.
    fn take(&mut self, rank: u32, at: u64, step: Step) -> Result<bool, String> {
        let clock = self.ranks[rank as usize].clock.max(at);
        let mut ends = clock;
        match step {
            Step::Put { to, message, source, .. } => {
                let index = self.link(rank, to);
                let link = &mut self.links[index as usize];
                if link.sent - link.freed == self.slots {
                    return Ok(false);
                }
                if link.sent != message {
                    return Err(format!("rank {rank} sends message {message} to {to}, not {}", link.sent));
                }
                link.sent += 1;
                let bytes = source.len();
                let own = &mut self.ranks[rank as usize];
                (own.messages, own.bytes) = (own.messages + 1, own.bytes + bytes as u64);
                self.network.send(
                    clock,
                    rank,
                    to,
                    bytes,
                    Body::Message { link: index, number: message, bytes },
                );
            }
            Step::WaitCount { from, message } => {
                let index = self.link(from, rank);
                if self.arrived[self.slot(index, message)].0 != message + 1 {
                    return Ok(false);
                }
            }
            Step::WaitPut { to, message } => {
                let index = self.link(rank, to);
                return Ok(self.links[index as usize].sent > message);
            }
            Step::ReduceFrom { from, message, target, .. } | Step::CopyFrom { from, message, target } => {
                let index = self.link(from, rank);
                let (written, bytes) = self.arrived[self.slot(index, message)];
                if (written, bytes) != (message + 1, target.len()) {
                    return Err(format!("rank {rank} expects {} bytes of {from}, not {bytes}", target.len()));
                }
                self.links[index as usize].read += 1;
                ends += self.costs.arithmetic * bytes as u64;
            }
            Step::Signal { to, consumed, may_wait } => {
                let index = self.link(to, rank);
                if consumed > self.links[index as usize].read {
                    return Err(format!("rank {rank} gives back to {to} what it has not read"));
                }
                let first = std::mem::replace(&mut self.links[index as usize].given_back, consumed);
                let len = |number| self.arrived[self.slot(index, number)].1;
                let any_long = !may_wait && (first..consumed).any(|number| len(number) > SHORT_BYTES_MAX);
                self.tell(clock, index, any_long);
            }
            Step::Copy { source, .. } => ends += self.costs.arithmetic * source.len() as u64,
        }
        self.ranks[rank as usize].clock = ends;
        Ok(true)
    }

    /// Tells the sender of the messages given back, when a mailbox would do so; `any_long` says whether a long one is
    /// among them.
    fn tell(&mut self, at: u64, index: u32, any_long: bool) {
        let link = &mut self.links[index as usize];
        let (untold, held) = (link.given_back - link.told, link.arrived - link.given_back);
        if untold > 0 && (any_long || untold >= self.slots - self.slots / 4 || untold + held >= self.slots) {
            link.told = link.given_back;
            let (from, to, consumed) = (link.from, link.to, link.told);
            self.network.send(at, to, from, 0, Body::Credit { link: index, consumed });
        }
    }

    /// A message is there; its receiver.
    fn write(&mut self, link: u32, number: u64, bytes: usize) -> u32 {
        let slot = self.slot(link, number);
        self.arrived[slot] = (number + 1, bytes);
        self.links[link as usize].arrived += 1;
        self.links[link as usize].to
    }

    fn slot(&self, link: u32, number: u64) -> usize {
        (u64::from(link) * self.slots + number % self.slots) as usize
    }

    fn link(&mut self, from: u32, to: u32) -> u32 {
        let index = from as usize * self.ranks.len() + to as usize;
        if self.by_ends[index] == NONE {
            self.by_ends[index] = self.links.len() as u32;
            self.links.push(Link { from, to, ..Link::default() });
            self.arrived.resize(self.links.len() * self.slots as usize, (0, 0));
        }
        self.by_ends[index]
    }

    fn report(&self) -> Report {
        let n = self.ranks.len();
        let sends = |from: usize, to: usize| self.by_ends[from * n + to] != NONE;
        let most = |has: &dyn Fn(usize, usize) -> bool| {
            (0..n).map(|one| (0..n).filter(|other| has(one, *other)).count()).max().unwrap_or(0)
        };
        Report {
            time: self.ranks.iter().map(|rank| rank.clock).max().unwrap_or(0),
            messages: self.ranks.iter().map(|rank| rank.messages).max().unwrap_or(0),
            bytes: self.ranks.iter().map(|rank| rank.bytes).max().unwrap_or(0),
            peers: most(&|one, other| sends(one, other) || sends(other, one)),
            senders: most(&|one, other| sends(other, one)),
            far: self.network.far(),
            lost: self.network.lost(),
            trace: self.network.trace(),
        }
    }
}
