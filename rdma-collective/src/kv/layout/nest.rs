//! Loops over equal pieces that lie at fixed distances in two memories.

/// Dimensions that a nest has at most: part, token and head.
pub(in crate::kv) const DIMS: usize = 3;

/// A loop: how often, and the distance of two neighbours in each memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::kv) struct Dim {
    pub(in crate::kv) count: u32,
    pub(in crate::kv) steps: [u64; 2],
}

impl Dim {
    pub(in crate::kv) const ONE: Self = Self { count: 1, steps: [0; 2] };
}

/// Nested loops over pieces of `len` bytes, the outermost loop first. Loops that go round once come first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::kv) struct Nest {
    pub(in crate::kv) dims: [Dim; DIMS],
    pub(in crate::kv) len: u64,
}

impl Nest {
    /// Orders the loops by their distance in memory `by`, the farthest outermost, and joins loops whose pieces are
    /// adjacent in both memories: what is left has the longest pieces, and the fewest loops.
    pub(in crate::kv) fn new(len: u64, mut dims: [Dim; DIMS], by: usize) -> Self {
        let outermost = |dim: &Dim| {
            let step = dim.steps.get(by).copied().unwrap_or(0);
            std::cmp::Reverse(if dim.count == 1 { u64::MAX } else { step })
        };
        dims.sort_by_key(outermost);
        let mut inner = Dim { count: 1, steps: [len; 2] };
        let mut joined = [Dim::ONE; DIMS];
        let mut at = DIMS;
        let mut len = len;
        for dim in dims.into_iter().rev().filter(|dim| dim.count > 1) {
            let reach = inner.steps.map(|step| step.saturating_mul(inner.count.into()));
            let adjacent = dim.steps == reach;
            match joined.get_mut(at) {
                // No loop is left inside, so the piece itself grows.
                None if adjacent => len = len.saturating_mul(dim.count.into()),
                Some(outer) if adjacent => outer.count = outer.count.saturating_mul(dim.count),
                _ => {
                    at -= 1;
                    joined[at] = dim;
                }
            }
            inner = joined.get(at).copied().unwrap_or(Dim { count: 1, steps: [len; 2] });
        }
        Self { dims: joined, len }
    }

    /// The offset of each piece in both memories.
    pub(in crate::kv) fn offsets(self) -> impl Iterator<Item = [u64; 2]> {
        let [outer, middle, inner] = self.dims;
        let steps = |dim: Dim| (0..u64::from(dim.count)).map(move |at| dim.steps.map(|step| at * step));
        let add = |one: [u64; 2], other: [u64; 2]| [one[0] + other[0], one[1] + other[1]];
        steps(outer).flat_map(move |one| {
            steps(middle).flat_map(move |two| steps(inner).map(move |three| add(add(one, two), three)))
        })
    }

    /// Number of pieces.
    pub(in crate::kv) fn pieces(&self) -> u64 {
        self.dims.iter().map(|dim| u64::from(dim.count)).product()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dim(count: u32, steps: [u64; 2]) -> Dim {
        Dim { count, steps }
    }

    #[test]
    fn loops_that_are_adjacent_in_both_memories_become_one_piece() {
        // [part 2][token 4][head 3] of 8 bytes, alike on both sides.
        let nest = Nest::new(8, [dim(2, [96; 2]), dim(4, [24; 2]), dim(3, [8; 2])], 1);
        assert_eq!((nest.len, nest.pieces()), (192, 1));
    }

    #[test]
    fn a_loop_that_is_adjacent_on_one_side_alone_stays() {
        // Three of six heads: 24 of 48 bytes a token.
        let nest = Nest::new(8, [Dim::ONE, dim(4, [24, 48]), dim(3, [8; 2])], 1);
        assert_eq!((nest.len, nest.dims[2], nest.pieces()), (24, dim(4, [24, 48]), 4));
    }

    #[test]
    fn the_order_is_that_of_the_chosen_memory() {
        let (token, head) = (dim(4, [24, 8]), dim(3, [8, 32]));
        assert_eq!(Nest::new(8, [Dim::ONE, token, head], 0).dims, [Dim::ONE, token, head]);
        assert_eq!(Nest::new(8, [Dim::ONE, token, head], 1).dims, [Dim::ONE, head, token]);
    }

    #[test]
    fn two_loops_that_continue_each_other_become_one() {
        let nest = Nest::new(8, [dim(2, [64, 400]), dim(4, [16, 100]), Dim::ONE], 1);
        assert_eq!((nest.dims[2], nest.pieces()), (dim(8, [16, 100]), 8));
    }
}
