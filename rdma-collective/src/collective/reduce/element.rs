//! The Rust types that stand for a [`DataType`], so that slices of them can be reduced.

use super::DataType;
use half::f16;

/// A number that collectives can reduce; sealed, one type for each [`DataType`].
///
/// ```
/// use rdma_collective::collective::{DataType, Element, f16};
///
/// fn type_of<T: Element>(_: &[T]) -> DataType {
///     T::DATA_TYPE
/// }
/// assert_eq!(type_of(&[f16::from_f32(1.5)]), DataType::F16);
/// ```
pub trait Element: sealed::Plain {
    /// The data type this Rust type stands for.
    const DATA_TYPE: DataType;

    /// The bytes of `elements` as they are in memory.
    fn as_bytes(elements: &[Self]) -> &[u8] {
        bytemuck::cast_slice(elements)
    }

    /// The bytes of `elements` as they are in memory, to be changed in place.
    fn as_bytes_mut(elements: &mut [Self]) -> &mut [u8] {
        bytemuck::cast_slice_mut(elements)
    }
}

impl Element for f32 {
    const DATA_TYPE: DataType = DataType::F32;
}

impl Element for f16 {
    const DATA_TYPE: DataType = DataType::F16;
}

mod sealed {
    /// Any bit pattern is a value, so that bytes from a peer can become elements.
    pub trait Plain: bytemuck::Pod + Send + Sync {}
    impl Plain for f32 {}
    impl Plain for half::f16 {}
}

#[cfg(test)]
mod tests {
    use super::*;

    fn size_matches<T: Element>() {
        assert_eq!(size_of::<T>(), T::DATA_TYPE.size());
    }

    #[test]
    fn elements_have_the_size_of_their_data_type() {
        size_matches::<f32>();
        size_matches::<f16>();
    }

    #[test]
    fn bytes_are_those_in_memory() {
        let mut halves = [f16::ONE, f16::NEG_ONE];
        assert_eq!(Element::as_bytes(&halves), [0x3c00_u16.to_ne_bytes(), 0xbc00_u16.to_ne_bytes()].concat());
        Element::as_bytes_mut(&mut halves)[..2].copy_from_slice(&0x4000_u16.to_ne_bytes());
        assert_eq!(halves[0], f16::from_f32(2.0));
        assert!(f32::as_bytes(&[]).is_empty());
    }
}
