//! Maximum and minimum of two floats, by their bits: a NaN wins, and -0 is below 0.
//!
//! These are `maximum` and `minimum` of IEEE 754-2019, with one bit pattern for NaN, so that the result does
//! not depend on the order in which ranks are reduced.

macro_rules! extremes {
    ($format:ident, $bits:ty, $integer:ty, infinity $infinity:literal, nan $nan:literal) => {
        pub(super) mod $format {
            pub(in super::super) const INFINITY: $bits = $infinity;
            /// The bit pattern of every NaN in a result.
            pub(in super::super) const NAN: $bits = $nan;

            #[inline(always)]
            pub(in super::super) fn maximum(left: $bits, right: $bits) -> $bits {
                let larger = if rank(left) > rank(right) { left } else { right };
                if is_nan(left) | is_nan(right) { NAN } else { larger }
            }

            #[inline(always)]
            pub(in super::super) fn minimum(left: $bits, right: $bits) -> $bits {
                let smaller = if rank(left) < rank(right) { left } else { right };
                if is_nan(left) | is_nan(right) { NAN } else { smaller }
            }

            /// An integer that orders as the float does: for a negative float all bits but the sign are inverted,
            /// because its magnitude grows as the float falls.
            #[inline(always)]
            fn rank(bits: $bits) -> $integer {
                let integer = bits as $integer;
                integer ^ ((integer >> (<$bits>::BITS - 1)) as $bits >> 1) as $integer
            }

            /// Compares the bits as an integer, which is one vector comparison; an emulated processor compares floats
            /// one by one.
            #[inline(always)]
            pub(in super::super) fn is_nan(bits: $bits) -> bool {
                bits & (<$bits>::MAX >> 1) > INFINITY
            }
        }
    };
}

extremes!(half, u16, i16, infinity 0x7c00, nan 0x7e00);
extremes!(single, u32, i32, infinity 0x7f80_0000, nan 0x7fc0_0000);
extremes!(double, u64, i64, infinity 0x7ff0_0000_0000_0000, nan 0x7ff8_0000_0000_0000);
extremes!(brain, u16, i16, infinity 0x7f80, nan 0x7fc0);
