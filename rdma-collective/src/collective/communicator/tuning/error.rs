//! Errors of tuning tables and of `NCCL_ALGO`. `parse` and `row` raise them.

use crate::collective::UnknownAlgorithm;

/// A tuning table cannot be read, or is not valid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TuningError {
    /// `NCCL_ALGO` names something that is no algorithm.
    #[error("NCCL_ALGO is {value:?}: {source}")]
    Algorithms {
        /// The variable's value.
        value: String,
        /// The name at fault, and the names that exist.
        source: UnknownAlgorithm,
    },
    /// The system refuses the file.
    #[error(
        "tuning file {file} cannot be read: {reason}; set RDMA_TUNING_FILE to one that `tune` has written, or unset it"
    )]
    Unreadable {
        /// The file.
        file: String,
        /// The system's reason.
        reason: String,
    },
    /// The file is longer than a table can be.
    #[error("{file} has more than {bytes_max} bytes, and is no tuning file; write one with `tune`")]
    TooLong {
        /// The file.
        file: String,
        /// The bound.
        bytes_max: usize,
    },
    /// The file is of another version of the format.
    #[error(
        "{file} is a tuning file of version {version}, and this release reads version 1; write it anew with `tune`"
    )]
    OtherVersion {
        /// The file.
        file: String,
        /// The version in the file.
        version: String,
    },
    /// A line makes no sense.
    #[error("{file}, line {line}: {what}; mend the line, or write the file anew with `tune`")]
    Line {
        /// The file, or the other source of the table.
        file: String,
        /// The line, or the row of a table that is no text, from 1 on.
        line: usize,
        /// The mistake in that line.
        what: String,
    },
    /// The end of the file is missing.
    #[error(
        "{file} has no `end` behind its {lines} lines, so it was cut off; copy it again, or write it anew with `tune`"
    )]
    CutOff {
        /// The file.
        file: String,
        /// Number of lines that are there.
        lines: usize,
    },
}
