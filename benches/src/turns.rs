//! Two processes that answer each other on the software device: half of a round trip.

use rdma_core::{Attached, Deadline, Opcode, RemoteMemory, Wire, Work};

use crate::pair;
use crate::samples::median_of;
use crate::soft::{End, Outcome, PATIENCE, connect};

/// Round trips between two looks at the clock.
const BATCH: u32 = 8;
/// Requests that may be outstanding.
const DEPTH: u32 = 128;
/// Writes for each completion, because handling it then falls into the time in which the other side answers.
const SIGNAL_EVERY: u32 = 8;
/// Looks between two at the clock, while nothing comes.
const LOOKS: u32 = 1 << 20;
/// Where in its region each has what goes. What comes is at the beginning, and no cache line has some of both.
const OUTBOX: usize = 64 << 10;
/// Comes instead of a mark when there is no next round; marks are from 1 to 254.
const OVER: u8 = u8::MAX;

/// The messages that go to and fro.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Turn {
    /// Writes, of which the other side sees the last byte, as UCX's put_lat does it.
    Write,
    /// Sends, of which both sides take every completion.
    Send,
}

/// A player of the two.
struct Player {
    end: End,
    turn: Turn,
    size: usize,
    memory: Attached,
    /// Where what it writes goes.
    inbox: RemoteMemory,
    posted: u32,
    seen: u8,
}

/// Sends messages of `size` bytes, the next when the last was answered, and says the seconds of one way.
///
/// # Errors
///
/// When the device refuses, a request fails, or nothing comes for a minute.
pub fn begin(wire: Wire, turn: Turn, size: usize) -> Outcome<()> {
    let mut player = Player::new(wire, turn, size)?;
    let mut mark = 0;
    let seconds = median_of(|| {
        for _ in 0..BATCH {
            mark = mark % (OVER - 1) + 1;
            player.throw(mark)?;
            player.catch()?;
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
pub fn answer(wire: Wire, turn: Turn, size: usize) -> Outcome<()> {
    let mut player = Player::new(wire, turn, size)?;
    loop {
        match player.catch()? {
            OVER => return Ok(pair::stay()?),
            mark => player.throw(mark)?,
        }
    }
}

impl Player {
    fn new(wire: Wire, turn: Turn, size: usize) -> Outcome<Self> {
        let mut end = connect(wire, OUTBOX + size, DEPTH)?;
        let memory = end.worker.attach(&end.region);
        let inbox = end.peer.slice(0..size as u64)?;
        let mut player = Self { end, turn, size, memory, inbox, posted: 0, seen: 0 };
        for _ in 0..DEPTH / 2 {
            player.post_receive()?;
        }
        Ok(player)
    }

    fn post_receive(&mut self) -> Outcome<()> {
        if self.turn == Turn::Send {
            self.end.worker.post_recv(&self.end.qp, self.memory.range(0, self.size))?;
        }
        Ok(())
    }

    fn throw(&mut self, mark: u8) -> Outcome<()> {
        let End { worker, qp, region, .. } = &mut self.end;
        region.copy_in(OUTBOX + self.size - 1, &[mark])?;
        let outbox = self.memory.range(OUTBOX, self.size);
        self.posted += 1;
        match self.turn {
            Turn::Send => {
                worker.post(qp, Work::send(outbox))?;
                // For the answer to the next but so many: off the way of this one.
                self.post_receive()
            }
            Turn::Write if !self.posted.is_multiple_of(SIGNAL_EVERY) => {
                worker.post(qp, Work::write(outbox, self.inbox).unsignalled())?;
                Ok(())
            }
            Turn::Write => {
                let last = worker.post(qp, Work::write(outbox, self.inbox))?;
                loop {
                    if let Some(done) = worker.poll()? {
                        done.result?;
                        if done.id == last {
                            return Ok(());
                        }
                    }
                }
            }
        }
    }

    /// The mark of the next message.
    fn catch(&mut self) -> Outcome<u8> {
        let deadline = Deadline::after(PATIENCE);
        let mut mark = [0];
        while !deadline.expired() {
            for _ in 0..LOOKS {
                // No pause in between: those that are compared with make none.
                if !self.has_come()? {
                    continue;
                }
                self.end.region.copy_out(self.size - 1, &mut mark)?;
                self.seen = mark[0];
                return Ok(mark[0]);
            }
        }
        Err("the other side has not answered for a minute".into())
    }

    fn has_come(&mut self) -> Outcome<bool> {
        if self.turn == Turn::Write {
            let mut mark = [0];
            self.end.region.copy_out(self.size - 1, &mut mark)?;
            return Ok(mark[0] != self.seen);
        }
        match self.end.worker.poll()? {
            Some(done) => Ok(done.result?.opcode == Opcode::Recv),
            None => Ok(false),
        }
    }
}
