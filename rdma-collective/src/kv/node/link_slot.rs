//! The slot of a link: one for each direction of a peer.

use std::sync::Arc;
use std::time::Instant;

use crate::kv::{Decode, Prefill};

/// The direction of a link, as one node sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Way {
    /// This node sends.
    Out,
    /// This node receives.
    In,
}

/// This node's end of a link.
#[derive(Debug, Clone)]
pub(super) enum End {
    Out(Arc<Prefill>),
    In(Arc<Decode>),
}

/// A link that is needed, is being made, or is there.
#[derive(Debug, Default)]
pub(super) enum LinkSlot {
    #[default]
    Unmade,
    /// This node or the peer makes the link of that number. Whoever needs the link after `until` has it made anew.
    Making {
        number: u32,
        until: Instant,
    },
    Up(End),
}

impl Way {
    pub(super) fn code(self) -> u8 {
        match self {
            Self::In => 0,
            Self::Out => 1,
        }
    }

    pub(super) fn from_code(code: u8) -> Option<Self> {
        [Self::In, Self::Out].get(usize::from(code)).copied()
    }

    /// The direction as the peer sees it.
    pub(super) fn at_peer(self) -> Self {
        match self {
            Self::Out => Self::In,
            Self::In => Self::Out,
        }
    }
}

impl End {
    /// Whether the link has ended.
    pub(super) fn is_over(&self) -> bool {
        match self {
            Self::Out(end) => end.is_over(),
            Self::In(end) => end.is_over(),
        }
    }

    /// Whether a transfer is under way on the link.
    pub(super) fn is_used(&self) -> bool {
        match self {
            Self::Out(end) => end.is_used(),
            Self::In(end) => end.is_used(),
        }
    }

    /// Ends the link at once, because the peer says that it has ended its own end.
    pub(super) fn end_with_peer(&self) {
        match self {
            Self::Out(end) => end.end_with_peer(),
            Self::In(end) => end.end_with_peer(),
        }
    }

    pub(super) fn way(&self) -> Way {
        match self {
            Self::Out(_) => Way::Out,
            Self::In(_) => Way::In,
        }
    }

    /// The end, if nobody else has it: dropping an end waits for its last messages, so that is for a thread which may
    /// block.
    pub(super) fn last(self) -> Option<Box<dyn Send>> {
        match self {
            Self::Out(end) => Arc::into_inner(end).map(|end| Box::new(end) as _),
            Self::In(end) => Arc::into_inner(end).map(|end| Box::new(end) as _),
        }
    }
}

impl LinkSlot {
    /// Empties the slot if its link has ended, or was not made in time; returns the end that is over.
    pub(super) fn clear(&mut self, now: Instant) -> Option<End> {
        match self {
            Self::Making { until, .. } if now >= *until => *self = Self::Unmade,
            Self::Up(end) if end.is_over() => return self.take(),
            _ => {}
        }
        None
    }

    /// Whether the link of that number is being made.
    pub(super) fn makes(&self, which: u32) -> bool {
        matches!(self, Self::Making { number, .. } if *number == which)
    }

    /// Empties the slot, and returns its end.
    pub(super) fn take(&mut self) -> Option<End> {
        match std::mem::take(self) {
            Self::Up(end) => Some(end),
            Self::Unmade | Self::Making { .. } => None,
        }
    }
}
