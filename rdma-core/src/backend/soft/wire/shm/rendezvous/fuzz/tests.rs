//! Seeds against the code that writes them, and arbitrary bytes.

use std::path::Path;

use proptest::prelude::*;

use super::super::super::super::Hello;
use super::super::frame::{FRAME_BYTES, Refusal};
use super::*;
use crate::{Gid, QpNum};

fn seeds() -> [(&'static str, Frame); 8] {
    let hello = Hello {
        source_gid: Gid([1; 16]),
        source_qp: QpNum(0x12_3456),
        destination_gid: Gid([2; 16]),
        destination_qp: QpNum(0x65_4321),
    };
    [
        ("hello", Frame::Hello(hello)),
        ("welcome", Frame::Welcome { mailbox: 1 << 16, keys: 1 << 20 }),
        ("memory", Frame::Memory { id: 7, len: 1 << 30 }),
        ("patch", Frame::Patch { id: 7, offset: 1 << 20, len: 1 << 18, version: 3 }),
        ("resume", Frame::Resume { id: 7 }),
        ("forget", Frame::Forget { id: 7 }),
        ("refused", Frame::Refused(Refusal::Limit(24))),
        ("nudge", Frame::Nudge),
    ]
}

#[test]
fn checked_in_inputs_are_what_the_code_writes() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus/rendezvous");
    for (name, frame) in seeds() {
        let (bytes, path) = (frame.encode(), corpus.join(name));
        packet(&bytes);
        if std::env::var_os("BLESS").is_some() {
            std::fs::create_dir_all(&corpus).unwrap();
            std::fs::write(&path, bytes).unwrap();
        }
        let there = std::fs::read(&path).unwrap_or_default();
        assert!(there == bytes, "{} is not what the code writes; BLESS=1 writes it", path.display());
    }
}

proptest! {
    #[test]
    fn no_bytes_break_a_frame(
        seed in 0..seeds().len(),
        changes in prop::collection::vec((0..FRAME_BYTES, any::<u8>()), 0..4),
        len in 0..=FRAME_BYTES,
    ) {
        let mut bytes = seeds()[seed].1.encode();
        changes.into_iter().for_each(|(at, byte)| bytes[at] = byte);
        packet(&bytes[..len]);
        packet(&bytes);
    }
}
