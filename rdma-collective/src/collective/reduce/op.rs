//! The operations that combine elements: names and codes. Their arithmetic is in `kernels`.

use std::fmt;
use std::str::FromStr;

use crate::ParseNameError;

/// How the elements of all ranks become one, named as nccl-tests prints it.
///
/// The exact bits for each type are in [`numerics`](crate::collective::numerics).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[doc(alias = "ncclRedOp_t")]
pub enum ReduceOp {
    /// The sum. Integers wrap; floating point that overflows is an infinity.
    #[doc(alias = "ncclSum")]
    Sum,
    /// The product. Integers wrap; floating point that overflows is an infinity.
    #[doc(alias = "ncclProd")]
    Prod,
    /// The largest; NaN when one of them is NaN, and 0 is above -0.
    #[doc(alias = "ncclMax")]
    Max,
    /// The smallest; NaN when one of them is NaN, and -0 is below 0.
    #[doc(alias = "ncclMin")]
    Min,
    /// The sum, divided once by the number of ranks: integers toward 0, floating point rounded.
    ///
    /// An overflow on the way to the sum stays: unlike NCCL, which divides floating point before it adds.
    #[doc(alias = "ncclAvg")]
    Avg,
}

impl ReduceOp {
    /// Every operation, in the order of nccl-tests' `-o all`.
    pub const ALL: &[Self] = &[Self::Sum, Self::Prod, Self::Max, Self::Min, Self::Avg];

    /// The name in the `redop` column of nccl-tests, and of its flag `-o`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sum => "sum",
            Self::Prod => "prod",
            Self::Max => "max",
            Self::Min => "min",
            Self::Avg => "avg",
        }
    }

    /// The code of the operation in the header of an operation; part of the wire format.
    pub(in crate::collective) const fn code(self) -> u8 {
        match self {
            Self::Sum => 1,
            Self::Prod => 2,
            Self::Min => 3,
            Self::Max => 4,
            Self::Avg => 5,
        }
    }

    /// The operation that a header's code stands for.
    pub(in crate::collective) fn of_code(code: u8) -> Option<Self> {
        Self::ALL.iter().copied().find(|op| op.code() == code)
    }
}

impl fmt::Display for ReduceOp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for ReduceOp {
    type Err = ParseNameError;

    fn from_str(name: &str) -> Result<Self, ParseNameError> {
        Self::ALL.iter().copied().find(|op| op.name() == name).ok_or_else(|| ParseNameError {
            what: "operation",
            name: name.to_owned(),
            known: Self::ALL.iter().map(|op| op.name()).collect::<Vec<_>>().join(", "),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_nccl_tests_and_parse_back() {
        for &op in ReduceOp::ALL {
            assert_eq!(op.to_string().parse(), Ok(op));
        }
        assert_eq!(
            "mean".parse::<ReduceOp>().unwrap_err().to_string(),
            "unknown operation \"mean\"; use one of sum, prod, max, min, avg"
        );
    }

    #[test]
    fn codes_stand_for_one_operation_each() {
        let codes: std::collections::HashSet<u8> = ReduceOp::ALL.iter().map(|op| op.code()).collect();
        assert_eq!(codes, (1..=ReduceOp::ALL.len() as u8).collect());
        for &op in ReduceOp::ALL {
            assert_eq!(ReduceOp::of_code(op.code()), Some(op));
        }
        assert_eq!((ReduceOp::of_code(0), ReduceOp::of_code(255)), (None, None));
    }
}
