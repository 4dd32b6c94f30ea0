//! The error of a name that is parsed: data types, reductions and models share it.

/// A name that no data type, reduction or model of this library has.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown {what} {name:?}; use one of {known}")]
pub struct ParseNameError {
    pub(crate) what: &'static str,
    pub(crate) name: String,
    pub(crate) known: String,
}
