//! Posting: a preallocated chain of work requests for each queue, which is filled and submitted with one doorbell.
#![expect(unsafe_code, reason = "hands chains of pointers to libibverbs")]

use std::io;
use std::ptr;

use super::qp::QueuePair;
use super::sys::{self, ibv_qp, ibv_recv_wr, ibv_send_wr, ibv_send_wr_rdma, ibv_send_wr_wr, ibv_sge};
use crate::backend::interface::{RawOpcode, RawPostError, RawRecv, RawSend};

/// A work request of either queue, as libibverbs takes it.
pub(super) trait Request: Copy {
    /// The request of the seam.
    type Raw;
    const ZEROED: Self;

    /// The next request of the chain, and the range of this one.
    fn links(&mut self) -> (&mut *mut Self, &mut *mut ibv_sge);

    /// Sets all but the links and the range.
    fn fill(&mut self, from: &Self::Raw) -> ibv_sge;

    /// # Safety
    ///
    /// The queue pair is alive, and no other thread posts to it. The chain ends in null, and the memory behind its
    /// ranges is valid.
    unsafe fn post(qp: *mut ibv_qp, head: *mut Self, bad: &mut *mut Self) -> libc::c_int;
}

impl Request for ibv_send_wr {
    type Raw = RawSend;
    const ZEROED: Self = Self::zeroed();

    fn links(&mut self) -> (&mut *mut Self, &mut *mut ibv_sge) {
        (&mut self.next, &mut self.sg_list)
    }

    fn fill(&mut self, from: &RawSend) -> ibv_sge {
        self.wr_id = from.wr_id;
        // A range of length 0 must not reach a device, because some devices take 0 for 2 GiB.
        self.num_sge = libc::c_int::from(from.len > 0);
        self.opcode = match from.opcode {
            RawOpcode::Send => sys::IBV_WR_SEND,
            RawOpcode::SendImm => sys::IBV_WR_SEND_WITH_IMM,
            RawOpcode::Write => sys::IBV_WR_RDMA_WRITE,
            RawOpcode::WriteImm => sys::IBV_WR_RDMA_WRITE_WITH_IMM,
            RawOpcode::Read => sys::IBV_WR_RDMA_READ,
        };
        self.send_flags = if from.signalled { sys::IBV_SEND_SIGNALED } else { 0 };
        if from.inline && from.len > 0 {
            self.send_flags |= sys::IBV_SEND_INLINE;
        }
        self.imm_data = from.imm.to_be();
        self.wr =
            ibv_send_wr_wr { rdma: ibv_send_wr_rdma { remote_addr: from.remote_addr, rkey: from.rkey } };
        ibv_sge { addr: from.addr, length: from.len, lkey: from.lkey }
    }

    unsafe fn post(qp: *mut ibv_qp, head: *mut Self, bad: &mut *mut Self) -> libc::c_int {
        // SAFETY: the caller promises what the call asks for, since both have one contract.
        unsafe { sys::ibv_post_send(qp, head, bad) }
    }
}

impl Request for ibv_recv_wr {
    type Raw = RawRecv;
    const ZEROED: Self = Self::zeroed();

    fn links(&mut self) -> (&mut *mut Self, &mut *mut ibv_sge) {
        (&mut self.next, &mut self.sg_list)
    }

    fn fill(&mut self, from: &RawRecv) -> ibv_sge {
        self.wr_id = from.wr_id;
        self.num_sge = libc::c_int::from(from.len > 0);
        ibv_sge { addr: from.addr, length: from.len, lkey: from.lkey }
    }

    unsafe fn post(qp: *mut ibv_qp, head: *mut Self, bad: &mut *mut Self) -> libc::c_int {
        // SAFETY: the caller promises what the call asks for, since both have one contract.
        unsafe { sys::ibv_post_recv(qp, head, bad) }
    }
}

/// Preallocated requests, each with room for one range. The queue pairs of a worker share them, because a chain is read
/// only while it is posted.
pub(super) struct Chain<W> {
    requests: Box<[W]>,
    ranges: Box<[ibv_sge]>,
}

// SAFETY: the raw pointers inside only point into the two boxes, which the value owns, so they move to another thread
// with it; each chain sets them anew.
unsafe impl<W> Send for Chain<W> {}

impl<W: Request> Chain<W> {
    pub(super) fn new() -> Self {
        Self { requests: Box::default(), ranges: Box::default() }
    }

    /// Makes room for a chain of `depth` requests. Only this allocates, so posting never does.
    pub(super) fn reserve(&mut self, depth: u32) {
        let depth = depth as usize;
        if self.requests.len() < depth {
            self.requests = vec![W::ZEROED; depth].into();
            self.ranges = vec![ibv_sge { addr: 0, length: 0, lkey: 0 }; depth].into();
        }
    }

    /// Fills a chain from `from` and returns its head, which is valid until the next call of `fill` or `reserve`.
    fn fill(&mut self, from: &[W::Raw]) -> io::Result<*mut W> {
        if from.is_empty() || from.len() > self.requests.len() {
            return Err(io::Error::from_raw_os_error(libc::ENOMEM));
        }
        let head = self.requests.as_mut_ptr();
        let first_range = self.ranges.as_mut_ptr();
        for (index, each) in from.iter().enumerate() {
            // SAFETY: `index` is below both lengths, which are equal, since `reserve` makes both boxes of one depth.
            // The references end before the next iteration, so none alias.
            let (request, range) = unsafe { (&mut *head.add(index), &mut *first_range.add(index)) };
            *range = request.fill(each);
            let (next, sg_list) = request.links();
            // The `next` of the last request points past the chain, which is cut below.
            *next = head.wrapping_add(index + 1);
            *sg_list = first_range.wrapping_add(index);
        }
        // SAFETY: `from` is not empty and no longer than the chain, since both were checked above.
        *unsafe { &mut *head.add(from.len() - 1) }.links().0 = ptr::null_mut();
        Ok(head)
    }

    /// Posts a chain.
    ///
    /// # Safety
    ///
    /// The local ranges stay valid, as [`RawWorker::post_send`](crate::backend::interface::RawWorker::post_send) and
    /// `post_recv` ask.
    pub(super) unsafe fn post(&mut self, qp: &mut QueuePair, chain: &[W::Raw]) -> Result<(), RawPostError> {
        if chain.is_empty() {
            return Ok(());
        }
        let head = self.fill(chain).map_err(|source| RawPostError { posted: 0, source })?;
        let mut bad = ptr::null_mut();
        // SAFETY: the queue pair is alive and borrowed mutably, so no other thread posts. `fill` ends the chain in
        // null and gives each request the one range that it counts. The caller keeps the memory behind the ranges
        // valid.
        match unsafe { W::post(qp.as_ptr(), head, &mut bad) } {
            0 => Ok(()),
            errno => Err(RawPostError { posted: posted(head, bad, chain.len()), source: error(errno) }),
        }
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

/// Translates the error of a post. Providers return an errno; a few of the oldest return -1, or the negative errno.
fn error(returned: libc::c_int) -> io::Error {
    match returned {
        -1 => io::Error::last_os_error(),
        errno => io::Error::from_raw_os_error(errno.saturating_abs()),
    }
}

#[cfg(test)]
mod tests;
