//! Packets with descriptors, over a nonblocking socket.

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

/// Room for one descriptor more than any frame has, so that one too many is told from one that could not be had.
const ROOM: usize = rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX + 1));

/// A frame as it came, with its descriptors in the order they were sent.
#[derive(Debug)]
pub(super) struct Received {
    pub(super) frame: Frame,
    pub(super) descriptors: Vec<OwnedFd>,
}

/// The next frame; `None` when there is none now. All descriptors that come with anything else are closed.
///
/// # Errors
///
/// When the packet is no frame, has another number of descriptors than such a frame has, or the connection is over.
pub(super) fn receive(socket: BorrowedFd<'_>) -> Result<Option<Received>, UnmappedReason> {
    let mut room = [MaybeUninit::uninit(); ROOM];
    let mut ancillary = RecvAncillaryBuffer::new(&mut room);
    // One byte more than a frame, so that a longer packet is not taken for one.
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

/// Whether a descriptor is of the last quarter that this process may have: the system gives out the lowest that is free.
pub(super) fn is_in_last_quarter(fd: BorrowedFd<'_>) -> bool {
    let limit = getrlimit(Resource::Nofile).current;
    limit.is_some_and(|limit| u64::from(fd.as_raw_fd().unsigned_abs()) >= limit - limit / 4)
}

/// What became of a frame to be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sent {
    Whole,
    /// The socket takes none now; epoll tells when.
    Full,
    /// This user has as many descriptors under way, in all its processes, as the system allows; nothing tells when.
    Crowded,
}

/// Sends a frame, or nothing of it.
///
/// # Errors
///
/// When the connection is over.
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
