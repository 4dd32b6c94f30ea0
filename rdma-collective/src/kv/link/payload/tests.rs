//! Round trips of a pool's description, and altered ones.

use proptest::prelude::*;

use super::*;
use crate::kv::layout::tests::shapes;

proptest! {
    #[test]
    fn it_comes_back_and_cut_or_longer_it_does_not(
        shape in shapes(),
        source: bool,
        at in 0_usize..60,
        more in prop::collection::vec(any::<u8>(), 1..4),
    ) {
        let purpose = if source { PoolUse::Source } else { PoolUse::Destination };
        let payload = Payload { purpose, layout: Layout::new(shape).unwrap() };
        let mut bytes = payload.encode();
        prop_assert_eq!(Payload::decode(&bytes).ok(), Some(payload));
        prop_assert!(Payload::decode(&[&bytes[..], &more].concat()).is_err());
        prop_assert!(Payload::decode(&bytes[..bytes.len() - 1]).is_err());
        if let Some(byte) = bytes.get_mut(at) {
            *byte ^= 0x80;
        }
        crate::kv::fuzz_payload(&bytes);
    }
}
