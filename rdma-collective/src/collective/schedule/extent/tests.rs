//! Pieces at equal distances, cut anywhere and taken in either direction.

use super::*;

fn spans(extent: Extent) -> Vec<(usize, usize)> {
    extent.spans().map(|Span { offset, len }| (offset, len)).collect()
}

#[test]
fn pieces_go_around_in_either_direction_and_are_cut_anywhere() {
    let one = Extent::of(Buffer::Input, Span { offset: 7, len: 5 });
    assert_eq!(spans(one), [(7, 5)]);
    assert_eq!(spans(one.part(Span { offset: 2, len: 3 })), [(9, 3)]);
    assert_eq!(spans(one.part(Span { offset: 5, len: 0 })), []);

    // Two bytes of each of four parts of ten, from the third part on.
    let around = Extent::strided(Buffer::Output, 21, 8, Stride { run: 2, stride: 10, wrap: 40 });
    assert_eq!(spans(around), [(21, 2), (31, 2), (1, 2), (11, 2)]);
    assert_eq!(
        spans(around.part(Span { offset: 3, len: 4 }).part(Span { offset: 1, len: 2 })),
        [(1, 2)],
        "a part of a part"
    );
    assert_eq!(spans(around.part(Span { offset: 3, len: 4 })), [(32, 1), (1, 2), (11, 1)]);

    let back = Extent::strided(Buffer::Output, 10, 40, Stride { run: 10, stride: 30, wrap: 40 });
    assert_eq!(spans(back), [(10, 10), (0, 10), (30, 10), (20, 10)]);

    let huge = Extent::strided(
        Buffer::Output,
        usize::MAX - 2,
        3,
        Stride { run: 1, stride: usize::MAX - 2, wrap: usize::MAX - 1 },
    );
    assert_eq!(huge.spans().count(), 3);
}
