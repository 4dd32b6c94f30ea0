//! Deviations: where kernels and drivers are known to differ from the suite.
//!
//! Each entry says why, cites the source, and has a case of its own, which asserts what happens instead. The software
//! device has no deviation.

use rdma_core::{CompletionStatus, EventKind, QpState, QueuePairOptions, Segment, Work, WorkerOptions};

use crate::cases::helpers::{OPEN, bytes_of, filled, pattern, post, post_recv, with_key};
use crate::{CaseResult, Lab, check, check_eq};

/// A known deviation.
pub struct Deviation {
    /// The name of the case that does not hold.
    pub case: &'static str,
    /// The reason, with its source.
    pub why: &'static str,
    /// The case that holds instead.
    pub instead: fn(&Lab) -> CaseResult,
}

/// Returns the known deviations of the device of the lab.
#[must_use]
pub fn of(lab: &Lab) -> Vec<Deviation> {
    if lab.device.is_soft() {
        return Vec::new();
    }
    if lab.device.name().starts_with("rxe") { rxe() } else { Vec::new() }
}

/// Deviations of the kernel's soft-RoCE, as of Linux 6.1.
fn rxe() -> Vec<Deviation> {
    vec![
        Deviation {
            case: "send::longer_than_the_receive_fails_on_both_sides",
            why: "rxe takes a message that does not fit for a malformed receive and answers \"remote operational error\" \
                  (Linux 6.1, drivers/infiniband/sw/rxe: copy_data gives EINVAL, send_data_in makes it \
                  RESPST_ERR_MALFORMED_WQE, rxe_responder answers AETH_NAK_REM_OP_ERR and IB_WC_LOC_QP_OP_ERR)",
            instead: rxe_send_too_long,
        },
        Deviation {
            case: "send::into_a_receive_of_nothing_fails",
            why: "as for send::longer_than_the_receive_fails_on_both_sides",
            instead: rxe_send_too_long,
        },
        Deviation {
            case: "write_imm::to_a_wrong_key_takes_no_receive",
            why: "rxe takes the receive before it looks at the key and completes it with REM_ACCESS_ERR (Linux 6.1, \
                  drivers/infiniband/sw/rxe/rxe_resp.c: check_resource comes before check_rkey, and \
                  RESPST_ERR_RKEY_VIOLATION completes the request at hand)",
            instead: rxe_wrong_key_takes_the_receive,
        },
        Deviation {
            case: "channel::an_overrun_is_told",
            why: "rxe tells an overrun by an asynchronous event alone, and polling goes on as if nothing were lost \
                  (Linux 6.1, drivers/infiniband/sw/rxe/rxe_cq.c: rxe_cq_post raises IB_EVENT_CQ_ERR and drops the entry)",
            instead: rxe_overrun_is_an_event,
        },
    ]
}

fn rxe_send_too_long(lab: &Lab) -> CaseResult {
    let (mut left, mut right) = lab.pair()?;
    post_recv(&mut right, 8)?;
    let buffer = filled(&left, &pattern(4, 9))?;
    post(&mut left, Work::send(buffer))?;
    left.fails_with(lab, CompletionStatus::REM_OP_ERR)?;
    right.fails_with(lab, CompletionStatus::LOC_QP_OP_ERR)?;
    check_eq!(left.qp.query_state(&mut left.worker)?, QpState::ERR);
    check_eq!(right.qp.query_state(&mut right.worker)?, QpState::ERR);
    Ok(())
}

fn rxe_wrong_key_takes_the_receive(lab: &Lab) -> CaseResult {
    let (mut left, mut right) = lab.pair()?;
    let target = right.pd.alloc_region(8, OPEN)?;
    post_recv(&mut right, 8)?;
    let buffer = filled(&left, &pattern(3, 8))?;
    post(&mut left, Work::write(buffer, with_key(target.remote(), target.rkey().0 ^ 0x5555)).with_imm(1))?;
    left.fails_with(lab, CompletionStatus::REM_ACCESS_ERR)?;
    right.fails_with(lab, CompletionStatus::REM_ACCESS_ERR)?;
    check!(bytes_of(&target)? == [0; 8]);
    right.stays_silent()
}

fn rxe_overrun_is_an_event(lab: &Lab) -> CaseResult {
    let mut options = lab.options();
    options.worker = WorkerOptions { max_cqe: 4, allow_overrun: true };
    options.queues = QueuePairOptions { max_send_wr: 64, max_recv_wr: 64, max_inline_data: 0 };
    let (mut left, mut right) = lab.pair_with(&options)?;
    while lab.context.next_event()?.is_some() {}
    for _ in 0..32 {
        post_recv(&mut right, 0)?;
        post(&mut left, Work::send(Segment::Empty))?;
    }
    let deadline = lab.soon();
    while !deadline.expired() {
        match lab.context.next_event()? {
            Some(event) if event.kind == EventKind::CQ_ERR => return Ok(()),
            Some(_) => {}
            None => std::thread::sleep(std::time::Duration::from_millis(1)),
        }
    }
    Err("32 completions in a queue of 4 entries raised no event".into())
}
