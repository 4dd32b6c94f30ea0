//! Which ranks of a communicator are on one host.

use super::Algorithm;
use crate::comm::link::Manner;

/// See the module. The same on all ranks.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Hosts {
    /// The number of each rank's host, in the order of their first ranks.
    of: Vec<u32>,
    /// Of each rank, whether somebody has named it.
    named: Vec<bool>,
    spread: Spread,
}

/// How ranks are spread over hosts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Spread {
    /// All are on one host, or none is with another.
    #[default]
    Flat,
    /// There are several hosts, and some ranks are together.
    Hosts,
    /// There are several, with as many ranks each, which are [`MANY`] or more.
    Alike,
}

/// From so many ranks of each host on, an all-reduce inside hosts first is faster on a network whatever that is like, if it is short.
const MANY: usize = 4;

impl Spread {
    /// Whether operations can go that way among such ranks.
    pub(super) fn has(self, way: Algorithm) -> bool {
        way != Algorithm::Hierarchical || self != Self::Flat
    }

    /// Whether that way is taken there by itself, if the built-in table has it.
    pub(super) fn suits(self, way: Algorithm) -> bool {
        way != Algorithm::Hierarchical || self == Self::Alike
    }
}

impl Hosts {
    /// Of what each rank calls its host, and whether somebody has named it so.
    pub(super) fn new<'a>(told: impl IntoIterator<Item = (&'a str, bool)>) -> Self {
        let (mut known, mut of, mut named): (Vec<&str>, _, _) = (Vec::new(), Vec::new(), Vec::new());
        for (name, is_named) in told {
            let number = known.iter().position(|other| *other == name).unwrap_or_else(|| {
                known.push(name);
                known.len() - 1
            });
            of.push(number as u32);
            named.push(is_named);
        }
        let mut ranks = vec![0; known.len()];
        of.iter().for_each(|host| ranks[*host as usize] += 1);
        let spread = match ranks[..] {
            [first, _, ..] if first >= MANY && ranks.iter().all(|of| *of == first) => Spread::Alike,
            [_, _, ..] if known.len() < of.len() => Spread::Hosts,
            _ => Spread::Flat,
        };
        Self { of, named, spread }
    }

    /// The number of each rank's host.
    pub(crate) fn numbers(&self) -> &[u32] {
        &self.of
    }

    pub(crate) fn spread(&self) -> Spread {
        self.spread
    }

    /// How these two ranks connect: where nobody has named their hosts, as their devices find that they can.
    pub(super) fn manner(&self, ranks: [u32; 2]) -> Manner {
        let [one, other] = ranks.map(|rank| self.of.get(rank as usize));
        let named = ranks.iter().any(|rank| self.named.get(*rank as usize) == Some(&true));
        Manner { apart: named && one != other, ..Manner::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_counted_by_their_first_ranks() {
        for (names, numbers, spread) in [
            (&["a"][..], &[0][..], Spread::Flat),
            (&["a", "a", "a"], &[0, 0, 0], Spread::Flat),
            (&["b", "a"], &[0, 1], Spread::Flat),
            (&["b", "a", "b", "a"], &[0, 1, 0, 1], Spread::Hosts),
            (&["a", "a", "b"], &[0, 0, 1], Spread::Hosts),
            (&["a", "b", "b", "c", "c"], &[0, 1, 1, 2, 2], Spread::Hosts),
            (&["", "", "b", "b", "c", "c"], &[0, 0, 1, 1, 2, 2], Spread::Hosts),
            (&["a", "b", "a", "b", "a", "b", "b", "a"], &[0, 1, 0, 1, 0, 1, 1, 0], Spread::Alike),
            (&["a", "a", "a", "a", "a", "b", "b", "b", "b"], &[0, 0, 0, 0, 0, 1, 1, 1, 1], Spread::Hosts),
            (&["a", "a", "a", "a"], &[0; 4], Spread::Flat),
        ] {
            let hosts = Hosts::new(names.iter().map(|name| (*name, false)));
            assert_eq!((hosts.numbers(), hosts.spread()), (numbers, spread), "{names:?}");
        }
    }

    #[test]
    fn ranks_are_held_apart_where_one_of_them_has_a_host_that_somebody_named() {
        let apart = |named: [bool; 3]| {
            let hosts = Hosts::new(["x", "y", "x"].into_iter().zip(named));
            [[0, 1], [1, 2], [2, 0]].map(|ranks| hosts.manner(ranks).apart)
        };
        assert_eq!(apart([true; 3]), [true, true, false]);
        assert_eq!(apart([true, false, false]), [true, false, false]);
        assert_eq!(apart([false; 3]), [false; 3]);
    }
}
