//! States of a queue pair as types.

use crate::QpState;

mod sealed {
    pub trait Sealed {}
}

/// A state of a [`QueuePair`](crate::QueuePair). Sealed: the states of this crate are all there are.
pub trait State: sealed::Sealed {
    /// The state as a value.
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
    /// RESET: newly created; nothing may be posted.
    Reset = RESET;
    /// INIT: receives may be posted.
    Init = INIT: Receiving;
    /// RTR: packets of the peer are carried out; receives may be posted.
    ReadyToReceive = RTR: Receiving;
    /// RTS: connected; everything may be posted.
    ReadyToSend = RTS: Receiving: Posting;
}
