//! The memory that is attacked: a stripe for each writer, old bytes and new ones.

use std::hint::black_box;

use rdma_core::{Memory, Region};

use super::Late;

/// Bytes of a writer's part: several chunks.
pub const STRIPE: usize = 1 << 20;
/// Bytes that a writer moves in one hold of its slot: `docs/wire.md`.
const CHUNK: usize = 256 << 10;
/// The bytes that writers write are this and above; the owner's are below.
pub const OLD: u8 = 0x80;

/// Puts new bytes where nobody may write any more, and looks whether they stay.
pub fn take(memory: &mut Memory, fresh: u8) -> Result<(), Late> {
    memory.fill(fresh);
    hold(memory, fresh)
}

/// That nothing but the owner's bytes is there.
pub fn hold(memory: &Memory, fresh: u8) -> Result<(), Late> {
    // Whatever else may have written it.
    judge(black_box(memory), fresh)
}

/// The same with a stripe of a region, of which others are still written.
pub fn take_stripe(region: &Region, stripe: usize, fresh: u8) -> Result<(), Late> {
    region.copy_in(stripe * STRIPE, &vec![fresh; STRIPE]).unwrap();
    hold_stripe(region, stripe, fresh)
}

/// The same with a stripe.
pub fn hold_stripe(region: &Region, stripe: usize, fresh: u8) -> Result<(), Late> {
    judge(&look(region, stripe), fresh).map_err(|late| format!("stripe {stripe}: {late}"))
}

fn judge(bytes: &[u8], fresh: u8) -> Result<(), Late> {
    let Some(at) = bytes.iter().position(|byte| *byte != fresh) else { return Ok(()) };
    let count = bytes.iter().filter(|byte| **byte != fresh).count();
    Err(format!("{count} bytes of an old write, the first {:#x} at {at}, in place of {fresh:#x}", bytes[at]))
}

fn look(region: &Region, stripe: usize) -> Vec<u8> {
    let mut bytes = vec![0; STRIPE];
    region.copy_out(stripe * STRIPE, &mut bytes).unwrap();
    bytes
}

/// The first byte of a stripe.
pub fn first(region: &Region, stripe: usize) -> u8 {
    let mut byte = [0];
    region.copy_out(stripe * STRIPE, &mut byte).unwrap();
    byte[0]
}

/// Whether the writer of a stripe, which writes all of it over and over, is in the middle of a chunk: where one message
/// follows the other is no border of chunks.
pub fn is_in_a_chunk(region: &Region, stripe: usize) -> bool {
    let bytes = look(region, stripe);
    let border = bytes.iter().position(|byte| *byte != bytes[0]);
    border.is_some_and(|border| border % CHUNK != 0)
}
