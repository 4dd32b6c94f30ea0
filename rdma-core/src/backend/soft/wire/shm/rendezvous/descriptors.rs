//! Sends and receives packets with descriptors over a nonblocking socket.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use rustix::process::{Resource, getrlimit};

use super::UnmappedReason;
use super::frame::{DESCRIPTORS_MAX, FRAME_BYTES, Frame, FrameError};

/// Room for one descriptor more than any frame has, so that a frame with too many differs from one whose descriptors
/// this process could not take.
const ROOM: usize = rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX + 1));

/// A received frame, with its descriptors in the order they were sent.
#[derive(Debug)]
pub(super) struct Received {
    pub(super) frame: Frame,
    pub(super) descriptors: Vec<OwnedFd>,
}

/// Receives the next frame; `None` when there is none now. The descriptors of anything else are closed.
///
/// # Errors
///
/// The packet is no frame, has another number of descriptors than its frame, or the connection is over.
pub(super) fn receive(socket: BorrowedFd<'_>) -> Result<Option<Received>, UnmappedReason> {
    let mut room = [MaybeUninit::uninit(); ROOM];
    let mut ancillary = RecvAncillaryBuffer::new(&mut room);
    // A byte more than a frame, so that a longer packet is not cut to one.
    let mut packet = [0; FRAME_BYTES + 1];
    let into = &mut [IoSliceMut::new(&mut packet)];
    let message = match recvmsg(socket, into, &mut ancillary, RecvFlags::CMSG_CLOEXEC) {
        Ok(message) => message,
        Err(Errno::WOULDBLOCK | Errno::INTR) => return Ok(None),
        Err(Errno::CONNRESET) => return Err(UnmappedReason::Closed),
        Err(error) => return Err(UnmappedReason::Io(error.into())),
    };
    let mut descriptors = Vec::new();
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            descriptors.extend(rights);
        }
    }
    if message.bytes == 0 {
        return Err(UnmappedReason::Closed);
    }
    if descriptors.len() > DESCRIPTORS_MAX {
        return Err(UnmappedReason::TooManyDescriptors);
    }
    if message.flags.contains(ReturnFlags::CTRUNC) {
        return Err(UnmappedReason::OutOfDescriptors);
    }
    let packet = packet.get(..message.bytes).ok_or(FrameError::Size(message.bytes))?;
    let frame = Frame::decode(packet)?;
    let (came, wanted) = (descriptors.len(), frame.descriptors());
    if came != wanted {
        return Err(UnmappedReason::Descriptors { came, wanted });
    }
    Ok(Some(Received { frame, descriptors }))
}

/// Whether a descriptor is in the last quarter of those that this process may have. The system gives out the lowest
/// free number, so a high one means that the others are in use.
pub(super) fn is_in_last_quarter(fd: BorrowedFd<'_>) -> bool {
    let limit = getrlimit(Resource::Nofile).current;
    limit.is_some_and(|limit| u64::from(fd.as_raw_fd().unsigned_abs()) >= limit - limit / 4)
}

/// The result of sending a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sent {
    Whole,
    /// The socket takes no frame now; epoll reports when it does.
    Full,
    /// This user has as many descriptors in flight, in all its processes, as the system allows (ETOOMANYREFS).
    /// Nothing reports when it has fewer, so try again later.
    Crowded,
}

/// Sends a frame whole, or nothing of it.
///
/// # Errors
///
/// The connection is over.
pub(super) fn send(
    socket: BorrowedFd<'_>,
    frame: &Frame,
    descriptors: &[impl AsFd],
) -> Result<Sent, UnmappedReason> {
    debug_assert_eq!(descriptors.len(), frame.descriptors());
    let borrowed: Vec<_> = descriptors.iter().map(AsFd::as_fd).collect();
    let mut room = [MaybeUninit::uninit(); ROOM];
    let mut ancillary = SendAncillaryBuffer::new(&mut room);
    if !borrowed.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(&borrowed)) {
        return Err(UnmappedReason::TooManyDescriptors);
    }
    let packet = frame.encode();
    match sendmsg(socket, &[IoSlice::new(&packet)], &mut ancillary, SendFlags::NOSIGNAL) {
        Ok(_) => Ok(Sent::Whole),
        Err(Errno::WOULDBLOCK | Errno::INTR) => Ok(Sent::Full),
        Err(Errno::TOOMANYREFS) => Ok(Sent::Crowded),
        Err(Errno::PIPE | Errno::CONNRESET) => Err(UnmappedReason::Closed),
        Err(error) => Err(UnmappedReason::Io(error.into())),
    }
}
