//! The worker over libibverbs: a completion queue and its queue pairs, behind the seam.
#![expect(unsafe_code, reason = "posts memory that the caller vouches for")]

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use super::cq::CompletionQueue;
use super::post::Chain;
use super::qp::QueuePair;
use super::sys::{self, ibv_qp_attr, ibv_recv_wr, ibv_send_wr, ibv_wc};
use super::transition::{Refusal, TO_ERR, TO_INIT, TO_RTR, TO_RTS, Transition};
use super::{Context, address};
use crate::backend::interface::{RawCompletion, RawPostError, RawRecv, RawSend, RawWorker, SENTINELS, Slot};
use crate::error::{ConnectError, CreateError, PollError, QueryError};
use crate::{
    CompletionStatus, Deadline, Endpoint, InitOptions, PathOptions, PeerAccess, Psn, QpNum, QpState,
    QueuePairOptions, RetryOptions, WorkerOptions,
};

/// Completions taken from the driver in one call, at most.
const POLL_BATCH: usize = 64;

/// A completion queue of libibverbs with its queue pairs.
pub(crate) struct Worker {
    /// Queue pairs by slot. Must be declared before `cq`: fields drop in order, and a completion queue with queue
    /// pairs cannot be destroyed.
    qps: Vec<Option<QueuePair>>,
    cq: CompletionQueue,
    /// Room for chains as long as the longest queue.
    sends: Chain<ibv_send_wr>,
    recvs: Chain<ibv_recv_wr>,
    polled: Box<[ibv_wc]>,
}

impl Worker {
    pub(crate) fn new(context: &Arc<Context>, options: &WorkerOptions) -> Result<Self, CreateError> {
        let cq = CompletionQueue::new(context, options)?;
        let polled = vec![ibv_wc::zeroed(); POLL_BATCH].into();
        Ok(Self { qps: Vec::new(), cq, sends: Chain::new(), recvs: Chain::new(), polled })
    }

    fn qp(&mut self, slot: Slot) -> io::Result<&mut QueuePair> {
        self.qps.get_mut(usize::from(slot)).and_then(Option::as_mut).ok_or_else(unknown_slot)
    }

    /// Takes a step; `fill` sets the attributes that the transition requires.
    fn step(
        &mut self,
        slot: Slot,
        transition: &Transition,
        fill: impl FnOnce(&mut ibv_qp_attr),
    ) -> io::Result<()> {
        let mut attributes = ibv_qp_attr::zeroed();
        attributes.qp_state = transition.to.0;
        fill(&mut attributes);
        self.qp(slot)?.modify(&mut attributes, transition.required)
    }

    /// Returns the queue pair in `slot`, for a step that connects it.
    fn connecting(&mut self, slot: Slot) -> Result<&mut QueuePair, ConnectError> {
        let context = Arc::clone(self.cq.context());
        self.qp(slot).map_err(|source| context.refused("ibv_modify_qp", source).into())
    }
}

impl RawWorker for Worker {
    type Pd = super::ProtectionDomain;

    fn create_qp(
        &mut self,
        slot: Slot,
        pd: &Self::Pd,
        options: &QueuePairOptions,
    ) -> Result<QpNum, CreateError> {
        let qp = QueuePair::new(&self.cq, pd.inner(), options)?;
        let qp_num = qp.qp_num();
        self.sends.reserve(options.max_send_wr);
        self.recvs.reserve(options.max_recv_wr.max(SENTINELS));
        let index = usize::from(slot);
        if self.qps.len() <= index {
            self.qps.resize_with(index + 1, || None);
        }
        debug_assert!(self.qps[index].is_none(), "slot {slot} is taken");
        self.qps[index] = Some(qp);
        Ok(qp_num)
    }

    fn modify_to_init(&mut self, slot: Slot, options: &InitOptions) -> Result<(), ConnectError> {
        let port = self.cq.context().query_port(options.port)?;
        let qp_num = self.connecting(slot)?.qp_num();
        let step = self.step(slot, &TO_INIT, |attributes| {
            attributes.port_num = options.port.0;
            attributes.pkey_index = options.pkey_index;
            attributes.qp_access_flags = options.access.bits() & !sys::IBV_ACCESS_OPTIONAL_RANGE;
        });
        let refusal = Refusal::Init { port: &port, pkey_index: options.pkey_index };
        step.map_err(|source| refusal.error(qp_num, source))?;
        self.connecting(slot)?.port = options.port;
        Ok(())
    }

    fn modify_to_rtr(
        &mut self,
        slot: Slot,
        peer: &Endpoint,
        options: &PathOptions,
    ) -> Result<(), ConnectError> {
        let qp = self.connecting(slot)?;
        let (qp_num, port) = (qp.qp_num(), qp.port);
        let context = Arc::clone(qp.context());
        let port = context.query_port(port)?;
        let table = context.gid_table(port.port)?;
        let own = table.iter().find(|entry| entry.index == options.gid_index);
        let mtu = options.mtu.unwrap_or(port.active_mtu.min(peer.mtu));
        let address = address::vector(&port, own, peer, options)?;
        let step = self.step(slot, &TO_RTR, |attributes| {
            attributes.ah_attr = address;
            attributes.path_mtu = mtu.0.into();
            attributes.dest_qp_num = peer.qp_num.0;
            attributes.rq_psn = peer.psn.value();
            attributes.max_dest_rd_atomic =
                options.max_dest_rd_atomic.min(context.limits.device.max_qp_rd_atom);
            attributes.min_rnr_timer = options.min_rnr_timer.code();
        });
        step.map_err(|source| Refusal::Rtr { port: &port, peer, own, mtu }.error(qp_num, source))
    }

    fn modify_to_rts(&mut self, slot: Slot, psn: Psn, options: &RetryOptions) -> Result<(), ConnectError> {
        let qp = self.connecting(slot)?;
        let (qp_num, limit) = (qp.qp_num(), qp.context().limits.max_qp_init_rd_atom);
        let step = self.step(slot, &TO_RTS, |attributes| {
            attributes.timeout = options.ack_timeout.code();
            attributes.retry_cnt = options.retry_cnt.min(7);
            attributes.rnr_retry = options.rnr_retry.code();
            attributes.sq_psn = psn.value();
            attributes.max_rd_atomic = options.max_rd_atomic.min(limit);
        });
        step.map_err(|source| Refusal::Rts.error(qp_num, source))
    }

    fn modify_to_err(&mut self, slot: Slot) -> io::Result<()> {
        self.step(slot, &TO_ERR, |_| {})
    }

    fn query_state(&self, slot: Slot) -> Result<QpState, QueryError> {
        match self.qps.get(usize::from(slot)) {
            Some(Some(qp)) => qp.state(),
            _ => Err(self.cq.context().refused("ibv_query_qp", unknown_slot())),
        }
    }

    fn peer_access(&self, _: Slot) -> PeerAccess {
        PeerAccess::Rdma
    }

    unsafe fn post_send(&mut self, slot: Slot, chain: &[RawSend]) -> Result<(), RawPostError> {
        let Some(Some(qp)) = self.qps.get_mut(usize::from(slot)) else {
            return Err(RawPostError { posted: 0, source: unknown_slot() });
        };
        // SAFETY: the caller keeps the local ranges valid, as the trait asks, so the chain that names them may be
        // posted.
        unsafe { self.sends.post(qp, chain) }
    }

    unsafe fn post_recv(&mut self, slot: Slot, chain: &[RawRecv]) -> Result<(), RawPostError> {
        let Some(Some(qp)) = self.qps.get_mut(usize::from(slot)) else {
            return Err(RawPostError { posted: 0, source: unknown_slot() });
        };
        // SAFETY: the caller keeps the local ranges valid, as the trait asks, so the chain that names them may be
        // posted.
        unsafe { self.recvs.post(qp, chain) }
    }

    fn poll(&mut self, out: &mut [RawCompletion]) -> Result<usize, PollError> {
        let mut taken = 0;
        while taken < out.len() {
            let batch = self.polled.len().min(out.len() - taken);
            let polled = match self.cq.poll(&mut self.polled[..batch]) {
                // Completions that were taken are returned first; the error comes again with the next call.
                Err(_) if taken > 0 => break,
                polled => polled?,
            };
            for (entry, raw) in out[taken..].iter_mut().zip(&self.polled[..polled]) {
                *entry = completion(raw);
            }
            taken += polled;
            if polled < batch {
                break;
            }
        }
        Ok(taken)
    }

    fn request_notify(&mut self) -> Result<(), PollError> {
        self.cq.request_notify()
    }

    fn channel_fd(&self) -> BorrowedFd<'_> {
        self.cq.fd()
    }

    fn consume_events(&mut self) -> Result<(), PollError> {
        self.cq.consume_events()
    }

    fn destroy_qp(&mut self, slot: Slot, _: Deadline) -> io::Result<()> {
        self.qp(slot)?.destroy()?;
        self.qps[usize::from(slot)] = None;
        Ok(())
    }
}

/// Translates an entry. A failed one defines only four of its fields, so the others stay unread.
fn completion(raw: &ibv_wc) -> RawCompletion {
    let completion = RawCompletion {
        wr_id: raw.wr_id,
        status: raw.status,
        vendor_error: raw.vendor_err,
        qp_num: raw.qp_num,
        ..RawCompletion::default()
    };
    if raw.status != sys::IBV_WC_SUCCESS {
        return completion;
    }
    RawCompletion {
        byte_len: raw.byte_len,
        write_imm: raw.opcode == sys::IBV_WC_RECV_RDMA_WITH_IMM,
        imm: (raw.wc_flags & sys::IBV_WC_WITH_IMM != 0).then(|| u32::from_be(raw.imm_data)),
        ..completion
    }
}

/// The error of a slot without a queue pair.
fn unknown_slot() -> io::Error {
    io::Error::new(io::ErrorKind::NotFound, "no queue pair has this slot")
}

// The numbers of the public types are those of the C headers; this stops the build if they differ.
const _: () = {
    use CompletionStatus as S;
    assert!(S::SUCCESS.0 == sys::IBV_WC_SUCCESS && S::LOC_LEN_ERR.0 == sys::IBV_WC_LOC_LEN_ERR);
    assert!(S::LOC_QP_OP_ERR.0 == sys::IBV_WC_LOC_QP_OP_ERR && S::LOC_PROT_ERR.0 == sys::IBV_WC_LOC_PROT_ERR);
    assert!(S::WR_FLUSH_ERR.0 == sys::IBV_WC_WR_FLUSH_ERR && S::MW_BIND_ERR.0 == sys::IBV_WC_MW_BIND_ERR);
    assert!(
        S::BAD_RESP_ERR.0 == sys::IBV_WC_BAD_RESP_ERR && S::LOC_ACCESS_ERR.0 == sys::IBV_WC_LOC_ACCESS_ERR
    );
    assert!(S::REM_INV_REQ_ERR.0 == sys::IBV_WC_REM_INV_REQ_ERR);
    assert!(S::REM_ACCESS_ERR.0 == sys::IBV_WC_REM_ACCESS_ERR && S::REM_OP_ERR.0 == sys::IBV_WC_REM_OP_ERR);
    assert!(S::RETRY_EXC_ERR.0 == sys::IBV_WC_RETRY_EXC_ERR);
    assert!(S::RNR_RETRY_EXC_ERR.0 == sys::IBV_WC_RNR_RETRY_EXC_ERR);
    assert!(S::LOC_EEC_OP_ERR.0 == sys::IBV_WC_LOC_EEC_OP_ERR);
    assert!(S::LOC_RDD_VIOL_ERR.0 == sys::IBV_WC_LOC_RDD_VIOL_ERR);
    assert!(S::REM_INV_RD_REQ_ERR.0 == sys::IBV_WC_REM_INV_RD_REQ_ERR);
    assert!(S::INV_EECN_ERR.0 == sys::IBV_WC_INV_EECN_ERR);
    assert!(S::INV_EEC_STATE_ERR.0 == sys::IBV_WC_INV_EEC_STATE_ERR);
    assert!(S::REM_ABORT_ERR.0 == sys::IBV_WC_REM_ABORT_ERR && S::FATAL_ERR.0 == sys::IBV_WC_FATAL_ERR);
    assert!(
        S::RESP_TIMEOUT_ERR.0 == sys::IBV_WC_RESP_TIMEOUT_ERR && S::GENERAL_ERR.0 == sys::IBV_WC_GENERAL_ERR
    );
};
