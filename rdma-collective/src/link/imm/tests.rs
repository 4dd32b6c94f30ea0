//! Round trips of every immediate, and counters that wrap.

use super::*;
use proptest::prelude::*;

fn any_imm() -> impl Strategy<Value = Imm> {
    prop_oneof![
        (0..SLOTS_MAX, any::<u16>()).prop_map(|(slot, turn)| Imm::Message { slot, turn }),
        (0..=COUNT_MASK).prop_map(|count| Imm::Freed { count }),
        (0..=COUNT_MASK).prop_map(|count| Imm::Credit { count }),
        (any::<u8>(), 0..WRITES_MAX).prop_map(|(transfer, index)| Imm::Block { transfer, index }),
        Just(Imm::Alive),
    ]
}

proptest! {
    #[test]
    fn every_immediate_comes_back(imm in any_imm()) {
        prop_assert_eq!(Imm::decode(imm.encode()), Ok(imm));
    }

    #[test]
    fn what_decodes_encodes_to_the_same_bits(word: u32) {
        match Imm::decode(word) {
            Ok(imm) => prop_assert_eq!(imm.encode(), word),
            Err(unknown) => prop_assert_eq!(unknown, UnknownImm(word)),
        }
    }

    #[test]
    fn counters_advance_over_their_wrap(known: u64, ahead in 0_u64..1000) {
        let known = known >> 8;
        let count = (known + ahead) as u32 & COUNT_MASK;
        prop_assert_eq!(advanced(known, count, 1000), Some(ahead));
        prop_assert_eq!(advanced(known + ahead + 1, count, 1000), None);
    }
}

#[test]
fn zero_is_no_immediate() {
    assert_eq!(Imm::decode(0), Err(UnknownImm(0)));
}
