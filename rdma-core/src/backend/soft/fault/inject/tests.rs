//! Bound on the messages that are held back.

use super::super::super::engine::message::RequestOp;
use super::*;

fn write(len: u32) -> Message {
    Message::Request(Request {
        psn: 0,
        op: RequestOp::Write,
        imm: None,
        remote_addr: 0,
        rkey: 0,
        len,
        ack_req: false,
    })
}

#[test]
fn what_is_held_back_is_bounded_in_messages_and_in_bytes() {
    let mut state = State::default();
    let mut delay = |len| {
        let until = Delay { due: Instant::now() + Duration::from_secs(60), until_next: false };
        let place = state.delay_message(until, None, QpRef::default(), write(len), None);
        (place, state.delayed.len(), state.delayed_bytes())
    };
    for len in [(DELAYED_BYTES_MAX + 1) as u32, 1 << 31] {
        assert_eq!(delay(len), (None, 0, 0), "longer than all that may be held");
    }
    for count in 1..=200 {
        let (place, messages, bytes) = delay(1 << 20);
        assert!(matches!(place, Some(Payload { len: 0x10_0000, .. })), "the newest is held");
        assert_eq!((messages, bytes), (count.min(64), count.min(64) << 20));
    }
    assert_eq!(delay(DELAYED_BYTES_MAX as u32).2, DELAYED_BYTES_MAX);
    for _ in 0..2 * DELAYED_MAX {
        assert!(delay(0).1 <= DELAYED_MAX);
    }
}
