//! Sequence numbers of 24 bits, which wrap.

const MASK: u32 = 0x00ff_ffff;

/// The sequence number `count` after `psn`.
pub(crate) fn add(psn: u32, count: usize) -> u32 {
    psn.wrapping_add(count as u32) & MASK
}

/// The sequence number before `psn`.
pub(crate) fn before(psn: u32) -> u32 {
    psn.wrapping_sub(1) & MASK
}

/// The distance of `to` after `from`; negative when `to` is before. Right only within half the range, 2^23: a queue
/// holds far fewer requests.
pub(crate) fn distance(from: u32, to: u32) -> i32 {
    let ahead = to.wrapping_sub(from) & MASK;
    if ahead > MASK / 2 { ahead as i32 - (MASK as i32 + 1) } else { ahead as i32 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances_hold_across_the_wrap() {
        assert_eq!(distance(MASK, 0), 1);
        assert_eq!(distance(0, MASK), -1);
        assert_eq!(add(MASK, 3), 2);
        for start in [0, 1, MASK / 2, MASK - 1, MASK] {
            for count in [0usize, 1, 2, 16384] {
                assert_eq!(distance(start, add(start, count)), count as i32);
                assert_eq!(distance(add(start, count), start), -(count as i32));
            }
        }
    }
}
