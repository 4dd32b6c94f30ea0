//! Round trips of a pool's description, and altered ones.

use super::*;
use crate::kv::layout::order::tests::shapes;
use proptest::prelude::*;

proptest! {
    #[test]
    fn it_comes_back_and_altered_it_does_not(
        shape in shapes(),
        source: bool,
        at in 0..4 + Shape::ENCODED_BYTES - 4,
        more in prop::collection::vec(any::<u8>(), 1..4),
    ) {
        let purpose = if source { PoolUse::Source } else { PoolUse::Destination };
        let payload = Payload { purpose, shape, hash: shape.layout_hash().0 };
        let mut bytes = payload.encode();
        prop_assert_eq!(Payload::decode(&bytes).ok(), Some(payload));
        crate::kv::fuzz_payload(&bytes);
        prop_assert!(Payload::decode(&[&bytes[..], &more].concat()).is_err());
        prop_assert!(Payload::decode(&bytes[..bytes.len() - 1]).is_err());
        // Rank and head order of a latent cache are not hashed, so any value is accepted.
        bytes[at] ^= 0x80;
        if let Ok(altered) = Payload::decode(&bytes) {
            prop_assert_eq!(altered.shape.layout_hash(), shape.layout_hash());
        }
    }
}
