//! The element types of collectives: names, sizes and codes. Their arithmetic is in `kernels`.

use std::fmt;
use std::str::FromStr;

use crate::ParseNameError;
use crate::collective::ReduceError;

/// The type of the elements of a collective, named as nccl-tests prints it.
///
/// Elements are in the byte order of the machine, as in memory: jobs of mixed byte order are not supported. The
/// exact bits of each operation are in [`numerics`](crate::collective::numerics).
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
    /// 8 bits with a sign, `int8`.
    #[doc(alias = "ncclInt8")]
    I8,
    /// 8 bits, `uint8`.
    #[doc(alias = "ncclUint8")]
    U8,
    /// 16 bits with a sign, `int16`; NCCL does not have it.
    I16,
    /// 16 bits, `uint16`; NCCL does not have it.
    U16,
    /// 32 bits with a sign, `int32`.
    #[doc(alias = "ncclInt32")]
    I32,
    /// 32 bits, `uint32`.
    #[doc(alias = "ncclUint32")]
    U32,
    /// 64 bits with a sign, `int64`.
    #[doc(alias = "ncclInt64")]
    I64,
    /// 64 bits, `uint64`.
    #[doc(alias = "ncclUint64")]
    U64,
    /// IEEE 754 half precision, `half`: computed in single precision, rounded once a pass.
    #[doc(alias = "ncclFloat16")]
    F16,
    /// IEEE 754 single precision, `float`.
    #[doc(alias = "ncclFloat32")]
    F32,
    /// IEEE 754 double precision, `double`.
    #[doc(alias = "ncclFloat64")]
    F64,
    /// The upper half of single precision, `bfloat16`: computed in single precision, rounded once a pass.
    #[doc(alias = "ncclBfloat16")]
    Bf16,
}

impl DataType {
    /// Every data type, in the order of nccl-tests' `-d all`.
    pub const ALL: &[Self] = &[
        Self::I8,
        Self::U8,
        Self::I16,
        Self::U16,
        Self::I32,
        Self::U32,
        Self::I64,
        Self::U64,
        Self::F16,
        Self::F32,
        Self::F64,
        Self::Bf16,
    ];

    /// Bytes of one element.
    #[must_use]
    pub const fn size(self) -> usize {
        match self {
            Self::I8 | Self::U8 => 1,
            Self::I16 | Self::U16 | Self::F16 | Self::Bf16 => 2,
            Self::I32 | Self::U32 | Self::F32 => 4,
            Self::I64 | Self::U64 | Self::F64 => 8,
        }
    }

    /// The name in the `type` column of nccl-tests, and of its flag `-d`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::I8 => "int8",
            Self::U8 => "uint8",
            Self::I16 => "int16",
            Self::U16 => "uint16",
            Self::I32 => "int32",
            Self::U32 => "uint32",
            Self::I64 => "int64",
            Self::U64 => "uint64",
            Self::F16 => "half",
            Self::F32 => "float",
            Self::F64 => "double",
            Self::Bf16 => "bfloat16",
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

    /// The code of the type in the header of an operation; part of the wire format.
    pub(in crate::collective) const fn code(self) -> u8 {
        match self {
            Self::F32 => 1,
            Self::F16 => 2,
            Self::F64 => 3,
            Self::Bf16 => 4,
            Self::I8 => 5,
            Self::I16 => 6,
            Self::I32 => 7,
            Self::I64 => 8,
            Self::U8 => 9,
            Self::U16 => 10,
            Self::U32 => 11,
            Self::U64 => 12,
        }
    }

    /// The type that a header's code stands for.
    pub(in crate::collective) fn of_code(code: u8) -> Option<Self> {
        Self::ALL.iter().copied().find(|data_type| data_type.code() == code)
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
mod tests;
