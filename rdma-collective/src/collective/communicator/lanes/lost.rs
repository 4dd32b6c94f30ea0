//! [`LostLane`]: what a communicator tells of a lane that has failed.

/// A lane that has failed, while the link went on over its other lanes.
///
/// Returned by [`Communicator::lost_lanes`](crate::collective::Communicator::lost_lanes).
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct LostLane {
    /// The rank at the other end.
    pub rank: u32,
    /// The number of the lane within its link, from 0.
    pub lane: usize,
    /// The name of the device here that the lane belonged to.
    pub device: String,
    /// The reason, as a sentence for people.
    pub reason: String,
}
