//! Fuzz entry point of all control messages of a KV link.

use super::*;

/// Reads any bytes as every message there is.
pub(crate) fn fuzz(body: &[u8]) {
    let pieces = [
        Grant::read(body).map(|(_, piece)| piece),
        Begin::read(body).map(|(_, piece)| piece),
        read_checksums(body).map(|(_, piece)| piece),
        Offer::read(body).map(|(_, piece)| piece),
    ];
    for piece in pieces.into_iter().flatten() {
        assert!(piece.first as usize + piece.numbers().len() <= piece.total as usize);
    }
    let _ = (
        Done::read(body),
        Refuse::read(body),
        Revoke::read(body),
        Withdraw::read(body),
        Quiesced::read(body),
    );
    let _ = NotePiece::read(body);
    let _ = (Take::read(body), Recall::read(body), Release::read(body), Extend::read(body));
}
