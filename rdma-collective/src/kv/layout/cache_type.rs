//! Element types of a cache.

use std::fmt;

/// The element type of a cache.
///
/// A transfer moves bytes and never looks into them. Scales of quantised types that lie outside of the blocks are a
/// [`Group`](crate::kv::layout::Group) of their own.
///
/// A part of [`Shape`](crate::kv::layout::Shape).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum CacheType {
    /// `bfloat16`, what most models are served in.
    Bf16,
    /// IEEE 754 half precision.
    F16,
    /// IEEE 754 single precision.
    F32,
    /// 8 bits, 4 of them exponent and 3 mantissa, without infinities: the usual type of a quantised cache.
    Fp8E4m3,
    /// 8 bits, 5 of them exponent and 2 mantissa.
    Fp8E5m2,
    /// Integers of 8 bits, quantised.
    I8,
}

impl CacheType {
    /// Every type, in the order of their codes on the wire.
    pub const ALL: &[Self] = &[Self::Bf16, Self::F16, Self::F32, Self::Fp8E4m3, Self::Fp8E5m2, Self::I8];

    /// Bytes of one element.
    #[must_use]
    pub const fn size(self) -> u32 {
        match self {
            Self::Bf16 | Self::F16 => 2,
            Self::F32 => 4,
            Self::Fp8E4m3 | Self::Fp8E5m2 | Self::I8 => 1,
        }
    }

    /// The code on the wire, which is the index in [`ALL`](Self::ALL): variants are declared in that order.
    pub(super) const fn code(self) -> u8 {
        self as u8
    }
}

impl fmt::Display for CacheType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Bf16 => "bfloat16",
            Self::F16 => "half",
            Self::F32 => "float",
            Self::Fp8E4m3 => "fp8_e4m3",
            Self::Fp8E5m2 => "fp8_e5m2",
            Self::I8 => "int8",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_places() {
        for (code, cache_type) in (0..).zip(CacheType::ALL) {
            assert_eq!(cache_type.code(), code);
        }
    }
}
