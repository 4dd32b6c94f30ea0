//! Any bytes as frames: what is taken must be the encoding of what it is taken for.

use super::frame::*;

pub(crate) fn message(data: &[u8]) {
    if let Some((bytes, _)) = data.split_first_chunk()
        && let Ok(hello) = decode_hello(bytes)
    {
        assert_eq!(encode_hello(&hello), *bytes);
        assert!(check_hello_begin(bytes).is_ok());
    }
    if let Some((bytes, _)) = data.split_first_chunk()
        && let Ok(request) = decode_request(bytes)
    {
        assert_eq!(encode_request(&request), *bytes);
        assert!(request.len <= MESSAGE_BYTES_MAX);
    }
    if let Some((bytes, _)) = data.split_first_chunk()
        && let Ok(reply) = decode_reply(bytes)
    {
        assert_eq!(encode_reply(&reply), *bytes);
        assert!(reply.len <= MESSAGE_BYTES_MAX);
    }
    let _ = check_hello_begin(data);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn no_bytes_break_a_frame(data in prop::collection::vec(any::<u8>(), 0..80)) {
            super::message(&data);
        }
    }
}
