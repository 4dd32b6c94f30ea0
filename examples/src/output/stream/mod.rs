//! A stream that a thread of its own writes to, so that nobody else waits for the reader.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, ErrorKind, Write};
use std::os::fd::OwnedFd;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::Builder;
use std::time::{Duration, Instant};

/// Bytes that wait for the reader when no further text is taken: some 10,000 rows.
const ROOM: usize = 1 << 20;
/// Most bytes of one write: a pipe takes that many in one piece (`PIPE_BUF`), so that lines of several processes do not
/// mix.
const PIECE: usize = 4096;

/// The time that a caller gives the thread.
const PROMPT: Duration = Duration::from_millis(100);

/// The text on its way, and the thread that writes it.
pub(super) struct Stream {
    open: fn() -> io::Result<OwnedFd>,
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    has_thread: bool,
    waiting: VecDeque<u8>,
    /// The time at which the reader took something last, or at which the first byte came that waits.
    taken: Option<Instant>,
    /// The error of the last write.
    failed: Option<(ErrorKind, String)>,
}

impl Stream {
    /// A stream to what `open` returns. The thread starts with the first text.
    pub(super) const fn new(open: fn() -> io::Result<OwnedFd>) -> Self {
        let state = State { has_thread: false, waiting: VecDeque::new(), taken: None, failed: None };
        Self { open, state: Mutex::new(state), changed: Condvar::new() }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Passes a text to the thread, and never waits.
    ///
    /// # Errors
    ///
    /// When too much waits already, or there can be no thread.
    pub(super) fn put(&'static self, text: &[u8]) -> io::Result<()> {
        let mut state = self.lock();
        if state.waiting.len() >= ROOM {
            return Err(io::Error::other(format!("nobody reads it, and {} bytes wait", state.waiting.len())));
        }
        if !state.has_thread {
            let file = File::from((self.open)()?);
            Builder::new().name("output".to_owned()).spawn(move || self.run(file))?;
            state.has_thread = true;
        }
        state.waiting.extend(text);
        state.taken.get_or_insert_with(Instant::now);
        drop(state);
        self.changed.notify_all();
        Ok(())
    }

    /// Waits until everything is written, or until `until`; returns how many bytes still wait.
    ///
    /// # Errors
    ///
    /// The error of the last write.
    pub(super) fn written(&self, until: Instant) -> io::Result<usize> {
        let mut state = self.lock();
        while state.failed.is_none()
            && !state.waiting.is_empty()
            && let Some(left) = until.checked_duration_since(Instant::now())
        {
            let waited = self.changed.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        match &state.failed {
            Some((kind, text)) => Err(io::Error::new(*kind, text.clone())),
            None => Ok(state.waiting.len()),
        }
    }

    /// Gives the thread [`PROMPT`] to write, so that an error is known at once and outputs keep their order. A reader
    /// that is late once is not waited for again until it takes something.
    ///
    /// # Errors
    ///
    /// The error of the last write.
    pub(super) fn prompt(&self) -> io::Result<()> {
        let since = self.lock().taken.unwrap_or_else(Instant::now);
        self.written(since + PROMPT).map(drop)
    }

    fn run(&self, mut file: File) {
        let mut state = self.lock();
        loop {
            while state.waiting.is_empty() {
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
            let piece = piece(&state.waiting);
            drop(state);
            let outcome = file.write(&piece);
            state = self.lock();
            state.done(outcome);
            self.changed.notify_all();
        }
    }
}

impl State {
    /// Notes what came of a write. Text that cannot be written is dropped: nothing may wait for it.
    fn done(&mut self, outcome: io::Result<usize>) {
        match outcome {
            Ok(bytes @ 1..) => {
                self.waiting.drain(..bytes);
                self.failed = None;
            }
            Ok(_) => self.done(Err(ErrorKind::WriteZero.into())),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => {
                self.waiting.clear();
                self.failed = Some((error.kind(), error.to_string()));
            }
        }
        self.taken = (!self.waiting.is_empty()).then(Instant::now);
    }
}

/// Whole lines from the front, as far as they fit a piece.
fn piece(waiting: &VecDeque<u8>) -> Vec<u8> {
    let mut piece: Vec<u8> = waiting.iter().take(PIECE).copied().collect();
    if let Some(end) = piece.iter().rposition(|byte| *byte == b'\n') {
        piece.truncate(end + 1);
    }
    piece
}

#[cfg(test)]
mod tests;
