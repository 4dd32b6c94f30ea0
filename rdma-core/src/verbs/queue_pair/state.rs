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
///
/// [`Worker::post_recv`](crate::Worker::post_recv) takes a queue pair in such a state.
#[diagnostic::on_unimplemented(
    message = "a queue pair in the state `{Self}` takes no receives",
    label = "this queue pair is in the state `{Self}`",
    note = "initialize it first: `let queue_pair = queue_pair.init(&mut worker, ..)?`"
)]
pub trait Receiving: State {}

/// A state in which everything may be posted: RTS.
///
/// [`Worker::post`](crate::Worker::post) takes a queue pair in such a state.
#[diagnostic::on_unimplemented(
    message = "a queue pair in the state `{Self}` cannot send",
    label = "this queue pair is in the state `{Self}`",
    note = "connect it first: `let queue_pair = queue_pair.connect(&mut worker, &peer, ..)?`"
)]
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
    ///
    /// [`Worker::create_queue_pair`](crate::Worker::create_queue_pair) returns it.
    Reset = RESET;
    /// INIT: receives may be posted.
    ///
    /// [`QueuePair::init`](crate::QueuePair::init) returns it.
    Init = INIT: Receiving;
    /// RTR: packets of the peer are carried out; receives may be posted.
    ///
    /// [`QueuePair::ready_to_receive`](crate::QueuePair::ready_to_receive) returns it.
    ReadyToReceive = RTR: Receiving;
    /// RTS: connected; everything may be posted.
    ///
    /// [`QueuePair::connect`](crate::QueuePair::connect) returns it.
    ReadyToSend = RTS: Receiving: Posting;
}
