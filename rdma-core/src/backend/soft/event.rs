//! Asynchronous events of a context, such as a failed queue pair or a port that went down; kept until they are taken.

use std::collections::VecDeque;

use super::channel::Channel;
use super::wire::DeviceRef;
use crate::AsyncEvent;

slotmap::new_key_type! {
    /// Names an open context.
    pub(super) struct ContextRef;
}

/// Events kept for a context; later ones are dropped, because a program may never take any.
const EVENTS_MAX: usize = 1024;

/// The event queue of an open context.
#[derive(Debug)]
pub(super) struct Events {
    pub(super) device: DeviceRef,
    queue: VecDeque<AsyncEvent>,
    channel: Channel,
    /// Whether an event was dropped since the last one was taken: then the log has the warning already.
    dropped: bool,
}

impl Events {
    pub(super) fn new(device: DeviceRef, channel: Channel) -> Self {
        Self { device, queue: VecDeque::new(), channel, dropped: false }
    }

    /// Adds an event; drops it, and logs that once, when the queue is full.
    pub(super) fn raise(&mut self, event: AsyncEvent) {
        if self.queue.len() < EVENTS_MAX {
            self.queue.push_back(event);
            self.channel.raise();
        } else if !std::mem::replace(&mut self.dropped, true) {
            crate::log::warn!(kind = %event.kind, "the event queue of a context is full and events are dropped: take them with Context::next_event");
        }
    }

    /// Takes the oldest event. The channel stays readable until none is left.
    pub(super) fn next(&mut self) -> std::io::Result<Option<AsyncEvent>> {
        let event = self.queue.pop_front();
        self.dropped = false;
        if self.queue.is_empty() {
            self.channel.consume()?;
        }
        Ok(event)
    }
}
