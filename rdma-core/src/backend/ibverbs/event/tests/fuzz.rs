//! Events and completion entries of libibverbs with any number in any field.

#![expect(unsafe_code, reason = "makes an event whose object lives")]

use std::sync::atomic::{AtomicBool, Ordering};

use super::super::sys::{self, ibv_async_event, ibv_cq, ibv_qp};
use super::describe;

/// Describes one event for each five bytes of `data`: how the event names its object, and its type.
pub(crate) fn events(data: &[u8]) {
    for [how, number @ ..] in data.as_chunks::<5>().0 {
        let event_type = u32::from_le_bytes(*number);
        // Types that exist are rare among all numbers.
        let event_type = if how & 1 == 0 { event_type % 32 } else { event_type };
        // SAFETY: both structures consist of integers, raw pointers and the C library's locks only, so zero bytes are
        // valid values.
        let (mut cq, mut qp): (ibv_cq, ibv_qp) = unsafe { (std::mem::zeroed(), std::mem::zeroed()) };
        let overrun = AtomicBool::new(false);
        cq.cq_context = (&raw const overrun).cast_mut().cast();
        qp.qp_num = u32::from(*how);
        let mut raw = ibv_async_event::zeroed();
        raw.event_type = event_type;
        match event_type {
            sys::IBV_EVENT_CQ_ERR => raw.element.cq = &raw mut cq,
            _ if is_of_port(event_type) => raw.element.port_num = i32::from_le_bytes(*number),
            _ => raw.element.qp = &raw mut qp,
        }
        // SAFETY: an event that names a queue points to one that lives until the end of the turn, and so does its flag.
        let event = unsafe { describe(&raw) };
        assert_eq!(event.kind.0, event_type);
        assert_eq!(overrun.load(Ordering::Relaxed), event_type == sys::IBV_EVENT_CQ_ERR);
        let _ = format!("{event:?} {}", event.kind);
    }
}

fn is_of_port(event_type: u32) -> bool {
    let of_port = [
        sys::IBV_EVENT_PORT_ACTIVE,
        sys::IBV_EVENT_PORT_ERR,
        sys::IBV_EVENT_LID_CHANGE,
        sys::IBV_EVENT_PKEY_CHANGE,
        sys::IBV_EVENT_SM_CHANGE,
        sys::IBV_EVENT_CLIENT_REREGISTER,
        sys::IBV_EVENT_GID_CHANGE,
    ];
    of_port.contains(&event_type)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_event_is_described(data in prop::collection::vec(any::<u8>(), 0..100)) {
            super::events(&data);
        }
    }
}
