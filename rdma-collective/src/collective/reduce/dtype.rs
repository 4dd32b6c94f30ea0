//! The element types of collectives. Their arithmetic is in `kernels` and `half`.

use std::fmt;
use std::str::FromStr;

use crate::error::{ParseNameError, ReduceError};

/// The type of the elements of a collective, named as nccl-tests prints it.
///
/// Elements are in the byte order of the machine, as in memory: jobs of mixed byte order are not supported.
///
/// ```
/// use rdma_collective::collective::DataType;
///
/// assert_eq!(DataType::F16.size(), 2);
/// assert_eq!("float".parse(), Ok(DataType::F32));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[doc(alias = "ncclDataType_t")]
pub enum DataType {
    /// IEEE 754 single precision, `float`.
    #[doc(alias = "ncclFloat32")]
    F32,
    /// IEEE 754 half precision, `half`.
    #[doc(alias = "ncclFloat16")]
    F16,
}

impl DataType {
    /// Every data type, in the order in which help texts list them.
    pub const ALL: &[Self] = &[Self::F32, Self::F16];

    /// Bytes of one element.
    #[must_use]
    pub const fn size(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::F16 => 2,
        }
    }

    /// The name in the `type` column of nccl-tests, and of its flag `-d`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::F32 => "float",
            Self::F16 => "half",
        }
    }

    /// Bytes of `count` elements.
    ///
    /// # Errors
    /// [`ReduceError::TooManyElements`] when no buffer can have that many bytes.
    pub const fn bytes(self, count: usize) -> Result<usize, ReduceError> {
        match count.checked_mul(self.size()) {
            Some(bytes) if bytes <= isize::MAX as usize => Ok(bytes),
            _ => Err(ReduceError::TooManyElements { count, data_type: self }),
        }
    }
}

impl fmt::Display for DataType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for DataType {
    type Err = ParseNameError;

    fn from_str(name: &str) -> Result<Self, ParseNameError> {
        Self::ALL.iter().copied().find(|t| t.name() == name).ok_or_else(|| ParseNameError {
            what: "data type",
            name: name.to_owned(),
            known: Self::ALL.iter().map(|t| t.name()).collect::<Vec<_>>().join(", "),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_nccl_tests_and_parse_back() {
        for &data_type in DataType::ALL {
            assert_eq!(data_type.to_string().parse(), Ok(data_type));
        }
        assert_eq!(format!("[{:>6}]", DataType::F16), "[  half]");
        assert_eq!(
            "f64".parse::<DataType>().unwrap_err().to_string(),
            "unknown data type \"f64\"; use one of float, half"
        );
    }

    #[test]
    fn a_count_beyond_any_buffer_is_refused() {
        assert_eq!(DataType::F32.bytes(3), Ok(12));
        for count in [usize::MAX, usize::MAX / 4 + 1, isize::MAX as usize / 4 + 1] {
            assert_eq!(
                DataType::F32.bytes(count),
                Err(ReduceError::TooManyElements { count, data_type: DataType::F32 })
            );
        }
    }
}
