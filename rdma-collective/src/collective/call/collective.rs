//! The collectives: the enum of all of them, and the table of the data that each moves.
//!
//! A new collective begins with a row here. Its code goes over the wire, its name into errors, logs and tuning files.
//! The plans (`eager_plan`, `execute::pipeline`, `zero_copy_plan`, `schedule`) read the same table and decide how the
//! bytes travel.

use std::fmt;

/// A collective operation.
///
/// The collectives in [`ALL`](Self::ALL) have rows in [tuning tables](crate::collective::tuning). The others always go
/// by links, from rank to rank or around the ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[repr(u8)]
pub enum Collective {
    /// `all-reduce`
    AllReduce = 1,
    /// `all-gather`
    AllGather = 2,
    /// `reduce-scatter`
    ReduceScatter = 3,
    /// `broadcast`
    Broadcast = 4,
    /// `reduce`
    Reduce = 5,
    /// `barrier`
    Barrier = 6,
    /// `gather`
    Gather = 7,
    /// `scatter`
    Scatter = 8,
    /// `all-to-all`
    AllToAll = 9,
    /// `connect`: links to all ranks, and no data.
    Connect = 10,
    /// `send`, to one other rank.
    Send = 11,
    /// `receive`, from one other rank.
    Receive = 12,
    /// `split`: an all-gather of what ranks say before they form other communicators.
    Split = 13,
    /// `all-to-all-v`, with parts of any length.
    AllToAllV = 14,
    /// `gather-v`, with parts of any length.
    GatherV = 15,
    /// `scatter-v`, with parts of any length.
    ScatterV = 16,
    /// `all-gather-v`, with parts of any length.
    AllGatherV = 17,
}

use Collective::*;

/// Content of a buffer, in counts of the operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::collective) enum Holds {
    /// A count of elements.
    One,
    /// A count of elements for each rank: its part.
    Parts,
}

/// The ranks that hand elements in, or get some.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ranks {
    Every,
    Root,
}

/// A row of the table.
#[derive(Clone, Copy)]
pub(in crate::collective) struct Properties {
    collective: Collective,
    name: &'static str,
    /// Whether elements of several ranks become one.
    pub(in crate::collective) reduces: bool,
    /// Whether the root alone hands elements in.
    pub(in crate::collective) from_root: bool,
    /// Whether the root alone gets elements.
    pub(in crate::collective) to_root: bool,
    /// Content of the input, and of the output.
    pub(in crate::collective) buffers: (Holds, Holds),
    /// Whether a buffer has a part for each rank.
    pub(in crate::collective) has_parts: bool,
}

const EVERY_ONE: (Ranks, Holds) = (Ranks::Every, Holds::One);
const EVERY_PARTS: (Ranks, Holds) = (Ranks::Every, Holds::Parts);
const ROOT_ONE: (Ranks, Holds) = (Ranks::Root, Holds::One);
const ROOT_PARTS: (Ranks, Holds) = (Ranks::Root, Holds::Parts);

// The order of rows is the order of codes: `properties` indexes by code. Codes go over the wire, so a new row goes to
// the end; a new one that `tune` may choose for goes behind the last row of `ALL`, because `tuned` and `index` count
// on `ALL` having the first codes, and the version in `docs/wire.md` goes up with it. The collectives with parts of
// any length count as `ONE`, because their counts are each rank's own and not in the call.
#[rustfmt::skip]
const TABLE: [Properties; 17] = [
    row(AllReduce,     "all-reduce",     true,  EVERY_ONE,   EVERY_ONE),
    row(AllGather,     "all-gather",     false, EVERY_ONE,   EVERY_PARTS),
    row(ReduceScatter, "reduce-scatter", true,  EVERY_PARTS, EVERY_ONE),
    row(Broadcast,     "broadcast",      false, ROOT_ONE,    EVERY_ONE),
    row(Reduce,        "reduce",         true,  EVERY_ONE,   ROOT_ONE),
    row(Barrier,       "barrier",        false, EVERY_ONE,   EVERY_ONE),
    row(Gather,        "gather",         false, EVERY_ONE,   ROOT_PARTS),
    row(Scatter,       "scatter",        false, ROOT_PARTS,  EVERY_ONE),
    row(AllToAll,      "all-to-all",     false, EVERY_PARTS, EVERY_PARTS),
    row(Connect,       "connect",        false, EVERY_ONE,   EVERY_ONE),
    row(Send,          "send",           false, EVERY_ONE,   ROOT_ONE),
    row(Receive,       "receive",        false, ROOT_ONE,    EVERY_ONE),
    row(Split,         "split",          false, EVERY_ONE,   EVERY_PARTS),
    row(AllToAllV,     "all-to-all-v",   false, EVERY_ONE,   EVERY_ONE),
    row(GatherV,       "gather-v",       false, EVERY_ONE,   ROOT_ONE),
    row(ScatterV,      "scatter-v",      false, ROOT_ONE,    EVERY_ONE),
    row(AllGatherV,    "all-gather-v",   false, EVERY_ONE,   EVERY_ONE),
];

const fn row(
    collective: Collective,
    name: &'static str,
    reduces: bool,
    (givers, input): (Ranks, Holds),
    (getters, output): (Ranks, Holds),
) -> Properties {
    let (from_root, to_root) = (matches!(givers, Ranks::Root), matches!(getters, Ranks::Root));
    let buffers = (input, output);
    let has_parts = !matches!(buffers, (Holds::One, Holds::One));
    Properties { collective, name, reduces, from_root, to_root, buffers, has_parts }
}

impl Collective {
    /// All collectives that have rows in tuning tables.
    pub const ALL: [Self; 9] =
        [AllReduce, AllGather, ReduceScatter, Broadcast, Reduce, Barrier, Gather, Scatter, AllToAll];

    /// A number above the code of any collective, for arrays indexed by code.
    pub(in crate::collective) const CODES: usize = TABLE.len() + 1;

    /// The row of the table.
    pub(in crate::collective) const fn properties(self) -> &'static Properties {
        // Codes count from 1, and the table is in their order.
        &TABLE[self as usize - 1]
    }

    /// The number that stands for the collective in headers.
    pub(in crate::collective) const fn code(self) -> u8 {
        self as u8
    }

    /// Returns the collective of a number that came from another rank, which may be any number.
    pub(in crate::collective) fn of_code(code: u8) -> Option<Self> {
        // Checked, because the code may come from another release or a damaged message.
        TABLE.get(usize::from(code).checked_sub(1)?).map(|row| row.collective)
    }

    pub(in crate::collective) const fn name(self) -> &'static str {
        self.properties().name
    }

    pub(in crate::collective) const fn has_root(self) -> bool {
        self.properties().from_root || self.properties().to_root
    }

    /// Whether parts may have any length, so that each rank passes its counts.
    pub(in crate::collective) const fn is_uneven(self) -> bool {
        matches!(self, AllToAllV | GatherV | ScatterV | AllGatherV)
    }

    /// The collective whose tuning rows apply; `None` for a collective without a choice.
    pub(in crate::collective) const fn tuned(self) -> Option<Self> {
        match self {
            // A split exchanges what its ranks announce by an all-gather, so it takes that one's rows.
            Split => Some(AllGather),
            // The codes of `ALL` come first, so a code within its length is in it.
            _ if (self as usize) <= Self::ALL.len() => Some(self),
            _ => None,
        }
    }

    /// Index in [`ALL`](Self::ALL), if the collective is there. The codes of `ALL` come first, so this holds for it.
    pub(in crate::collective) const fn index(self) -> usize {
        self as usize - 1
    }
}

impl fmt::Display for Collective {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_in_the_order_of_codes() {
        for (code, row) in (1..).zip(TABLE) {
            assert_eq!((row.collective.code(), Collective::of_code(code)), (code, Some(row.collective)));
        }
        assert_eq!((Collective::of_code(0), Collective::of_code(TABLE.len() as u8 + 1)), (None, None));
        for (index, collective) in Collective::ALL.into_iter().enumerate() {
            assert_eq!((collective.index(), collective.tuned()), (index, Some(collective)));
        }
    }
}
