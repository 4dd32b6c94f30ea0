//! Plans: which algorithm and protocol a call takes, and the schedule that goes with it.
//!
//! Plans are plain data, so that executors, the queue and the communicator can share them. How a plan is chosen is in the parent module.

use super::buffers::Arithmetic;
use super::pipeline::Pieces;
use crate::collective::call::{Call, Origins};
use crate::collective::communicator::{Algorithm, Reach};
use crate::collective::direct::Direct;
use crate::collective::exchange::Exchange;
use crate::collective::points::Points;
use crate::collective::schedule::{Rounds, Schedule};

/// An operation that can begin.
#[derive(Clone, Debug)]
pub(in crate::collective) struct Plan {
    pub(in crate::collective) call: Call,
    pub(in crate::collective) arithmetic: Arithmetic,
    /// Of this rank.
    pub(in crate::collective) origins: Origins,
    pub(in crate::collective) way: Way,
}

impl Plan {
    /// That of a rank of so many.
    #[inline]
    pub(in crate::collective) fn new(call: Call, [rank, ranks]: [u32; 2], way: Way) -> Self {
        Self { call, arithmetic: call.arithmetic(ranks), origins: call.origins(rank), way }
    }
}

/// Which way an operation takes; the same on all ranks but for what each does with memory that is borrowed or its own, until they
/// have told each other.
#[derive(Clone, Debug)]
#[expect(clippy::large_enum_variant, reason = "a schedule is iterated where it is, without an allocation")]
pub(in crate::collective) enum Way {
    Ring(Schedule),
    Flat(InWindows),
    Mesh(InRounds),
    /// Between the rank and some others alone.
    Points(Points),
    Direct(Direct, Elsewhere),
}

/// What ranks of one host leave each other.
#[derive(Clone, Copy, Debug)]
pub(in crate::collective) enum InWindows {
    /// All that is needed.
    Messages(Exchange),
    /// What is longer than that.
    Pieces(Pieces),
}

/// Where all ranks of a host go on when not all of them own their memory.
#[derive(Clone, Debug)]
#[expect(clippy::large_enum_variant, reason = "a schedule is iterated where it is, without an allocation")]
pub(in crate::collective) enum Elsewhere {
    Pieces(Pieces),
    Ring(Schedule),
}

/// Whose the memory of a call is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::collective) enum Memory {
    Borrowed,
    Owned,
}

/// What became of a call that went in windows: the same of each that is the same.
#[derive(Debug)]
pub(in crate::collective) struct CachedPlan {
    pub(in crate::collective) call: Call,
    pub(in crate::collective) memory: Memory,
    pub(in crate::collective) what: InWindows,
}

impl Way {
    pub(in crate::collective) fn taken(&self) -> Algorithm {
        match self {
            Self::Ring(_) => Algorithm::Ring,
            Self::Flat(what) => what.taken(),
            Self::Mesh(rounds) => rounds.by,
            Self::Points(_) => Algorithm::Pairs,
            Self::Direct(..) => Algorithm::Direct,
        }
    }

    /// As it is said; where memory turns out to be borrowed it is another.
    pub(in crate::collective) fn name(&self) -> &'static str {
        match self {
            Self::Points(_) => "from rank to rank",
            Self::Direct(_, Elsewhere::Ring(_)) => "direct, or ring where slices are borrowed",
            Self::Direct(_, Elsewhere::Pieces(_)) => "direct, or pieces where slices are borrowed",
            _ => self.taken().name(),
        }
    }
}

impl InWindows {
    pub(in crate::collective) fn taken(&self) -> Algorithm {
        match self {
            Self::Messages(_) => Algorithm::Flat,
            Self::Pieces(_) => Algorithm::Pieces,
        }
    }

    #[inline]
    pub(in crate::collective) fn call(&self) -> Call {
        match self {
            Self::Messages(exchange) => exchange.call,
            Self::Pieces(pieces) => pieces.call,
        }
    }

    #[inline]
    pub(in crate::collective) fn ranks(&self) -> [u32; 2] {
        match self {
            Self::Messages(exchange) => [exchange.rank, exchange.ranks],
            Self::Pieces(pieces) => [pieces.rank, pieces.ranks],
        }
    }

    /// Whether it cannot do without the message of rank `from`.
    #[inline]
    pub(in crate::collective) fn needs(&self, from: u32) -> bool {
        match self {
            Self::Messages(exchange) => exchange.needs(from),
            Self::Pieces(pieces) => pieces.needs(from),
        }
    }
}

/// What goes by links to ranks that are no neighbours.
#[derive(Clone, Debug)]
pub(in crate::collective) struct InRounds {
    pub(in crate::collective) by: Algorithm,
    pub(in crate::collective) steps: Rounds,
    pub(in crate::collective) reach: Reach,
    /// How ranks connect, unless they are connected.
    pub(in crate::collective) connect: Option<Box<Connect>>,
}

/// What goes around the ring before the links of an operation are there.
#[derive(Clone, Debug)]
pub(in crate::collective) struct Connect {
    /// The words of all ranks: how each reaches the others, and whether each could connect.
    pub(in crate::collective) words: [Schedule; 2],
    /// The operation itself, where there can be no links and it needs none.
    pub(in crate::collective) instead: Option<Schedule>,
}
