//! Round trips of a pool's description, and altered ones.

use proptest::prelude::*;

use super::*;
use crate::kv::layout::tests::shapes;
use crate::kv::layout::{Group, Model, Order, Shape, Tensors};

/// A tensor a layer.
fn tensors(layers: u32) -> Layout {
    let shape = Shape { layers, ..Model::LLAMA_3_1_8B.shape(16, 10, Order::LayerPartBlock) };
    Layout::of([Group::new(shape).in_tensors(Tensors::PerLayer)]).unwrap()
}

fn destination(layout: Layout, places: impl Iterator<Item = (u64, u32)>) -> Payload {
    let places = places.map(|(addr, rkey)| RemoteMemory { addr, len: 0, rkey: RemoteKey(rkey) });
    let memory = Pieces::each(&layout, places).with_lengths(&layout);
    Payload { purpose: PoolUse::Destination, strict: false, layout, memory: Some(memory) }
}

#[test]
fn a_thousand_tensors_take_few_bytes_if_alike_and_fit_a_blob_at_any_places() {
    let alike =
        destination(tensors(1024), (0..1024).map(|at| (0x7f00_0000_0000 + (at << 30), at as u32 * 256)));
    let bytes = alike.encode();
    assert!(bytes.len() < 200, "{} bytes", bytes.len());
    assert_eq!(Payload::decode(&bytes).unwrap(), alike);
    let odd = |at: u64| at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 8;
    let anywhere = destination(tensors(1024), (0..1024).map(|at| (odd(at), odd(at + 2000) as u32)));
    let bytes = anywhere.encode();
    assert!(bytes.len() <= crate::link::PAYLOAD_BYTES_MAX, "{} bytes", bytes.len());
    assert_eq!(Payload::decode(&bytes).unwrap(), anywhere);
}

/// The description of two tensors, with other addresses.
fn with_addresses(count: u32, first: u64, step: u64) -> Result<Payload, String> {
    let layout = tensors(2);
    let mut bytes = vec![2, 0, 0, 0];
    layout.encode_to(&mut bytes);
    bytes.push(EACH);
    bytes.extend(1_u16.to_le_bytes());
    bytes.extend(count.to_le_bytes());
    bytes.extend(first.to_le_bytes());
    bytes.extend(step.to_le_bytes());
    put_runs(&mut bytes, [1, 2].into_iter());
    Payload::decode(&bytes).map_err(|error| error.to_string())
}

#[test]
fn memory_that_wraps_or_is_of_another_number_of_tensors_is_refused() {
    assert!(with_addresses(2, 4096, 1 << 30).is_ok());
    for (count, first, step) in [
        (1, 4096, 0),
        (3, 4096, 1 << 30),
        (1025, 4096, 1 << 30),
        (2, u64::MAX - 4096, 4096),
        (2, u64::MAX - 8, 8),
        (2, 4096, 1 << 63),
    ] {
        let refused = with_addresses(count, first, step).unwrap_err();
        assert!(refused.contains("addresses") || refused.contains("memory of its pool"), "{refused}");
    }
}

#[test]
fn a_source_is_never_strict() {
    for (purpose, may_be) in [(PoolUse::SourceToPull, false), (PoolUse::Destination, true)] {
        let memory = destination(tensors(2), [(0, 1), (1 << 30, 2)].into_iter()).memory;
        let bytes = Payload { purpose, strict: true, layout: tensors(2), memory }.encode();
        assert_eq!(Payload::decode(&bytes).is_ok(), may_be);
    }
}

#[test]
fn a_source_exports_nothing_and_a_destination_must() {
    let memory = destination(tensors(2), [(0, 1), (1 << 30, 2)].into_iter()).memory;
    for (purpose, memory) in [(PoolUse::Source, memory), (PoolUse::Destination, None)] {
        let bytes = Payload { purpose, strict: false, layout: tensors(2), memory }.encode();
        assert!(Payload::decode(&bytes).is_err());
    }
}

proptest! {
    #[test]
    fn it_comes_back_and_cut_or_longer_it_does_not(
        shape in shapes(),
        source: bool,
        strict: bool,
        addr in 0_u64..1 << 47,
        at in 0_usize..60,
        more in prop::collection::vec(any::<u8>(), 1..4),
    ) {
        let layout = Layout::new(shape).unwrap();
        let whole = Pieces::one(RemoteMemory { addr, len: 0, rkey: RemoteKey(7) }).with_lengths(&layout);
        let (purpose, memory) =
            if source { (PoolUse::Source, None) } else { (PoolUse::Destination, Some(whole)) };
        let payload = Payload { purpose, strict: strict && !source, layout, memory };
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
