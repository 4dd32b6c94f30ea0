//! The operations that combine elements. Their arithmetic is in `kernels` and `half`.

use std::fmt;
use std::str::FromStr;

use crate::error::ParseNameError;

/// How the elements of all ranks become one, named as nccl-tests prints it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[doc(alias = "ncclRedOp_t")]
pub enum ReduceOp {
    /// The sum; each hop of a ring computes half precision in single precision and rounds once.
    #[doc(alias = "ncclSum")]
    Sum,
}

impl ReduceOp {
    /// Every operation, in the order in which help texts list them.
    pub const ALL: &[Self] = &[Self::Sum];

    /// The name in the `redop` column of nccl-tests, and of its flag `-o`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sum => "sum",
        }
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
            "avg".parse::<ReduceOp>().unwrap_err().to_string(),
            "unknown operation \"avg\"; use one of sum"
        );
    }
}
