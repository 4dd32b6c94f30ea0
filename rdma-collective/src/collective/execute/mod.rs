//! Carries an operation out, whatever it is: over the links of a ring or by messages between all ranks of a host, on memory that
//! is borrowed or registered.
//!
//! The steps are `schedule`'s and `exchange`'s; what is called, and where its buffers lie, is `call`'s.

mod buffers;
mod direct;
mod flat;
mod flows;
mod give_up;
mod hurry;
mod job;
mod meeting;
mod mesh;
mod missing;
mod owned;
mod points;
mod run;
mod running;
mod slices;
mod stage;
mod uneven;

pub(super) use self::buffers::{Arithmetic, Borrowed};
pub(super) use self::flows::Slices;
pub(super) use self::job::{Job, from_any as job_from_any};
use super::DataType;
use super::call::{Call, Origins, staging};
use super::direct::Direct;
use super::exchange::Exchange;
use super::pieces::Pieces;
use super::points::Points;
use super::schedule::{Operation, P2pSchedule, Schedule, Staging};
use crate::collective::communicator::{
    Algorithm, Communicator, NEAR_BYTES, Reach, VERDICT_BYTES, word_bytes,
};
use crate::collective::tuning::Class;
use crate::collective::{CollectiveError, ScheduleError};

/// An operation that can begin.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    call: Call,
    arithmetic: Arithmetic,
    /// Of this rank.
    origins: Origins,
    way: Way,
}

impl Plan {
    /// That of a rank of so many.
    #[inline]
    fn new(call: Call, [rank, ranks]: [u32; 2], way: Way) -> Self {
        Self { call, arithmetic: call.arithmetic(ranks), origins: call.origins(rank), way }
    }
}

/// Which way an operation takes; the same on all ranks but for what each does with memory that is borrowed or its own, until they
/// have told each other.
#[derive(Clone, Debug)]
#[expect(clippy::large_enum_variant, reason = "a schedule is iterated where it is, without an allocation")]
enum Way {
    Ring(Schedule),
    Flat(InWindows),
    Mesh(InRounds),
    /// Between the rank and some others alone.
    Points(Points),
    Direct(Direct, Elsewhere),
}

/// What ranks of one host leave each other.
#[derive(Clone, Copy, Debug)]
enum InWindows {
    /// All that is needed.
    Messages(Exchange),
    /// What is longer than that.
    Pieces(Pieces),
}

/// Where all ranks of a host go on when not all of them own their memory.
#[derive(Clone, Debug)]
#[expect(clippy::large_enum_variant, reason = "a schedule is iterated where it is, without an allocation")]
enum Elsewhere {
    Pieces(Pieces),
    Ring(Schedule),
}

/// Whose the memory of a call is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Memory {
    Borrowed,
    Owned,
}

/// What became of a call that went in windows: the same of each that is the same.
#[derive(Debug)]
struct Near {
    call: Call,
    memory: Memory,
    what: InWindows,
}

impl Way {
    fn taken(&self) -> Algorithm {
        match self {
            Self::Ring(_) => Algorithm::Ring,
            Self::Flat(what) => what.taken(),
            Self::Mesh(rounds) => rounds.by,
            Self::Points(_) => Algorithm::Pairs,
            Self::Direct(..) => Algorithm::Direct,
        }
    }

    /// As it is said; where memory turns out to be borrowed it is another.
    fn name(&self) -> &'static str {
        match self {
            Self::Points(_) => "from rank to rank",
            Self::Direct(_, Elsewhere::Ring(_)) => "direct, or ring where slices are borrowed",
            Self::Direct(_, Elsewhere::Pieces(_)) => "direct, or pieces where slices are borrowed",
            _ => self.taken().name(),
        }
    }
}

impl InWindows {
    fn taken(&self) -> Algorithm {
        match self {
            Self::Messages(_) => Algorithm::Flat,
            Self::Pieces(_) => Algorithm::Pieces,
        }
    }

    #[inline]
    fn call(&self) -> Call {
        match self {
            Self::Messages(exchange) => exchange.call,
            Self::Pieces(pieces) => pieces.call,
        }
    }

    #[inline]
    fn ranks(&self) -> [u32; 2] {
        match self {
            Self::Messages(exchange) => [exchange.rank, exchange.ranks],
            Self::Pieces(pieces) => [pieces.rank, pieces.ranks],
        }
    }

    /// Whether it cannot do without the message of rank `from`.
    #[inline]
    fn needs(&self, from: u32) -> bool {
        match self {
            Self::Messages(exchange) => exchange.needs(from),
            Self::Pieces(pieces) => pieces.needs(from),
        }
    }
}

/// What goes by links to ranks that are no neighbours.
#[derive(Clone, Debug)]
struct InRounds {
    by: Algorithm,
    steps: P2pSchedule,
    reach: Reach,
    /// How ranks connect, unless they are connected.
    connect: Option<Box<Connect>>,
}

/// What goes around the ring before the links of an operation are there.
#[derive(Clone, Debug)]
struct Connect {
    /// The words of all ranks: how each reaches the others, and whether each could connect.
    words: [Schedule; 2],
    /// The operation itself, where there can be no links and it needs none.
    instead: Option<Schedule>,
}

impl Communicator {
    /// The ways that it may take, as the table has them.
    fn class(&self, call: Call) -> Class {
        let find = |collective| self.orders().find(collective, call.bytes() as u64);
        call.collective.tuned().map(find).unwrap_or_default()
    }

    /// Says which it takes, once for each size.
    fn say_way(&mut self, call: Call, class: Class, (taken, name): (Algorithm, &str)) {
        self.chose(call.class(), |orders| match call.collective.tuned() {
            Some(_) => format!("{name} {}", orders.said(class, taken)),
            None => name.to_owned(),
        });
    }

    /// Where the memory of all lies, around the ring, or else by links that it opens.
    fn way(&mut self, call: Call, class: Class, memory: Memory) -> Result<Way, CollectiveError> {
        let (ranks, options) = ([self.rank(), self.size()], self.options());
        let staging = staging(options);
        let around = || call.schedule(ranks, staging, options.reproducible);
        // Whatever goes in windows was asked before.
        let mut ways = class.ways().filter(|way| !matches!(way, Algorithm::Flat | Algorithm::Pieces));
        let by = loop {
            let way = match ways.next() {
                Some(Algorithm::Direct) => match self.in_its_place(call, class) {
                    Some(pieces) => Some(self.direct(call, Elsewhere::Pieces(pieces))?),
                    None => around()?.map(|steps| self.direct(call, Elsewhere::Ring(steps))).transpose()?,
                },
                Some(Algorithm::Ring) => around()?.map(Way::Ring),
                by => break by.unwrap_or(Algorithm::Pairs),
            };
            if let Some(way) = way {
                return Ok(way);
            }
        };
        let (steps, reach) = call.rounds(ranks, self.link_staging(), (by, self.hosts()))?;
        self.by_links(call, (by, steps, reach), memory)
    }

    /// Where the memory of all lies, or elsewhere if not all own theirs.
    fn direct(&self, call: Call, elsewhere: Elsewhere) -> Result<Way, ScheduleError> {
        let (ranks, options) = ([self.rank(), self.size()], self.options());
        let order = call.order(ranks, staging(options), options.reproducible)?;
        let piece = direct::piece_bytes(call, ranks[1], NEAR_BYTES);
        Ok(Way::Direct(Direct::new(call, ranks, order, piece), elsewhere))
    }

    /// In rounds, by links of that reach: they are opened for it unless there are some.
    fn by_links(
        &mut self,
        call: Call,
        (by, steps, reach): (Algorithm, P2pSchedule, Reach),
        memory: Memory,
    ) -> Result<Way, CollectiveError> {
        if self.is_linked(reach) {
            return Ok(Way::Mesh(InRounds { by, steps, reach, connect: None }));
        }
        let (ranks, staging) = ([self.rank(), self.size()], staging(self.options()));
        let words = |bytes| self.words(bytes, staging);
        let words = [words(word_bytes(reach, self.size()))?, words(VERDICT_BYTES)?];
        let instead = call.schedule(ranks, staging, self.options().reproducible)?;
        let connect = Some(Box::new(Connect { words, instead }));
        if memory == Memory::Owned {
            // Links that are opened for an operation which is refused would be connected by none.
            self.check_queue()?;
        }
        self.open_links(reach);
        Ok(Way::Mesh(InRounds { by, steps, reach, connect }))
    }

    /// How words of so many bytes come from each rank to all others.
    fn words(&self, count: usize, staging: Staging) -> Result<Schedule, ScheduleError> {
        let (rank, ranks) = (self.rank(), self.size());
        Schedule::all_gather(Operation { rank, ranks, count, data_type: DataType::U8, staging })
    }

    /// What is left in the windows of a host, when that is the way to take; it is said.
    #[inline]
    fn near(&mut self, call: Call, memory: Memory) -> Option<InWindows> {
        match self.last::<Near>() {
            Some(last) if last.call == call && last.memory == memory => Some(last.what),
            _ => self.another_near(call, memory),
        }
    }

    #[inline(never)]
    fn another_near(&mut self, call: Call, memory: Memory) -> Option<InWindows> {
        let class = self.class(call);
        let what = self.in_windows(call, class, memory)?;
        self.say_way(call, class, (what.taken(), what.taken().name()));
        self.set_last(Near { call, memory, what });
        Some(what)
    }

    /// What is left in the windows of a host, when that is the way to take.
    fn in_windows(&self, call: Call, class: Class, memory: Memory) -> Option<InWindows> {
        if !self.has_host_group() {
            return None;
        }
        let ranks = [self.rank(), self.size()];
        for way in class.ways() {
            match way {
                Algorithm::Flat => {
                    if let Some(exchange) = Exchange::new(call, ranks, self.options()) {
                        return Some(InWindows::Messages(exchange));
                    }
                }
                Algorithm::Pieces => {
                    if let Some(pieces) = Pieces::new(call, ranks, self.options()) {
                        return Some(InWindows::Pieces(pieces));
                    }
                }
                // Who knows that its own is borrowed need not ask where that of the others is.
                Algorithm::Direct if memory == Memory::Borrowed => {
                    return self.in_its_place(call, class).map(InWindows::Pieces);
                }
                _ => return None,
            }
        }
        None
    }

    /// The pieces that take the place of what needs memory of all ranks' own. Not where the ring does, which always can if there is one,
    /// nor where what goes by links is asked for and pieces are not.
    fn in_its_place(&self, call: Call, class: Class) -> Option<Pieces> {
        let mut behind = class.ways().skip_while(|way| *way != Algorithm::Direct);
        let asked = |way: &Algorithm| {
            let algorithms = self.options().algorithms;
            !way.needs_mapped() && call.collective.tuned().is_some_and(|of| algorithms.allow(of, *way))
        };
        match behind.find(|way| matches!(way, Algorithm::Pieces | Algorithm::Ring)) {
            Some(Algorithm::Ring) => return None,
            None if class.ways().any(|way| asked(&way)) => return None,
            _ => {}
        }
        Pieces::new(call, [self.rank(), self.size()], self.options())
    }
}

#[cfg(test)]
mod tests;
