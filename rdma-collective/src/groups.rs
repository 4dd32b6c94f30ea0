//! Groups of ranks that have something in common, such as a host. Plain data, for schedules and for the code that
//! makes links.

/// A partition of the ranks. Groups are in the order of their first ranks, and the ranks of each group in the order
/// of ranks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Groups {
    /// The number of the group of each rank.
    of: Vec<usize>,
    members: Vec<Vec<u32>>,
}

impl Groups {
    /// Groups the ranks that have an equal value; `each` yields the value of every rank, in the order of ranks.
    pub(crate) fn by<T: PartialEq>(each: impl IntoIterator<Item = T>) -> Self {
        let (mut known, mut groups) = (Vec::new(), Self::default());
        for (rank, one) in (0..).zip(each) {
            let group = known.iter().position(|other| *other == one).unwrap_or(known.len());
            if group == known.len() {
                known.push(one);
                groups.members.push(Vec::new());
            }
            groups.of.push(group);
            groups.members[group].push(rank);
        }
        groups
    }

    /// The number of ranks.
    pub(crate) fn ranks(&self) -> usize {
        self.of.len()
    }

    /// The number of the group of a rank.
    pub(crate) fn of(&self, rank: u32) -> Option<usize> {
        self.of.get(rank as usize).copied()
    }

    /// The ranks of each group.
    pub(crate) fn all(&self) -> &[Vec<u32>] {
        &self.members
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_counted_by_their_first_ranks() {
        for (names, of, members) in [
            (&[][..], &[][..], &[][..]),
            (&["b", "a"], &[0, 1], &[&[0][..], &[1]]),
            (&["b", "a", "b", "c", "a"], &[0, 1, 0, 2, 1], &[&[0, 2], &[1, 4], &[3]]),
            (&["", "", ""], &[0, 0, 0], &[&[0, 1, 2]]),
        ] {
            let groups = Groups::by(names);
            assert_eq!(groups.all(), members, "{names:?}");
            let found: Vec<_> = (0..).map_while(|rank| groups.of(rank)).collect();
            assert_eq!((found.as_slice(), groups.ranks()), (of, names.len()), "{names:?}");
        }
    }
}
