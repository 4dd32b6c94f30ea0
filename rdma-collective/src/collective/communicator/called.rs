//! The calls that this rank has made lately over links, for comparison with a rank that is behind.
//!
//! A rank that only sends ends its part of an operation without a word from the others. What they had called instead is
//! found later: by a message that nobody reads, or by their reports of long waits.

use crate::collective::operation::Header;

/// Operations that are kept. A rank that only sends may be further ahead, with more slots or where it sends to others.
/// Then the error names the present call of this rank in place of the one at that time.
const KEPT: usize = 16;

/// The headers of the last operations over links, with the present one.
#[derive(Debug, Default)]
pub(crate) struct Called {
    /// By the last bits of the operation's number.
    headers: [Option<Header>; KEPT],
}

impl Called {
    pub(crate) fn keep(&mut self, header: Header) {
        self.headers[Self::place(header.sequence)] = Some(header);
    }

    /// The header that this rank sent in operation `sequence`, if that is kept.
    pub(crate) fn find(&self, sequence: u64) -> Option<Header> {
        self.headers[Self::place(sequence)].filter(|header| header.sequence == sequence)
    }

    fn place(sequence: u64) -> usize {
        (sequence % KEPT as u64) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_operations_are_kept() {
        let header = |sequence| Header {
            rank: 0,
            sequence,
            count: 8,
            collective: 1,
            data_type: 1,
            reduction: 1,
            root: 0,
        };
        let mut called = Called::default();
        assert_eq!(called.find(0), None);
        (0..20).for_each(|sequence| called.keep(header(sequence)));
        assert_eq!((called.find(3), called.find(20)), (None, None));
        assert!((4..20).all(|sequence| called.find(sequence) == Some(header(sequence))));
    }
}
