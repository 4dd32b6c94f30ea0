//! Sequence numbers of 24 bits, which wrap.

pub(crate) const MASK_24: u32 = 0x00ff_ffff;

/// The sequence number `count` after `psn`.
pub(crate) fn add(psn: u32, count: usize) -> u32 {
    psn.wrapping_add(count as u32) & MASK_24
}

/// The sequence number before `psn`.
pub(crate) fn before(psn: u32) -> u32 {
    psn.wrapping_sub(1) & MASK_24
}

/// The distance of `to` after `from`; negative when `to` is before. Right only within half the range, 2^23: a queue
/// holds far fewer requests.
pub(crate) fn distance(from: u32, to: u32) -> i32 {
    let ahead = to.wrapping_sub(from) & MASK_24;
    if ahead > MASK_24 / 2 { ahead as i32 - (MASK_24 as i32 + 1) } else { ahead as i32 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances_hold_across_the_wrap() {
        assert_eq!(distance(MASK_24, 0), 1);
        assert_eq!(distance(0, MASK_24), -1);
        assert_eq!(add(MASK_24, 3), 2);
        for start in [0, 1, MASK_24 / 2, MASK_24 - 1, MASK_24] {
            for count in [0usize, 1, 2, 16384] {
                assert_eq!(distance(start, add(start, count)), count as i32);
                assert_eq!(distance(add(start, count), start), -(count as i32));
            }
        }
    }
}
