//! Errors of the reduction kernels and of the names of data types and operations.

use crate::collective::DataType;

/// Why bytes were not reduced; the destination is untouched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReduceError {
    /// The operands do not have one length.
    #[error("operands of {left} and {right} bytes cannot be reduced; pass ranges of one length")]
    LengthsDiffer {
        /// Bytes of the destination, or of the first operand.
        left: usize,
        /// Bytes of the source that did not match it.
        right: usize,
    },
    /// The operands end inside an element.
    #[error(
        "{bytes} bytes end inside a {data_type} element of {} bytes; pass whole elements",
        data_type.size()
    )]
    PartialElement {
        /// Bytes of each operand.
        bytes: usize,
        /// The element type the bytes were said to hold.
        data_type: DataType,
    },
    /// A count of elements has more bytes than one buffer can.
    #[error(
        "{count} {data_type} elements are more bytes than one buffer can have ({}); split the operation",
        isize::MAX
    )]
    TooManyElements {
        /// The count asked for.
        count: usize,
        /// The element type.
        data_type: DataType,
    },
}

/// A name that is no data type or no operation of this library.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown {what} {name:?}; use one of {known}")]
pub struct ParseNameError {
    pub(crate) what: &'static str,
    pub(crate) name: String,
    pub(crate) known: String,
}
