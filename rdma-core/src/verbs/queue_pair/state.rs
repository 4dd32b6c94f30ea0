//! The states of a queue pair as types.

use crate::QpState;

mod sealed {
    pub trait Sealed {}
}

/// A state of a [`QueuePair`](crate::QueuePair).
pub trait State: sealed::Sealed {
    /// The same as a value.
    const NAME: QpState;
}

/// A state in which receives may be posted: INIT, RTR, RTS.
pub trait Receiving: State {}

/// A state in which everything may be posted: RTS.
pub trait Posting: Receiving {}

macro_rules! states {
    ($($(#[$doc:meta])* $name:ident = $value:ident $(: $can:ident)*;)*) => {$(
        $(#[$doc])*
        #[derive(Debug)]
        pub enum $name {}
        impl sealed::Sealed for $name {}
        impl State for $name {
            const NAME: QpState = QpState::$value;
        }
        $(impl $can for $name {})*
    )*};
}

states! {
    /// RESET: newly created.
    Reset = RESET;
    /// INIT: receives may be posted.
    Init = INIT: Receiving;
    /// RTR: receives are processed.
    ReadyToReceive = RTR: Receiving;
    /// RTS: connected.
    ReadyToSend = RTS: Receiving: Posting;
}
