//! The id of a request, by which both ends of a transfer match.

use std::fmt;
use std::io::Write;

use crate::kv::KvError;

/// Longest id: servers' ids, such as `chatcmpl-` with a UUID, have 45 bytes.
pub(super) const ID_BYTES_MAX: usize = 64;

/// The id of a request: 1 to 64 bytes, the same at prefill and at decode.
///
/// Servers name their requests by strings. A number counts as the string of its digits: `7` and `"7"` are one request.
///
/// ```
/// use rdma_collective::kv::RequestId;
/// let id = RequestId::new("chatcmpl-7b1d")?;
/// assert_eq!(id.to_string(), "chatcmpl-7b1d");
/// assert_eq!(RequestId::from(7), RequestId::new("7")?);
/// assert!(RequestId::new([0; 65]).is_err());
/// # Ok::<(), rdma_collective::kv::KvError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RequestId {
    len: u8,
    /// The bytes behind the id are 0, so that ids compare as a whole.
    bytes: [u8; ID_BYTES_MAX],
}

impl RequestId {
    /// The id of these bytes.
    ///
    /// # Errors
    ///
    /// [`KvError::RequestIdLength`] for none, or for more than 64.
    pub fn new(bytes: impl AsRef<[u8]>) -> Result<Self, KvError> {
        let bytes = bytes.as_ref();
        Self::of(bytes).ok_or(KvError::RequestIdLength { bytes: bytes.len() })
    }

    /// The id of these bytes; `None` for none, or for too many.
    pub(super) fn of(id: &[u8]) -> Option<Self> {
        let mut bytes = [0; ID_BYTES_MAX];
        let room = bytes.get_mut(..id.len()).filter(|room| !room.is_empty())?;
        room.copy_from_slice(id);
        // The cast is exact: the bytes have fitted.
        Some(Self { len: id.len() as u8, bytes })
    }

    /// The id of one digit, for constants of tests.
    #[cfg(test)]
    pub(super) const fn digit(digit: u8) -> Self {
        let mut bytes = [0; ID_BYTES_MAX];
        bytes[0] = b'0' + digit;
        Self { len: 1, bytes }
    }

    /// The bytes of the id.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        self.bytes.get(..self.len.into()).unwrap_or_default()
    }
}

impl From<u64> for RequestId {
    fn from(number: u64) -> Self {
        let mut bytes = [0; ID_BYTES_MAX];
        let mut left = &mut bytes[..];
        // The number fits: it has 20 digits at most.
        _ = write!(left, "{number}");
        let len = (ID_BYTES_MAX - left.len()) as u8;
        Self { len, bytes }
    }
}

impl fmt::Display for RequestId {
    /// Prints the id, escaped as in a byte string of Rust.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.bytes().escape_ascii().fmt(f)
    }
}

impl fmt::Debug for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kv::Request;

    #[test]
    fn a_number_is_the_id_of_its_digits() {
        for number in [0, 7, 10, u64::MAX] {
            let id = RequestId::from(number);
            assert_eq!(
                (id.bytes(), id),
                (number.to_string().as_bytes(), Request::from(number).id().unwrap())
            );
        }
        assert_eq!(Request::from(-1).id().unwrap(), RequestId::new("-1").unwrap());
        assert_ne!(RequestId::new("07").unwrap(), RequestId::from(7));
        assert_ne!(RequestId::new([0]).unwrap(), RequestId::new([0, 0]).unwrap());
    }

    #[test]
    fn ids_have_1_to_64_bytes_of_any_value() {
        let long = [b'x'; ID_BYTES_MAX];
        assert_eq!(RequestId::new(long).unwrap().bytes(), long);
        let refused = |id: &[u8]| Request::from(id).id().unwrap_err().to_string();
        assert!(refused(&[]).contains("0 bytes") && refused(&[0; 65]).contains("65 bytes"));
        assert_eq!(RequestId::new([0xff, b'a', b'\n']).unwrap().to_string(), "\\xffa\\n");
    }
}
