//! Who is in which of the communicators that one is split into: pure data.

use crate::link::codec::{Ended, Reader};

/// Bytes of what a rank asks for.
pub(super) const WISH_BYTES: usize = 9;

/// What a rank asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Wish {
    pub(super) color: Option<u32>,
    pub(super) key: i32,
}

impl Wish {
    pub(super) fn encode(self) -> [u8; WISH_BYTES] {
        let mut bytes = [0; WISH_BYTES];
        let (has_color, rest) = bytes.split_at_mut(1);
        has_color[0] = self.color.is_some().into();
        rest[..4].copy_from_slice(&self.color.unwrap_or(0).to_le_bytes());
        rest[4..].copy_from_slice(&self.key.to_le_bytes());
        bytes
    }

    fn decode(bytes: &[u8]) -> Result<Self, Ended> {
        let mut reader = Reader::new(bytes);
        let (has_color, color, key) = (reader.u8()? != 0, reader.u32()?, reader.u32()?);
        Ok(Self { color: has_color.then_some(color), key: key.cast_signed() })
    }
}

/// The ranks that are together with a rank of `color`, by their ranks there: in the order of their keys, those of one key in their
/// order here.
pub(super) fn of_color(wishes: &[u8], color: u32) -> Result<Vec<u32>, Ended> {
    let mut members = Vec::new();
    for (rank, wish) in (0_u32..).zip(wishes.chunks(WISH_BYTES)) {
        let wish = Wish::decode(wish)?;
        if wish.color == Some(color) {
            members.push((wish.key, rank));
        }
    }
    members.sort_unstable();
    Ok(members.into_iter().map(|(_, rank)| rank).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wishes(all: &[(Option<u32>, i32)]) -> Vec<u8> {
        all.iter().flat_map(|(color, key)| Wish { color: *color, key: *key }.encode()).collect()
    }

    #[test]
    fn ranks_of_a_color_come_by_key_and_then_by_rank() {
        let all = [(Some(7), 3), (None, -9), (Some(7), -2), (Some(0), 0), (Some(7), 3), (Some(7), i32::MIN)];
        let bytes = wishes(&all);
        assert_eq!(of_color(&bytes, 7), Ok(vec![5, 2, 0, 4]));
        assert_eq!(of_color(&bytes, 0), Ok(vec![3]), "none is not color 0");
        assert_eq!(of_color(&bytes, 1), Ok(vec![]));
    }

    #[test]
    fn wishes_come_back_and_half_a_wish_is_none() {
        for wish in [(None, 0), (None, -1), (Some(0), i32::MAX), (Some(u32::MAX), i32::MIN)] {
            let bytes = wishes(&[wish]);
            assert_eq!(Wish::decode(&bytes), Ok(Wish { color: wish.0, key: wish.1 }));
            for len in 0..bytes.len() {
                assert!(Wish::decode(&bytes[..len]).is_err());
            }
        }
    }
}
