//! The Rust types that stand for a [`DataType`], so that slices of them can be reduced.

use super::DataType;
use half::{bf16, f16};

/// A number that collectives can reduce; sealed, one type for each [`DataType`].
///
/// ```
/// use rdma_collective::collective::{DataType, Element, bf16};
///
/// fn type_of<T: Element>(_: &[T]) -> DataType {
///     T::DATA_TYPE
/// }
/// assert_eq!(type_of(&[bf16::from_f32(1.5)]), DataType::Bf16);
/// assert_eq!(type_of(&[1_u64]), DataType::U64);
/// ```
pub trait Element: sealed::Plain {
    /// The data type this Rust type stands for.
    const DATA_TYPE: DataType;
}

mod sealed {
    /// Conversions between elements and their bytes; sealed, because every bit pattern must be a value: a peer's bytes
    /// become elements.
    pub trait Plain: bytemuck::Pod + Send + Sync {
        /// The bytes of `elements` as they are in memory.
        fn as_bytes(elements: &[Self]) -> &[u8] {
            bytemuck::cast_slice(elements)
        }

        /// The bytes of `elements` as they are in memory, to be changed in place.
        fn as_bytes_mut(elements: &mut [Self]) -> &mut [u8] {
            bytemuck::cast_slice_mut(elements)
        }

        /// The elements in `bytes`; none if the bytes are not aligned for them or end inside an element.
        fn from_bytes(bytes: &[u8]) -> &[Self] {
            bytemuck::try_cast_slice(bytes).unwrap_or_default()
        }

        /// The elements in `bytes`, to be changed in place; none under the same conditions.
        fn from_bytes_mut(bytes: &mut [u8]) -> &mut [Self] {
            bytemuck::try_cast_slice_mut(bytes).unwrap_or_default()
        }
    }
}

macro_rules! elements {
    ($($element:ty => $data_type:ident),*) => {$(
        impl sealed::Plain for $element {}

        impl Element for $element {
            const DATA_TYPE: DataType = DataType::$data_type;
        }
    )*};
}

elements!(
    i8 => I8, u8 => U8, i16 => I16, u16 => U16, i32 => I32, u32 => U32, i64 => I64, u64 => U64,
    f16 => F16, f32 => F32, f64 => F64, bf16 => Bf16
);

#[cfg(test)]
mod tests;
