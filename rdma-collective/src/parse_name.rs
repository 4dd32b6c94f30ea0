//! The error of a name that is parsed: data types, reductions and models share it.

/// A name that no data type, reduction or model of this library has.
///
/// Raised where a text is parsed as [`DataType`](crate::collective::DataType),
/// [`ReduceOp`](crate::collective::ReduceOp) or [`Model`](crate::kv::layout::Model).
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown {what} {:?}; use one of {known}", crate::quoted::Quoted(name))]
pub struct ParseNameError {
    pub(crate) what: &'static str,
    pub(crate) name: String,
    pub(crate) known: String,
}
