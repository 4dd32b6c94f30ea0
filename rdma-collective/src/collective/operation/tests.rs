//! Round trips of headers, aborts and reports of waits.

use super::*;

const HEADER: Header = Header {
    rank: 3,
    sequence: 1 << 40,
    count: 1 << 33,
    collective: 5,
    data_type: 2,
    reduction: 1,
    root: 1 << 20,
};

#[test]
fn headers_come_back_from_a_slot_and_from_a_message() {
    let slot = HEADER.in_slot();
    assert_eq!(Header::read(&slot), Ok(HEADER));
    assert_eq!(Header::read(&slot[..28]), Ok(HEADER));
    assert_eq!(Header::read(&slot[..27]), Err(Ended));
    for at in (23..24).chain(28..slot.len()) {
        let mut damaged = slot;
        damaged[at] = 1;
        assert_eq!(Header::read(&damaged), Err(Ended));
    }
}

#[test]
fn headers_come_back_from_a_line() {
    let mut line = HEADER.in_line();
    assert_eq!(Header::of_line(line, HEADER.rank), Some(HEADER));
    line[2] |= 1 << 24;
    assert_eq!(Header::of_line(line, HEADER.rank), None);
    assert_ne!(Header { root: 2, ..HEADER }.in_line(), HEADER.in_line());
}

#[test]
fn ranks_agree_on_everything_but_the_rank() {
    assert!(HEADER.agrees(&Header { rank: 0, ..HEADER }));
    for other in [
        Header { sequence: 1, ..HEADER },
        Header { count: 1, ..HEADER },
        Header { collective: 2, ..HEADER },
        Header { data_type: 1, ..HEADER },
        Header { reduction: 2, ..HEADER },
        Header { root: 2, ..HEADER },
    ] {
        assert!(!HEADER.agrees(&other));
    }
}

#[test]
fn waits_come_back() {
    let waits = WaitReport { sequence: 1 << 40, culprit: 3, hops: 2, waits_in: HEADER };
    let mut bytes = [1; 45];
    waits.write(&mut Writer::new(&mut bytes)).unwrap();
    assert_eq!(WaitReport::read(&bytes[..44]), Ok(waits));
    assert_eq!((WaitReport::read(&bytes[..43]), WaitReport::read(&bytes)), (Err(Ended), Err(Ended)));
}

#[test]
fn aborts_come_back_and_unknown_reasons_are_other() {
    use AbortReason::{DeadlineExceeded, Mismatch, Other, PeerFailed, Queued, Requested};
    for reason in [Other, PeerFailed, DeadlineExceeded, Mismatch, Requested, Queued] {
        let abort = Abort { sequence: 9, culprit: 2, reporter: 1, reason };
        let mut bytes = [0; 20];
        abort.write(&mut Writer::new(&mut bytes)).unwrap();
        assert_eq!(Abort::read(&bytes), Ok(abort));
        bytes[16] = 77;
        assert_eq!(Abort::read(&bytes), Ok(Abort { reason: Other, ..abort }));
        assert_eq!(Abort::read(&bytes[..16]), Err(Ended));
    }
}

#[test]
fn news_of_a_lane_comes_back_and_its_pieces_do_not() {
    let news = LaneFenced { lane: 7, taken: 1 << 40 };
    let mut bytes = [0; 16];
    news.write(&mut Writer::new(&mut bytes)).unwrap();
    assert_eq!(LaneFenced::read(&bytes[..12]), Ok(news));
    assert_eq!((LaneFenced::read(&bytes[..11]), LaneFenced::read(&bytes)), (Err(Ended), Err(Ended)));
    bytes[1] = 1;
    assert_eq!(LaneFenced::read(&bytes[..12]), Err(Ended));
}
