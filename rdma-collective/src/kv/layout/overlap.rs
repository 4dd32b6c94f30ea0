//! The checks that no two elements of a group lie in the same bytes, for places that the caller gives, and that groups
//! which share blocks have the same ones.

use super::{LayoutError, Place};

/// Loops of one place with their distances, the farthest first, and the bytes that each repeats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Loops {
    /// Count, distance, and bytes from the first to the last element of what is repeated.
    loops: [(u64, u64, u64); 3],
    /// Bytes from the first to the last of all.
    span: u64,
}

/// Most pairs of places that are compared: those of 1,448 parts that all lie between each other's blocks. More would
/// take a peer's layout long to check.
const PAIRS_MAX: u64 = 1 << 20;

/// Fails unless all elements of all `places` lie apart. `counts` are the blocks, tokens and heads of each, and
/// `element` is the length of an element. The caller has checked that every place fits its tensor.
pub(super) fn check(places: &[Place], counts: [u32; 3], element: u64) -> Result<(), LayoutError> {
    let mut all = Vec::new();
    for (number, place) in places.iter().enumerate() {
        let tensor = place.tensor;
        let loops = Loops::of(place, counts, element).ok_or(LayoutError::StridesOverlap { tensor })?;
        all.push((tensor, place.offset, loops, number));
    }
    all.sort_by_key(|&(tensor, offset, ..)| (tensor, offset));
    let mut pairs = 0;
    for (at, &(tensor, offset, loops, number)) in all.iter().enumerate() {
        let near = all.iter().skip(at + 1);
        let near = near.take_while(|(other, start, ..)| *other == tensor && start - offset < loops.span);
        for &(_, start, other, second) in near {
            pairs += 1;
            if pairs > PAIRS_MAX {
                return Err(LayoutError::TooMany { what: "places that lie between each other", max: 1448 });
            }
            if loops != other || !loops.apart(0, start - offset, element) {
                let (first, second) = (number.min(second), number.max(second));
                return Err(LayoutError::PlacesOverlap { tensor, first, second });
            }
        }
    }
    Ok(())
}

impl Loops {
    /// `None` unless each loop steps over all that it repeats, so that no element meets another one of its place.
    fn of(place: &Place, [blocks, tokens, heads]: [u32; 3], element: u64) -> Option<Self> {
        let mut steps = [(blocks, place.block), (tokens, place.token), (heads, place.head)];
        steps.sort_by_key(|&(count, step)| if count == 1 { 0 } else { step });
        let (mut span, mut loops) = (element, [(1, 0, 0); 3]);
        for (at, (count, step)) in steps.into_iter().enumerate() {
            if count > 1 && step < span {
                return None;
            }
            loops[2 - at] = (count.into(), step, span);
            span += u64::from(count - 1) * step;
        }
        Some(Self { loops, span })
    }

    /// Whether these loops and the same ones `shift` bytes farther share no byte, from loop `at` inwards.
    fn apart(&self, at: usize, shift: u64, element: u64) -> bool {
        let Some(&(count, step, inner)) = self.loops.get(at) else { return shift >= element };
        if count == 1 {
            return self.apart(at + 1, shift, element);
        }
        // A repetition of the shifted loops lies between two of the others.
        let (before, rest) = (shift / step, shift % step);
        let meets = |repetition: u64, shift: u64| repetition < count && shift < inner;
        let one = !meets(before, rest) || self.apart(at + 1, rest, element);
        one && (!meets(before + 1, step - rest) || self.apart(at + 1, step - rest, element))
    }
}

/// The bytes from the first to the last of block 0 of a place, and the distance to the next block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Frame {
    pub(super) tensor: u32,
    pub(super) start: u64,
    pub(super) len: u64,
    pub(super) stride: u64,
    pub(super) blocks: u32,
}

/// Fails unless blocks of two groups share bytes with the block of the same number alone. `groups` are their positions,
/// for the error. Both have equally many blocks, every frame fits its tensor, and the second group's are in the order
/// of tensors. `pairs` counts the pairs of places that were compared in a layout.
pub(super) fn check_shared(
    groups: [usize; 2],
    [one, other]: [&[Frame]; 2],
    pairs: &mut u64,
) -> Result<(), LayoutError> {
    for frame in one {
        let first = other.partition_point(|near| near.tensor < frame.tensor);
        for near in other.iter().skip(first).take_while(|near| near.tensor == frame.tensor) {
            *pairs += 1;
            if *pairs > PAIRS_MAX {
                let what = "pairs of places of two groups in a tensor that they share";
                return Err(LayoutError::TooMany { what, max: PAIRS_MAX });
            }
            if frame.meets(near) {
                return Err(LayoutError::BlocksMeet { groups, tensor: frame.tensor });
            }
        }
    }
    Ok(())
}

impl Frame {
    /// Whether a block of these shares bytes with a block of the others that has another number.
    fn meets(&self, other: &Self) -> bool {
        let [one, two] = [self, other].map(|frame| {
            let first = i128::from(frame.start);
            (first, first + i128::from(frame.len), i128::from(frame.stride) * i128::from(frame.blocks - 1))
        });
        let apart = one.1 + one.2 <= two.0 || two.1 + two.2 <= one.0;
        if self.blocks == 1 || apart {
            return false;
        }
        let stride = i128::from(self.stride);
        if self.stride != other.stride || self.len.max(other.len) > self.stride {
            return true;
        }
        // Blocks of the others that lie around block 0 of these, as their distance from its number.
        let near = (one.0 - two.0).div_euclid(stride);
        (near - 1..=near + 1).any(|distance| {
            let shift = distance * stride;
            let meets = two.0 + shift < one.1 && one.0 < two.1 + shift;
            distance != 0 && distance.abs() < i128::from(self.blocks) && meets
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Marks every byte: the plain way to see whether two elements meet.
    fn meet(places: &[Place], [blocks, tokens, heads]: [u32; 3], element: u64) -> bool {
        let mut bytes = std::collections::HashSet::new();
        for place in places {
            for block in 0..u64::from(blocks) {
                for token in 0..u64::from(tokens) {
                    for head in 0..u64::from(heads) {
                        let at = place.offset + block * place.block + token * place.token + head * place.head;
                        if !(at..at + element).all(|byte| bytes.insert((place.tensor, byte))) {
                            return true;
                        }
                    }
                }
            }
        }
        false
    }

    proptest! {
        #[test]
        fn frames_meet_where_their_bytes_do(
            blocks in 1_u32..5,
            lens in prop::array::uniform2(1_u64..12),
            strides in prop::array::uniform2(1_u64..12),
            starts in prop::array::uniform2(0_u64..40),
        ) {
            let [one, two] = [0, 1].map(|at| {
                let (start, len, stride) = (starts[at], lens[at], strides[at].max(lens[at]));
                Frame { tensor: 0, start, len, stride, blocks }
            });
            let has = |frame: &Frame, block: u32, byte: u64| {
                let start = frame.start + u64::from(block) * frame.stride;
                (start..start + frame.len).contains(&byte)
            };
            let pairs = (0..blocks).flat_map(|block| (0..blocks).map(move |other| (block, other)));
            let mut others = pairs.filter(|(block, other)| block != other);
            let meet = others.any(|(block, other)| (0..200).any(|byte| has(&one, block, byte) && has(&two, other, byte)));
            let found = one.meets(&two);
            // Blocks at different distances are refused even where they happen to miss.
            prop_assert!(found == meet || found && one.stride != two.stride);
            prop_assert_eq!(found, two.meets(&one));
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 4096, ..ProptestConfig::default() })]

        #[test]
        fn places_that_pass_share_no_byte(
            counts in prop::array::uniform3(1_u32..4),
            element in 1_u64..5,
            steps in prop::array::uniform3(1_u64..40),
            starts in prop::collection::vec((0_u32..2, 0_u64..60), 1..4),
        ) {
            let [block, token, head] = steps;
            let place = |&(tensor, offset)| Place { tensor, offset, block, token, head };
            let places: Vec<_> = starts.iter().map(place).collect();
            match check(&places, counts, element) {
                Ok(()) => prop_assert!(!meet(&places, counts, element)),
                // Loops that reach into each other are refused even where they happen to miss.
                Err(LayoutError::StridesOverlap { .. }) => {}
                Err(LayoutError::PlacesOverlap { first, second, .. }) => {
                    prop_assert!(meet(&[places[first], places[second]], counts, element));
                }
                Err(other) => prop_assert!(false, "{other}"),
            }
        }
    }
}
