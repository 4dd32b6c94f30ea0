//! The numerics contract for one pair of elements, computed by wider or exact arithmetic that shares no code with the
//! library. Elements are their bits, behind zeros.

use super::{DataType, ReduceOp};

/// `left op right`.
pub fn combine(data_type: DataType, op: ReduceOp, left: u64, right: u64) -> u64 {
    match format(data_type) {
        Some(format) => format.combine(op, left, right),
        None => {
            let (left, right) = (integer(data_type, left), integer(data_type, right));
            let exact = match op {
                // At most 128 bits, of which the lower ones are right.
                ReduceOp::Prod => left.wrapping_mul(right),
                ReduceOp::Max => left.max(right),
                ReduceOp::Min => left.min(right),
                _ => left + right,
            };
            masked(data_type, exact)
        }
    }
}

/// The result of `op` for an element that is reduced over all ranks.
pub fn finish(data_type: DataType, op: ReduceOp, bits: u64, ranks: u32) -> u64 {
    if op != ReduceOp::Avg {
        return bits;
    }
    match format(data_type) {
        Some(format) if data_type == DataType::F64 => format.nearest(format.value(bits) / f64::from(ranks)),
        // The quotient of two singles: in double precision it has bits enough to be rounded twice.
        Some(format) => {
            let quotient = format.value(bits) / f64::from(ranks as f32);
            format.nearest(f64::from(quotient as f32))
        }
        None => masked(data_type, integer(data_type, bits) / i128::from(ranks)),
    }
}

fn masked(data_type: DataType, exact: i128) -> u64 {
    exact as u64 & (u64::MAX >> (64 - 8 * data_type.size()))
}

/// The buffer of elements; bits beyond an element's are left out.
pub fn bytes(data_type: DataType, elements: impl IntoIterator<Item = u64>) -> Vec<u8> {
    let element = |bits: u64| match data_type.size() {
        1 => vec![bits as u8],
        2 => (bits as u16).to_ne_bytes().to_vec(),
        4 => (bits as u32).to_ne_bytes().to_vec(),
        _ => bits.to_ne_bytes().to_vec(),
    };
    elements.into_iter().flat_map(element).collect()
}

fn integer(data_type: DataType, bits: u64) -> i128 {
    match data_type {
        DataType::I8 => (bits as i8).into(),
        DataType::I16 => (bits as i16).into(),
        DataType::I32 => (bits as i32).into(),
        DataType::I64 => (bits as i64).into(),
        _ => bits.into(),
    }
}

/// A binary floating-point format.
#[derive(Clone, Copy)]
struct Format {
    exponent_bits: u32,
    fraction_bits: u32,
}

fn format(data_type: DataType) -> Option<Format> {
    let (exponent_bits, fraction_bits) = match data_type {
        DataType::F16 => (5, 10),
        DataType::Bf16 => (8, 7),
        DataType::F32 => (8, 23),
        DataType::F64 => (11, 52),
        _ => return None,
    };
    Some(Format { exponent_bits, fraction_bits })
}

impl Format {
    fn combine(self, op: ReduceOp, left: u64, right: u64) -> u64 {
        let (a, b) = (self.value(left), self.value(right));
        match op {
            _ if a.is_nan() || b.is_nan() => self.nan(),
            // Zeros are equal: the sign decides.
            ReduceOp::Max if a == b => left & right,
            ReduceOp::Min if a == b => left | right,
            ReduceOp::Max => {
                if a > b {
                    left
                } else {
                    right
                }
            }
            ReduceOp::Min => {
                if a < b {
                    left
                } else {
                    right
                }
            }
            ReduceOp::Prod => self.computed(a * b),
            _ => self.computed(a + b),
        }
    }

    /// Rounds to single precision first if that is what the type computes in. A sum or product of two singles or
    /// halves is exact in double precision, or has so many bits more that rounding twice does no harm.
    fn computed(self, value: f64) -> u64 {
        let single = self.fraction_bits == 7;
        self.nearest(if single { f64::from(value as f32) } else { value })
    }

    /// The value by the definition of the bits; exact, except that all that is not a number is one.
    fn value(self, bits: u64) -> f64 {
        let Self { exponent_bits, fraction_bits } = self;
        let fraction = bits & ((1 << fraction_bits) - 1);
        let exponent = (bits >> fraction_bits & ((1 << exponent_bits) - 1)) as i32;
        let (bias, top) = ((1 << (exponent_bits - 1)) - 1, (1 << exponent_bits) - 1);
        let scaled = |whole: u64, exponent: i32| scale(whole as f64, exponent - fraction_bits as i32);
        let magnitude = match exponent {
            0 => scaled(fraction, 1 - bias),
            _ if exponent == top && fraction == 0 => f64::INFINITY,
            _ if exponent == top => f64::NAN,
            _ => scaled((1 << fraction_bits) + fraction, exponent - bias),
        };
        if bits >> (exponent_bits + fraction_bits) == 1 { -magnitude } else { magnitude }
    }

    /// The element nearest to a value, ties to even: by bisection over the positive ones.
    fn nearest(self, value: f64) -> u64 {
        if value.is_nan() {
            return self.nan();
        }
        let Self { exponent_bits, fraction_bits } = self;
        let sign = u64::from(value.is_sign_negative()) << (exponent_bits + fraction_bits);
        let (infinity, magnitude) = (self.infinity(), value.abs());
        if magnitude == f64::INFINITY {
            return sign | infinity;
        }
        let (mut low, mut high) = (0, infinity);
        while high - low > 1 {
            let middle = low + (high - low) / 2;
            if self.value(middle) <= magnitude { low = middle } else { high = middle }
        }
        let (below, last) = (self.value(low), infinity - 1);
        // Above the largest, rounding goes on as if there were one more step.
        let above = if high == infinity { 2.0 * below - self.value(last - 1) } else { self.value(high) };
        let (down, up) = (magnitude - below, above - magnitude);
        sign | if up < down || (up == down && low % 2 == 1) { high } else { low }
    }

    fn infinity(self) -> u64 {
        ((1 << self.exponent_bits) - 1) << self.fraction_bits
    }

    /// The one that results are.
    fn nan(self) -> u64 {
        self.infinity() | 1 << (self.fraction_bits - 1)
    }
}

/// `value * 2^exponent`, without leaving the range on the way.
fn scale(value: f64, exponent: i32) -> f64 {
    let half = exponent / 2;
    value * 2_f64.powi(half) * 2_f64.powi(exponent - half)
}
