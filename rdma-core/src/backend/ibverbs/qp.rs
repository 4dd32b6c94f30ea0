//! Queue pairs: creation, state, destruction. The attributes of each step are in [`super::transition`], posting is in
//! [`super::post`].
#![expect(unsafe_code, reason = "owns an object of libibverbs")]

use std::io;
use std::ptr::NonNull;
use std::sync::Arc;

use super::cq::CompletionQueue;
use super::pd::Pd;
use super::sys::{self, ibv_qp, ibv_qp_attr, ibv_qp_cap, ibv_qp_init_attr};
use super::{Context, check, explain, not_null};
use crate::backend::interface::SENTINELS;
use crate::error::{CreateError, QueryError};
use crate::memory::pinning::PinningNeed;
use crate::{PortNum, QpNum, QpState, QueuePairOptions};

/// A reliable-connection queue pair.
///
/// # Invariants
///
/// `qp` belongs to `pd`, and is alive unless `destroyed`.
pub(super) struct QueuePair {
    pd: Arc<Pd>,
    qp: NonNull<ibv_qp>,
    destroyed: bool,
    /// The port that the step to INIT has set.
    pub(super) port: PortNum,
}

// SAFETY: libibverbs ties no queue pair to a thread, and posting needs `&mut`, so only one thread posts at a time.
unsafe impl Send for QueuePair {}

impl QueuePair {
    /// Creates a queue pair in RESET, whose completions go to `cq`. The caller must keep `cq` alive longer.
    pub(super) fn new(
        cq: &CompletionQueue,
        pd: &Arc<Pd>,
        options: &QueuePairOptions,
    ) -> Result<Self, CreateError> {
        let context = pd.context();
        if !Arc::ptr_eq(context, cq.context()) {
            return Err(CreateError::ForeignProtectionDomain);
        }
        let max_recv_wr = receives(options, context.limits.device.max_qp_wr)?;
        let create_qp = context.symbols.ibv_create_qp.clone()?;
        let mut attributes = ibv_qp_init_attr {
            send_cq: cq.as_ptr(),
            recv_cq: cq.as_ptr(),
            cap: ibv_qp_cap {
                max_send_wr: options.max_send_wr,
                max_recv_wr,
                max_send_sge: 1,
                max_recv_sge: 1,
                max_inline_data: options.max_inline_data,
            },
            qp_type: sys::IBV_QPT_RC,
            sq_sig_all: 0,
            ..ibv_qp_init_attr::zeroed()
        };
        // SAFETY: `pd` and `cq` are alive for the call and were just checked to be of one context, so the attributes
        // are valid.
        let qp = not_null(unsafe { create_qp(pd.as_ptr(), &mut attributes) });
        let qp = qp.map_err(|source| {
            // The estimate of the pinned rings: a send entry holds a header, the remote range, and a local range or
            // inline data.
            let send = explain::ring(options.max_send_wr, options.max_inline_data.saturating_add(48));
            let rings = PinningNeed::about(send.saturating_add(explain::ring(max_recv_wr, 16)));
            explain::creation(context, "ibv_create_qp", "queue pairs", rings, source)
        })?;
        // INVARIANT: the queue pair was just created, and only this value knows it.
        Ok(Self { pd: Arc::clone(pd), qp, destroyed: false, port: PortNum::default() })
    }

    pub(super) fn context(&self) -> &Arc<Context> {
        self.pd.context()
    }

    pub(super) fn as_ptr(&self) -> *mut ibv_qp {
        self.qp.as_ptr()
    }

    pub(super) fn qp_num(&self) -> QpNum {
        // SAFETY: a destroyed value is not asked for its number, so the queue pair is alive; the number never changes.
        QpNum(unsafe { (*self.as_ptr()).qp_num })
    }

    /// Sets the attributes that `mask` names.
    pub(super) fn modify(
        &mut self,
        attributes: &mut ibv_qp_attr,
        mask: sys::ibv_qp_attr_mask,
    ) -> io::Result<()> {
        let modify_qp = self.context().symbols.ibv_modify_qp.clone().map_err(io::Error::other)?;
        // SAFETY: the queue pair is alive, since a destroyed one leaves its slot, and the attributes are ours. The
        // cast is exact: the mask's bits are below the sign.
        check(unsafe { modify_qp(self.as_ptr(), attributes, mask.cast_signed()) })
    }

    /// Asks the device for the state, which may change without a step of ours, for instance to ERR.
    pub(super) fn state(&self) -> Result<QpState, QueryError> {
        let query_qp = self.context().symbols.ibv_query_qp.clone()?;
        let (mut attributes, mut init) = (ibv_qp_attr::zeroed(), ibv_qp_init_attr::zeroed());
        let mask = sys::IBV_QP_STATE.cast_signed();
        // SAFETY: the queue pair is alive, since a destroyed one leaves its slot, and both structures are ours to be
        // written.
        check(unsafe { query_qp(self.as_ptr(), &mut attributes, mask, &mut init) })
            .map_err(|source| self.context().refused("ibv_query_qp", source))?;
        Ok(QpState(attributes.qp_state))
    }

    /// Destroys the queue pair: after `Ok` the device touches no memory of its requests any more. May be called again
    /// after an error.
    pub(super) fn destroy(&mut self) -> io::Result<()> {
        if self.destroyed {
            return Ok(());
        }
        let destroy_qp = self.context().symbols.ibv_destroy_qp.clone().map_err(io::Error::other)?;
        // SAFETY: the invariant says that it is alive, since `destroyed` is not set. Asynchronous events are
        // acknowledged as they are taken, so the call does not wait for one.
        check(unsafe { destroy_qp(self.as_ptr()) })?;
        self.destroyed = true;
        Ok(())
    }
}

impl Drop for QueuePair {
    fn drop(&mut self) {
        if let Err(error) = self.destroy() {
            std::mem::forget(Arc::clone(&self.pd));
            crate::log::error!(%error, qp_num = %self.qp_num(), "ibv_destroy_qp failed; the queue pair is leaked");
        }
    }
}

/// The depth of the receive queue: as asked for and one more for the fence, where the device has that many. A depth
/// beyond the device is refused by the name of the option.
///
/// At the limit there is no room for the sentinel of the fence. The queue is then full of other receives, and the
/// flush of the last one proves as much.
fn receives(options: &QueuePairOptions, limit: u32) -> Result<u32, CreateError> {
    for (option, asked) in [("max_send_wr", options.max_send_wr), ("max_recv_wr", options.max_recv_wr)] {
        if asked > limit {
            return Err(CreateError::BeyondLimit { option, asked: asked.into(), limit: limit.into() });
        }
    }
    Ok(options.max_recv_wr.saturating_add(SENTINELS).min(limit))
}

// The numbers of the public types are those of the C headers; this stops the build if they differ.
const _: () = {
    assert!(QpState::RESET.0 == sys::IBV_QPS_RESET && QpState::INIT.0 == sys::IBV_QPS_INIT);
    assert!(QpState::RTR.0 == sys::IBV_QPS_RTR && QpState::RTS.0 == sys::IBV_QPS_RTS);
    assert!(QpState::SQD.0 == sys::IBV_QPS_SQD && QpState::SQE.0 == sys::IBV_QPS_SQE);
    assert!(QpState::ERR.0 == sys::IBV_QPS_ERR);
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_receives_as_the_device_has_may_be_asked_for_and_one_more_is_refused_by_its_number() {
        let options = |max_recv_wr| QueuePairOptions { max_recv_wr, ..QueuePairOptions::default() };
        for (asked, made) in [(0, 1), (1, 2), (999, 1000), (1000, 1000)] {
            assert_eq!(receives(&options(asked), 1000).unwrap(), made);
        }
        let error = receives(&options(1001), 1000).unwrap_err();
        assert!(
            matches!(error, CreateError::BeyondLimit { option: "max_recv_wr", asked: 1001, limit: 1000 }),
            "{error}"
        );
    }
}
