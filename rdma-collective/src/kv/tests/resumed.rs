//! Verdicts on blocks that were used again: they are compared only once no other thread can use the blocks.

use std::sync::mpsc::channel;

use super::*;
use crate::kv::lease::Hold;
use crate::kv::{BlockVerdict, HoldKind, Verdicts};

/// Verdicts of a transfer into blocks 1 and 2 that has left one of four missing.
fn of_a_transfer(pool: &Pool, missing: bool) -> Verdicts {
    let hold = Hold::grant(pool, [1, 2]).unwrap();
    hold.begin();
    let mut verdicts = Verdicts::new(2, [1, 2], BlockVerdict::Valid).of(hold.origin());
    if missing {
        verdicts.set(0, 1, BlockVerdict::Missing);
    }
    verdicts
}

#[test]
fn a_block_that_is_written_until_it_is_granted_again_is_moved_whole() {
    for (pull, written) in [(false, false), (false, true), (true, true)] {
        let (_prefill, decode) = pair();
        let pool = decode.pool();
        let verdicts = of_a_transfer(pool, true);
        let (locked, is_locked) = channel();
        let bytes = thread::scope(|scope| {
            scope.spawn(|| {
                let _state = decode.shared().lock();
                locked.send(()).unwrap();
                // Whoever grants waits for the link meanwhile.
                thread::sleep(Duration::from_millis(50));
                if written {
                    pool.write(0, 1, 0, &[7]).unwrap();
                }
            });
            is_locked.recv().unwrap();
            if pull {
                decode.pull_missing(5, &verdicts, soon()).unwrap().progress().bytes
            } else {
                decode.grant_missing(5, &verdicts, soon()).unwrap().progress().bytes
            }
        });
        let parts = if written { 3 } else { 1 };
        assert_eq!(bytes, parts * pool.layout().layer_block_bytes(), "pull {pull}, written {written}");
    }
}

#[test]
fn blocks_of_which_nothing_is_missing_are_granted_for_no_byte() {
    let (_prefill, decode) = pair();
    let verdicts = of_a_transfer(decode.pool(), false);
    let grant = decode.grant_missing(5, &verdicts, soon()).unwrap();
    assert_eq!((grant.progress().bytes, decode.pool().held(1)), (0, Some(HoldKind::Shared)));
}
