//! Errors of tuning tables and of `NCCL_ALGO`. `parse` and `row` raise them.

use crate::collective::UnknownAlgorithm;
use crate::quoted::Quoted;

/// A tuning table cannot be read, or is not valid.
///
/// The text names the file and the line, and says what to mend. Show it: no program can mend one cause and not another.
///
/// Raised by [`Tuning::read`](crate::collective::tuning::Tuning::read).
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[error(transparent)]
pub struct TuningError(#[from] TuningErrorKind);

/// The reason why a tuning table cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum TuningErrorKind {
    /// `NCCL_ALGO` names something that is no algorithm.
    #[error("NCCL_ALGO is {:?}: {source}", Quoted(value))]
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
    /// The file as a whole is no table that this release reads: too long, cut off, or of another version.
    #[error("{file} {reason}")]
    NoTable {
        /// The file, or the other source of the table.
        file: String,
        /// The fault, and the mend.
        reason: String,
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
}
