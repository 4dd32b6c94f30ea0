//! Errors of joining links to one pool.

use crate::link::PeerName;

/// The reason why links do not bring whole blocks together.
///
/// Raised by [`Sources::new`](crate::kv::Sources::new).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SourcesError {
    /// There is no link.
    #[error("there are no links; give one to each rank of prefill that has a part of the blocks")]
    None,
    /// A link goes to another pool than the first one.
    #[error("the link to {peer} goes to another pool than the link to {first}; join the links of one pool")]
    OtherPool {
        /// The source at the other end of the first link.
        first: PeerName,
        /// The source at the other end of this link.
        peer: PeerName,
    },
    /// Two sources bring the same head, so that one would overwrite the other's.
    #[error("{first} and {second} both bring head {head} of layer {layer}; join a link to one of them alone")]
    Twice {
        /// The layer, by its number in the model.
        layer: u32,
        /// The head.
        head: u32,
        /// The first source of the two.
        first: PeerName,
        /// The other one.
        second: PeerName,
    },
    /// No source brings a head that the pool holds.
    #[error(
        "no source brings head {head} of layer {layer}; join a link to the rank of prefill that has it, too"
    )]
    Missing {
        /// The layer, by its number in the model.
        layer: u32,
        /// The head.
        head: u32,
    },
}
