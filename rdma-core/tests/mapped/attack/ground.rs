//! The attacked memory: a stripe for each writer, with bytes of writers (old) and of the owner (new).

use std::hint::black_box;

use rdma_core::{Memory, Region};

use super::Late;

/// Bytes of a writer's stripe: several chunks.
pub const STRIPE: usize = 1 << 20;
/// Bytes that a writer moves in one hold of its slot (`docs/wire.md`).
const CHUNK: usize = 256 << 10;
/// Writers write bytes from this value up; the owner's are below it.
pub const OLD: u8 = 0x80;

/// Writes new bytes where nobody may write any more, and checks that they stay.
pub fn take(memory: &mut Memory, fresh: u8) -> Result<(), Late> {
    memory.fill(fresh);
    hold(memory, fresh)
}

/// Checks that only the owner's bytes are there.
pub fn hold(memory: &Memory, fresh: u8) -> Result<(), Late> {
    // Hides the memory from the optimizer, which does not know that another process may write it.
    judge(black_box(memory), fresh)
}

/// Takes one stripe of a region whose other stripes are still written.
pub fn take_stripe(region: &Region, stripe: usize, fresh: u8) -> Result<(), Late> {
    region.copy_in(stripe * STRIPE, &vec![fresh; STRIPE]).unwrap();
    hold_stripe(region, stripe, fresh)
}

/// Checks that only the owner's bytes are in that stripe.
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

/// Returns the first byte of a stripe.
pub fn first(region: &Region, stripe: usize) -> u8 {
    let mut byte = [0];
    region.copy_out(stripe * STRIPE, &mut byte).unwrap();
    byte[0]
}

/// Whether the writer of a stripe, which writes all of it over and over, is in the middle of a chunk: the border
/// between two messages is then no border of chunks.
pub fn is_in_a_chunk(region: &Region, stripe: usize) -> bool {
    let bytes = look(region, stripe);
    let border = bytes.iter().position(|byte| *byte != bytes[0]);
    border.is_some_and(|border| border % CHUNK != 0)
}
