//! Order of the ranks of a color, and round trips of what a rank asks for.

use super::*;

fn requests(all: &[(Option<u32>, i32)]) -> Vec<u8> {
    all.iter().flat_map(|(color, key)| SplitRequest { color: *color, key: *key }.encode()).collect()
}

#[test]
fn ranks_of_a_color_come_by_key_and_then_by_rank() {
    let all = [(Some(7), 3), (None, -9), (Some(7), -2), (Some(0), 0), (Some(7), 3), (Some(7), i32::MIN)];
    let bytes = requests(&all);
    assert_eq!(members_of(&bytes, 7), Ok(vec![5, 2, 0, 4]));
    assert_eq!(members_of(&bytes, 0), Ok(vec![3]), "none is not color 0");
    assert_eq!(members_of(&bytes, 1), Ok(vec![]));
}

#[test]
fn requests_come_back_and_half_a_request_is_none() {
    for request in [(None, 0), (None, -1), (Some(0), i32::MAX), (Some(u32::MAX), i32::MIN)] {
        let bytes = requests(&[request]);
        assert_eq!(SplitRequest::decode(&bytes), Ok(SplitRequest { color: request.0, key: request.1 }));
        for len in 0..bytes.len() {
            assert!(SplitRequest::decode(&bytes[..len]).is_err());
        }
    }
}
