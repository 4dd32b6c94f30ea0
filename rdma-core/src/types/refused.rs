//! [`Refused`], the error that gives a consumed object back.

use std::error::Error;
use std::fmt;

/// The error of a call that consumed an object and failed, together with the object.
///
/// ```
/// use rdma_core::Refused;
/// let refused = Refused { object: vec![1, 2], error: std::io::Error::other("busy") };
/// assert_eq!(refused.to_string(), "busy");
/// let again = refused.object;
/// assert_eq!(again, [1, 2]);
/// ```
#[must_use]
pub struct Refused<T, E> {
    /// The object that was handed in, unchanged and still usable.
    pub object: T,
    /// The reason why the call failed.
    pub error: E,
}

impl<T, E> Refused<T, E> {
    /// Converts the error and keeps the object.
    pub fn map_err<F>(self, convert: impl FnOnce(E) -> F) -> Refused<T, F> {
        Refused { object: self.object, error: convert(self.error) }
    }
}

/// Prints what `Display` prints, because `main` and `unwrap` print an error by `Debug`.
impl<T, E: fmt::Display> fmt::Debug for Refused<T, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl<T, E: fmt::Display> fmt::Display for Refused<T, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl<T, E: Error> Error for Refused<T, E> {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.error.source()
    }
}
