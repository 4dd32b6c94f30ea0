//! Asynchronous events: what happened outside any work request, kept until it is asked for.

use std::collections::VecDeque;

use super::channel::Channel;
use super::wire::DeviceRef;
use crate::AsyncEvent;

/// Events kept for a context that does not ask; later ones are dropped.
const EVENTS_MAX: usize = 1024;

/// What the fabric keeps of an open context.
#[derive(Debug)]
pub(super) struct Events {
    pub(super) device: DeviceRef,
    queue: VecDeque<AsyncEvent>,
    channel: Channel,
    /// Whether one was dropped since the last was taken.
    dropped: bool,
}

impl Events {
    pub(super) fn new(device: DeviceRef, channel: Channel) -> Self {
        Self { device, queue: VecDeque::new(), channel, dropped: false }
    }

    pub(super) fn raise(&mut self, event: AsyncEvent) {
        if self.queue.len() < EVENTS_MAX {
            self.queue.push_back(event);
            self.channel.raise();
        } else if !std::mem::replace(&mut self.dropped, true) {
            tracing::warn!(kind = %event.kind, "nobody takes this context's events; from now on they are dropped");
        }
    }

    pub(super) fn next(&mut self) -> std::io::Result<Option<AsyncEvent>> {
        let event = self.queue.pop_front();
        self.dropped = false;
        if self.queue.is_empty() {
            self.channel.consume()?;
        }
        Ok(event)
    }
}
