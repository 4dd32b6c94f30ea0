//! Carries an operation out, whatever it is: over the links of a ring or by messages between all ranks of a host, on memory that
//! is borrowed or registered.
//!
//! The steps are `schedule`'s and `exchange`'s; what is called, and where its buffers lie, is `call`'s.

mod buffers;
mod calls;
mod direct;
mod eager;
mod flows;
mod header_exchange;
mod job;
mod mesh;
mod pipeline;
mod plan;
mod run;
mod running;
mod spin;
mod stop;

pub(super) use self::buffers::{Arithmetic, Borrowed};
pub(super) use self::flows::Slices;
pub(super) use self::job::{Among, Job, Looks};
use self::pipeline::Pieces;
pub(super) use self::plan::CachedPlan;
use self::plan::{Connect, Elsewhere, InRounds, InWindows, Memory, Way};
use super::DataType;
use super::call::{Call, staging};
use super::direct::Direct;
use super::exchange::Exchange;
use super::schedule::{Operation, Rounds, Schedule, Staging};
use crate::collective::communicator::{
    Algorithm, Communicator, Reach, VERDICT_BYTES, ZERO_COPY_PIECE_BYTES, word_bytes,
};
use crate::collective::tuning::Class;
use crate::collective::{CollectiveError, ScheduleError};

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
        let piece = direct::piece_bytes(call, ranks[1], ZERO_COPY_PIECE_BYTES);
        Ok(Way::Direct(Direct::new(call, ranks, order, piece), elsewhere))
    }

    /// In rounds, by links of that reach: they are opened for it unless there are some.
    fn by_links(
        &mut self,
        call: Call,
        (by, steps, reach): (Algorithm, Rounds, Reach),
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
        match self.last() {
            Some(last) if last.call == call && last.memory == memory => Some(last.what),
            _ => self.another_near(call, memory),
        }
    }

    #[inline(never)]
    fn another_near(&mut self, call: Call, memory: Memory) -> Option<InWindows> {
        let class = self.class(call);
        let what = self.in_windows(call, class, memory)?;
        self.say_way(call, class, (what.taken(), what.taken().name()));
        self.set_last(CachedPlan { call, memory, what });
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
