//! The notices that wait for a writer: memories that come, change and go.

use std::collections::VecDeque;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;

use super::super::super::QpRef;
use super::descriptors::{self, Sent};
use super::frame::Frame;
use super::{Announcement, Change, UnmappedReason};
use crate::memory::Patch;

/// The connection of the writer that the responder of `qp` has invited.
#[derive(Debug)]
pub(super) struct InvitedWriter {
    pub(super) qp: QpRef,
    /// Notices that the socket did not take yet, oldest first.
    outflow: VecDeque<(Frame, Option<Arc<OwnedFd>>)>,
}

impl InvitedWriter {
    /// Creates the connection's notices, beginning with the memories that exist.
    pub(super) fn new(qp: QpRef, memories: Vec<Announcement>) -> Self {
        let mut writer = Self { qp, outflow: VecDeque::new() };
        memories.into_iter().for_each(|memory| writer.tell(&Change::Announce(memory)));
        writer
    }

    /// Queues the notices of a change.
    pub(super) fn tell(&mut self, change: &Change) {
        match change {
            // The memory goes before its patches: a patch of an unknown memory ends the connection.
            Change::Announce(Announcement { id, len, memfd, patches }) => {
                self.outflow.push_back((Frame::Memory { id: *id, len: *len }, Some(Arc::clone(memfd))));
                self.patch(*id, patches);
            }
            Change::Patch { id, patches } => self.patch(*id, patches),
            // Once: the last one follows all notices before it, so earlier ones are redundant.
            Change::Resume(id) => {
                self.outflow.retain(|(frame, _)| *frame != Frame::Resume { id: *id });
                self.outflow.push_back((Frame::Resume { id: *id }, None));
            }
            Change::Forget(id) => self.forget(*id),
        }
    }

    /// Queues replacement pages. A memory has at most 64 patches, so these cannot pile up.
    fn patch(&mut self, id: u64, patches: &[Patch]) {
        self.outflow.extend(patches.iter().map(|Patch { version, offset, bytes, memfd }| {
            let frame = Frame::Patch { id, offset: *offset, len: *bytes, version: *version };
            (frame, Some(Arc::clone(memfd)))
        }));
    }

    /// Queues the end of a memory. A writer that was not told of the memory yet need not be told of its end. So a
    /// writer that does not read makes no more notices wait than there are memories at a time.
    fn forget(&mut self, id: u64) {
        let mut told = true;
        self.outflow.retain(|(frame, _)| match frame {
            Frame::Memory { id: of, .. } if *of == id => {
                told = false;
                false
            }
            Frame::Patch { id: of, .. } | Frame::Resume { id: of } => *of != id,
            _ => true,
        });
        if told {
            self.outflow.push_back((Frame::Forget { id }, None));
        }
    }

    /// Sends as many notices as the socket takes, and returns the result of the last one.
    pub(super) fn send(&mut self, fd: BorrowedFd<'_>) -> Result<Sent, UnmappedReason> {
        while let Some((frame, memfd)) = self.outflow.front() {
            let sent = descriptors::send(fd, frame, memfd.as_slice())?;
            if sent != Sent::Whole {
                return Ok(sent);
            }
            self.outflow.pop_front();
        }
        Ok(Sent::Whole)
    }
}
