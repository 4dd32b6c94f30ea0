//! Two processes that answer each other through windows: half of a round trip.

use rdma_core::{Deadline, PeerWindow, RemoteKey, RemoteMemory, Window, Wire, Work};

use crate::pair;
use crate::samples::median_of;
use crate::soft::{End, Outcome, PATIENCE, connect};

/// Round trips between two looks at the clock.
const BATCH: u32 = 8;
/// Looks between two at the clock, while nothing comes.
const LOOKS: u32 = 1 << 20;
/// Bytes that a side tells of its window: its address, its length, its key, and that it is there.
const TOLD: usize = 32;
/// Comes instead of the number of a round when there is no next one.
const OVER: u64 = u64::MAX;

/// A player of the two. A message is its bytes, and in the last eight of them the number of its round.
struct Player {
    own: Window,
    theirs: PeerWindow,
    message: Vec<u8>,
    _end: End,
}

/// Sends messages of `size` bytes, at least eight, the next when the last was answered, and says the seconds of one
/// way.
///
/// # Errors
///
/// When the device refuses, or nothing comes for a minute.
pub fn begin(wire: Wire, size: usize) -> Outcome<()> {
    let (mut player, mut round) = (Player::new(wire, size)?, 0);
    let seconds = median_of(|| {
        for _ in 0..BATCH {
            round += 1;
            player.throw(round)?;
            player.catch(round)?;
        }
        Ok(())
    })?;
    player.throw(OVER)?;
    pair::say(&(seconds / f64::from(2 * BATCH)).to_string())?;
    Ok(pair::stay()?)
}

/// Answers them.
///
/// # Errors
///
/// As for [`begin`].
pub fn answer(wire: Wire, size: usize) -> Outcome<()> {
    let mut player = Player::new(wire, size)?;
    for round in 1.. {
        if player.catch(round)? == OVER {
            break;
        }
        player.throw(round)?;
    }
    Ok(pair::stay()?)
}

impl Player {
    fn new(wire: Wire, size: usize) -> Outcome<Self> {
        let mut end = connect(wire, 2 * TOLD, 8)?;
        let own = end.pd.alloc_window(size)?;
        let RemoteMemory { addr, len, rkey } = own.remote();
        let told = [addr, len, rkey.0.into(), 1].map(u64::to_le_bytes);
        end.region.copy_in(TOLD, told.as_flattened())?;
        let source = end.worker.attach(&end.region);
        let inbox = end.peer.slice(0..TOLD as u64)?;
        end.worker.post(&end.qp, Work::write(source.range(TOLD, TOLD), inbox))?;
        end.worker.wait(Deadline::after(PATIENCE))?.result?;
        end.region.wait(TOLD - 8, |there: u64| there == 1, Deadline::after(PATIENCE))?;
        let word = |index: usize| end.region.load::<u64>(8 * index);
        let memory =
            RemoteMemory { addr: word(0)?, len: word(1)?, rkey: RemoteKey(u32::try_from(word(2)?)?) };
        let theirs = end.worker.peer_window(&end.qp, memory, Deadline::after(PATIENCE))?;
        Ok(Self { own, theirs, message: vec![1; size - 8], _end: end })
    }

    fn throw(&self, round: u64) -> Outcome<()> {
        self.theirs.copy_in(0, &self.message)?;
        Ok(self.theirs.store(self.message.len(), round)?)
    }

    fn catch(&mut self, round: u64) -> Outcome<u64> {
        let deadline = Deadline::after(PATIENCE);
        while !deadline.expired() {
            for _ in 0..LOOKS {
                let come = self.own.load::<u64>(self.message.len())?;
                if come >= round {
                    self.own.copy_out(0, &mut self.message)?;
                    return Ok(come);
                }
            }
        }
        Err("the other side has not answered for a minute".into())
    }
}
