//! Sizes of the Rust types, and their bytes in memory.

use super::sealed::Plain;
use super::*;

#[test]
fn elements_have_the_size_of_their_data_type() {
    fn size_matches<T: Element>() -> DataType {
        assert_eq!(size_of::<T>(), T::DATA_TYPE.size());
        T::DATA_TYPE
    }
    let data_types = [
        size_matches::<i8>(),
        size_matches::<u8>(),
        size_matches::<i16>(),
        size_matches::<u16>(),
        size_matches::<i32>(),
        size_matches::<u32>(),
        size_matches::<i64>(),
        size_matches::<u64>(),
        size_matches::<f16>(),
        size_matches::<f32>(),
        size_matches::<f64>(),
        size_matches::<bf16>(),
    ];
    assert_eq!(data_types, *DataType::ALL);
}

#[test]
fn bytes_are_those_in_memory() {
    let mut halves = [f16::ONE, f16::NEG_ONE];
    assert_eq!(Plain::as_bytes(&halves), [0x3c00_u16.to_ne_bytes(), 0xbc00_u16.to_ne_bytes()].concat());
    Plain::as_bytes_mut(&mut halves)[..2].copy_from_slice(&0x4000_u16.to_ne_bytes());
    assert_eq!(halves[0], f16::from_f32(2.0));
    assert!(f32::as_bytes(&[]).is_empty());
}
