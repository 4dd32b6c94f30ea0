//! [`NodeName`]: the name by which the nodes of a job know each other.

use std::borrow::Borrow;
use std::fmt;
use std::sync::Arc;

use super::NodeError;

/// The longest name, in bytes.
pub(super) const NAME_BYTES_MAX: usize = 64;

/// The name of a [`KvNode`](super::KvNode), which no other living node of its job has: 1 to 64 bytes of printable ASCII
/// without spaces, for example a pod's name. A clone is cheap.
///
/// ```
/// use rdma_collective::kv::NodeName;
/// let name = NodeName::new("decode-0.vllm.svc")?;
/// assert_eq!(name.as_str(), "decode-0.vllm.svc");
/// assert!(NodeName::new("decode 0").is_err());
/// # Ok::<(), rdma_collective::kv::NodeError>(())
/// ```
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeName(Arc<str>);

impl NodeName {
    /// Makes a name.
    ///
    /// # Errors
    ///
    /// [`NodeError::Name`] for an empty name, one of more than 64 bytes, and other characters.
    pub fn new(name: &str) -> Result<Self, NodeError> {
        let is_fit =
            (1..=NAME_BYTES_MAX).contains(&name.len()) && name.bytes().all(|byte| byte.is_ascii_graphic());
        if is_fit { Ok(Self(name.into())) } else { Err(NodeError::Name { name: name.to_owned() }) }
    }

    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Borrow<str> for NodeName {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for NodeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for NodeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
