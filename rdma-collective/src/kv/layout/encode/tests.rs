//! Round trips and arbitrary bytes, and the encoding of version 4.

use proptest::prelude::*;

use super::*;
use crate::kv::layout::Model;
use crate::kv::layout::tests::shapes;

const SHAPE: Shape = Model::LLAMA_3_1_8B.shape(16, 1000, Order::LayerPartBlock);

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Changing the encoding without its version breaks peers of the same version.
#[test]
fn encoding_of_version_4() {
    let layout = Layout::new(SHAPE).unwrap();
    insta::assert_snapshot!(hex(&layout.encode()), @"040001000100000000000000200000001000000008000000800000000000000001000000e8030000");
}

#[test]
fn another_version_and_each_unknown_value_is_refused() {
    let with = |at: usize, value| {
        let mut bytes = Layout::new(SHAPE).unwrap().encode();
        bytes[at] = value;
        Layout::decode(&bytes)
    };
    assert_eq!(with(0, 3), Err(LayoutError::OtherVersion { ours: 4, theirs: 3 }));
    for (at, field) in [
        (2, "shape"),
        (3, "number of groups"),
        (4, "order"),
        (5, "attention"),
        (6, "cache type"),
        (7, "head order"),
        (8, "memory"),
        (9, "layers"),
        (11, "reserved"),
    ] {
        assert_eq!(with(at, 9), Err(LayoutError::Malformed { field }), "byte {at}");
    }
}

/// Tensors of a layer each, keys before values in each.
fn placed(layers: u32, tensor_bytes: u64) -> Group {
    let shape = Shape { layers, blocks: 10, ..SHAPE };
    let place = move |layer: u32, part: u32| Place {
        tensor: layer,
        offset: u64::from(part) * 32768,
        block: 65536,
        token: 2048,
        head: 256,
    };
    let places = (0..layers).flat_map(move |layer| (0..2).map(move |part| place(layer, part)));
    Group::new(shape).at(vec![tensor_bytes; layers as usize], places)
}

#[test]
fn a_thousand_tensors_that_are_alike_take_few_bytes() {
    let layout = Layout::of([placed(1024, 655_360)]).unwrap();
    let bytes = layout.encode();
    assert!(bytes.len() < 300, "{} bytes", bytes.len());
    assert_eq!(Layout::decode(&bytes), Ok(layout));
}

#[test]
fn more_tensors_than_a_layout_may_have_are_refused() {
    let refused = Layout::of([placed(1025, 655_360)]);
    assert_eq!(refused, Err(LayoutError::TooMany { what: "tensors", max: 1024 }));
}

#[test]
fn a_distance_that_wraps_is_refused() {
    let mut bytes = Vec::new();
    put_runs(&mut bytes, [7, 3, 1 << 62].into_iter());
    let taken = take_runs(&mut Reader::new(&bytes), 3, "places").unwrap();
    assert_eq!(taken, [7, 3, 1 << 62]);
    let run = |count: u32, first: u64, step: u64| {
        let fields =
            [&1_u16.to_le_bytes()[..], &count.to_le_bytes(), &first.to_le_bytes(), &step.to_le_bytes()];
        take_runs(&mut Reader::new(&fields.concat()), 9, "places")
    };
    let refused = Err(LayoutError::Malformed { field: "places" });
    assert_eq!(run(3, u64::MAX - 1, 1), refused);
    assert_eq!(run(3, 1, 1_u64.wrapping_neg()), refused);
    assert_eq!(run(10, 1, 1), refused);
    assert_eq!(run(3, 2, 1_u64.wrapping_neg()), Ok(vec![2, 1, 0]));
}

proptest! {
    #[test]
    fn decodes_what_was_encoded(shape in shapes(), tensors in 0_usize..3, first in 0_u32..9, step in 1_u32..4) {
        let tensors = [Tensors::One, Tensors::PerLayer, Tensors::PerPart][tensors];
        let numbers = (0..shape.layers).map(|layer| first + layer * step);
        if let Ok(layout) = Layout::of([Group::new(shape).of_layers(numbers).in_tensors(tensors)]) {
            prop_assert_eq!(Layout::decode(&layout.encode()), Ok(layout));
        }
    }

    #[test]
    fn any_bytes_are_a_layout_or_an_error(at in 0_usize..60, value: u8, rest: Vec<u8>) {
        let mut bytes = Layout::of([placed(3, 655_360)]).unwrap().encode();
        if let Some(byte) = bytes.get_mut(at) {
            *byte = value;
        }
        let _ = Layout::decode(&bytes);
        let _ = Layout::decode(&rest);
    }
}
