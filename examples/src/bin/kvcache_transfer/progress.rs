//! Bars on a terminal; nothing anywhere else.

use indicatif::{ProgressBar, ProgressStyle};
use rdma_collective::engine::Engine;
use rdma_collective::kv::{Joint, Received, TransferError};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io::{IsTerminal, stderr};
use std::time::{Duration, Instant};

/// Completions taken between two looks.
const BUDGET: usize = 256;
const LOOK_EVERY: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };
/// A bar that stood still so long is left to stand: whether the transfer failed is for waiting to say.
const STILL: Duration = Duration::from_secs(2);

/// Waits for a request, with a bar when somebody looks.
///
/// # Errors
///
/// As [`Joint::wait`].
pub fn wait(engine: &Engine, incoming: Joint, quiet: bool) -> Result<Received, TransferError> {
    if quiet || !stderr().is_terminal() {
        return incoming.wait();
    }
    let bar = ProgressBar::new(incoming.progress().bytes)
        .with_style(style("{bytes}/{total_bytes} {bytes_per_sec}"));
    let (mut arrived, mut since) = (0, Instant::now());
    while since.elapsed() < STILL {
        let Ok(happened) = engine.arm().and_then(|()| engine.drive(Instant::now(), BUDGET)) else { break };
        let progress = incoming.progress();
        if progress.bytes_arrived > arrived {
            (arrived, since) = (progress.bytes_arrived, Instant::now());
            bar.set_position(arrived);
        }
        if arrived == progress.bytes {
            break;
        }
        if happened == 0 {
            // An interrupted sleep is a short one.
            let _ = poll(&mut [PollFd::from_borrowed_fd(engine.wake_fd(), PollFlags::IN)], Some(&LOOK_EVERY));
        }
    }
    let received = incoming.wait();
    bar.finish_and_clear();
    received
}

/// A bar over the layers that were looked at.
pub struct Layers {
    bar: ProgressBar,
}

impl Layers {
    /// Shown on a terminal, unless `quiet`.
    pub fn new(layers: u32, quiet: bool) -> Self {
        let bar = if quiet { ProgressBar::hidden() } else { ProgressBar::new(layers.into()) };
        Self { bar: bar.with_style(style("{pos}/{len} layers verified")) }
    }

    /// So many layers are done.
    pub fn reached(&self, layers: u32) {
        self.bar.set_position(layers.into());
    }
}

impl Drop for Layers {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

fn style(figures: &str) -> ProgressStyle {
    ProgressStyle::with_template(&format!("{{wide_bar}} {figures}"))
        .unwrap_or_else(|_| ProgressStyle::default_bar())
}
