//! Values that come back or are dropped once, and a value without bytes.

use std::sync::Arc;

use super::*;

/// An owner whose bytes lie inside the value itself; its `Arc` counts the values that are alive.
struct Inline([u8; 4], Arc<()>);

impl AsMut<[u8]> for Inline {
    fn as_mut(&mut self) -> &mut [u8] {
        &mut self.0
    }
}

#[test]
fn the_bytes_stay_where_they_are_and_the_value_comes_back_or_is_dropped_once() {
    let alive = Arc::new(());
    let adopted = Bytes::adopt(Inline([1, 2, 3, 4], Arc::clone(&alive)));
    let at = adopted.as_ptr();
    let moved = Box::new(adopted);
    assert_eq!((moved.as_ptr(), moved.len()), (at, 4));
    let adopted = moved.into_owner::<Vec<u8>>().unwrap_err();
    let Inline(bytes, count) = adopted.into_owner::<Inline>().ok().unwrap();
    assert_eq!((bytes, Arc::strong_count(&alive)), ([1, 2, 3, 4], 2));
    drop(Bytes::adopt(Inline(bytes, count)));
    assert_eq!(Arc::strong_count(&alive), 1);
}

#[test]
fn a_value_without_bytes_has_none() {
    let adopted = Bytes::adopt(Vec::new());
    assert_eq!(adopted.len(), 0);
    assert_eq!(adopted.into_owner::<Vec<u8>>().ok(), Some(Vec::new()));
}
