//! Posting: a preallocated chain of work requests for each queue, which is filled and submitted with one doorbell.
#![expect(unsafe_code, reason = "hands chains of pointers to libibverbs")]

use std::io;
use std::ptr;

use super::qp::QueuePair;
use super::sys::{self, ibv_recv_wr, ibv_send_wr, ibv_send_wr_rdma, ibv_send_wr_wr, ibv_sge};
use crate::backend::interface::{RawOpcode, RawPostError, RawRecv, RawSend};

/// A work request of either queue: the parts that chains of both have in common.
trait Request: Copy {
    const ZEROED: Self;
    /// Sets the next request of the chain, and the range of this one.
    fn link(&mut self, next: *mut Self, sg_list: *mut ibv_sge);
    /// Makes this request the last of its chain.
    fn end(&mut self);
}

impl Request for ibv_send_wr {
    const ZEROED: Self = Self::zeroed();

    fn link(&mut self, next: *mut Self, sg_list: *mut ibv_sge) {
        (self.next, self.sg_list) = (next, sg_list);
    }

    fn end(&mut self) {
        self.next = ptr::null_mut();
    }
}

impl Request for ibv_recv_wr {
    const ZEROED: Self = Self::zeroed();

    fn link(&mut self, next: *mut Self, sg_list: *mut ibv_sge) {
        (self.next, self.sg_list) = (next, sg_list);
    }

    fn end(&mut self) {
        self.next = ptr::null_mut();
    }
}

/// Preallocated requests, each with room for one range. The queue pairs of a worker share them, because a chain is read
/// only while it is posted.
struct Chain<W> {
    requests: Box<[W]>,
    ranges: Box<[ibv_sge]>,
}

// SAFETY: the raw pointers inside only point into the two boxes, which the value owns, so they move to another thread
// with it; each chain sets them anew.
unsafe impl<W> Send for Chain<W> {}

impl<W: Request> Chain<W> {
    fn new() -> Self {
        Self { requests: Box::default(), ranges: Box::default() }
    }

    /// Makes room for a chain of `depth` requests. Only this allocates, so posting never does.
    fn reserve(&mut self, depth: u32) {
        let depth = depth as usize;
        if self.requests.len() < depth {
            self.requests = vec![W::ZEROED; depth].into();
            self.ranges = vec![ibv_sge { addr: 0, length: 0, lkey: 0 }; depth].into();
        }
    }

    /// Fills a chain from `from` and returns its head, which is valid until the next call of `fill` or `reserve`.
    fn fill<R>(&mut self, from: &[R], mut fill: impl FnMut(&R, &mut W, &mut ibv_sge)) -> io::Result<*mut W> {
        if from.is_empty() || from.len() > self.requests.len() {
            return Err(io::Error::from_raw_os_error(libc::ENOMEM));
        }
        let head = self.requests.as_mut_ptr();
        let first_range = self.ranges.as_mut_ptr();
        for (index, each) in from.iter().enumerate() {
            // SAFETY: `index` is below both lengths, which are equal, since `reserve` makes both boxes of one depth.
            // The references end before the next iteration, so none alias.
            let (request, range) = unsafe { (&mut *head.add(index), &mut *first_range.add(index)) };
            // The `next` of the last request points past the chain; `end` cuts it below.
            request.link(head.wrapping_add(index + 1), first_range.wrapping_add(index));
            fill(each, request, range);
        }
        // SAFETY: `from` is not empty and no longer than the chain, since both were checked above.
        unsafe { (*head.add(from.len() - 1)).end() };
        Ok(head)
    }
}

/// Counts the posted requests of a chain of `len`, when the verb failed at `bad`.
///
/// Some drivers fail without naming a request: soft-RoCE queues all of them and then cannot ring the doorbell. Such
/// requests may still be carried out, so they count as posted, and their memory stays in flight.
fn posted<W>(head: *const W, bad: *const W, len: usize) -> usize {
    let bytes = (bad as usize).wrapping_sub(head as usize);
    let index = bytes / size_of::<W>();
    if bytes.is_multiple_of(size_of::<W>()) && index < len { index } else { len }
}

/// The chains of a worker, one for each kind of queue.
pub(super) struct Chains {
    send: Chain<ibv_send_wr>,
    recv: Chain<ibv_recv_wr>,
}

impl Chains {
    pub(super) fn new() -> Self {
        Self { send: Chain::new(), recv: Chain::new() }
    }

    /// Makes room for chains as long as the queues of one more queue pair.
    pub(super) fn reserve(&mut self, max_send_wr: u32, max_recv_wr: u32) {
        self.send.reserve(max_send_wr);
        self.recv.reserve(max_recv_wr);
    }

    /// Posts a chain of sends, writes and reads.
    ///
    /// # Safety
    ///
    /// The local ranges stay valid, as [`RawWorker::post_send`](crate::backend::interface::RawWorker::post_send) asks.
    pub(super) unsafe fn post_send(
        &mut self,
        qp: &mut QueuePair,
        chain: &[RawSend],
    ) -> Result<(), RawPostError> {
        if chain.is_empty() {
            return Ok(());
        }
        let none = |source| RawPostError { posted: 0, source };
        let head = self.send.fill(chain, fill_send).map_err(none)?;
        let mut bad = ptr::null_mut();
        // SAFETY: the queue pair is alive and borrowed mutably, so no other thread posts. `fill` ends the chain in
        // null and gives each request the one range that it counts. The caller keeps the memory behind the ranges
        // valid.
        match unsafe { sys::ibv_post_send(qp.as_ptr(), head, &mut bad) } {
            0 => Ok(()),
            errno => Err(RawPostError { posted: posted(head, bad, chain.len()), source: error(errno) }),
        }
    }

    /// Posts a chain of receives.
    ///
    /// # Safety
    ///
    /// The local ranges stay valid, as [`RawWorker::post_recv`](crate::backend::interface::RawWorker::post_recv) asks.
    pub(super) unsafe fn post_recv(
        &mut self,
        qp: &mut QueuePair,
        chain: &[RawRecv],
    ) -> Result<(), RawPostError> {
        if chain.is_empty() {
            return Ok(());
        }
        let none = |source| RawPostError { posted: 0, source };
        let head = self.recv.fill(chain, fill_recv).map_err(none)?;
        let mut bad = ptr::null_mut();
        // SAFETY: the queue pair is alive and borrowed mutably, so no other thread posts. `fill` ends the chain in
        // null and gives each receive the one range that it counts. The caller keeps the memory behind the ranges
        // valid.
        match unsafe { sys::ibv_post_recv(qp.as_ptr(), head, &mut bad) } {
            0 => Ok(()),
            errno => Err(RawPostError { posted: posted(head, bad, chain.len()), source: error(errno) }),
        }
    }
}

/// Translates the error of a post. Providers return an errno; a few of the oldest return -1, or the negative errno.
fn error(returned: libc::c_int) -> io::Error {
    match returned {
        -1 => io::Error::last_os_error(),
        errno => io::Error::from_raw_os_error(errno.saturating_abs()),
    }
}

/// Translates a request of the send queue.
fn fill_send(from: &RawSend, request: &mut ibv_send_wr, range: &mut ibv_sge) {
    *range = ibv_sge { addr: from.addr, length: from.len, lkey: from.lkey };
    request.wr_id = from.wr_id;
    // A range of length 0 must not reach a device, because some devices take 0 for 2 GiB.
    request.num_sge = libc::c_int::from(from.len > 0);
    request.opcode = match from.opcode {
        RawOpcode::Send => sys::IBV_WR_SEND,
        RawOpcode::SendImm => sys::IBV_WR_SEND_WITH_IMM,
        RawOpcode::Write => sys::IBV_WR_RDMA_WRITE,
        RawOpcode::WriteImm => sys::IBV_WR_RDMA_WRITE_WITH_IMM,
        RawOpcode::Read => sys::IBV_WR_RDMA_READ,
    };
    request.send_flags = if from.signalled { sys::IBV_SEND_SIGNALED } else { 0 };
    if from.inline && from.len > 0 {
        request.send_flags |= sys::IBV_SEND_INLINE;
    }
    request.imm_data = from.imm.to_be();
    request.wr = ibv_send_wr_wr { rdma: ibv_send_wr_rdma { remote_addr: from.remote_addr, rkey: from.rkey } };
}

/// Translates a receive.
fn fill_recv(from: &RawRecv, request: &mut ibv_recv_wr, range: &mut ibv_sge) {
    *range = ibv_sge { addr: from.addr, length: from.len, lkey: from.lkey };
    request.wr_id = from.wr_id;
    request.num_sge = libc::c_int::from(from.len > 0);
}

#[cfg(test)]
mod tests;
