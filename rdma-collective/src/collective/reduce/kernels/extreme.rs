//! The larger and the smaller of two floats, by their bits: what is not a number wins, and -0 is below 0.
//!
//! That is IEEE 754-2019's `maximum` and `minimum`, with one bit pattern for what is not a number: the result does
//! not depend on the order in which ranks are reduced.

macro_rules! extremes {
    ($format:ident, $bits:ty, $integer:ty, infinity $infinity:literal, nan $nan:literal) => {
        pub(super) mod $format {
            pub(in super::super) const INFINITY: $bits = $infinity;
            /// The one bit pattern that results have for what is not a number.
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

            /// An integer that is above another's when the float is.
            #[inline(always)]
            fn rank(bits: $bits) -> $integer {
                let integer = bits as $integer;
                integer ^ ((integer >> (<$bits>::BITS - 1)) as $bits >> 1) as $integer
            }

            /// By the bits, which an emulated processor compares at once; floats it compares one by one.
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
