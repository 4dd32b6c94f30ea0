//! Repetitions of requests.

use super::*;

fn device(vendor_id: u32) -> DeviceAttributes {
    let firmware = String::new();
    DeviceAttributes {
        firmware,
        vendor_id,
        vendor_part_id: 0,
        ports: 1,
        max_qp: 1,
        max_qp_wr: 1,
        max_cqe: 1,
        max_mr: 1,
        max_mr_size: 1,
        max_qp_rd_atom: 1,
    }
}

#[test]
fn requests_are_repeated_for_as_long_as_is_asked() {
    let (nic, soft_roce) = (device(0x02c9), device(0x00ff_ffff));
    let minute = Duration::from_secs(60);
    for (retry_cnt, code) in [(7, 21), (3, 22), (0, 24)] {
        let retry = RetryOptions { retry_cnt, ..RetryOptions::suiting(&nic) }.lasting(minute, &nic);
        assert_eq!(retry.ack_timeout, AckTimeout::new(code), "{retry_cnt}");
        let tries = u32::from(retry_cnt) + 1;
        assert!(retry.ack_timeout.duration() * tries >= minute);
    }
    let default = RetryOptions::suiting(&nic);
    assert_eq!(default, RetryOptions::default());
    assert_eq!(default.clone().lasting(Duration::from_secs(3), &nic), default);
    let short = RetryOptions::suiting(&soft_roce);
    assert_eq!(short.ack_timeout, AckTimeout::new(14));
    assert_eq!(short.clone().lasting(minute, &soft_roce), short);
    let few = RetryOptions { retry_cnt: 3, ..short }.lasting(minute, &soft_roce);
    assert_eq!(few.ack_timeout, AckTimeout::new(22));
}
