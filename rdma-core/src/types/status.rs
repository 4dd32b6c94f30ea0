//! Completion statuses, with their usual cause and remedy.

use std::fmt;

/// The status of a completed work request.
///
/// `Display` prints the verbs name, the usual cause and the side that must act.
///
/// ```
/// use rdma_core::CompletionStatus;
/// let status = CompletionStatus::RNR_RETRY_EXC_ERR;
/// assert!(status.to_string().contains("the peer had no receive posted"));
/// ```
///
/// See `ibv_poll_cq(3)`.
#[doc(alias = "ibv_wc_status")]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct CompletionStatus(pub u32);

macro_rules! statuses {
    ($($name:ident = $code:literal, $cause:literal;)*) => {
        impl CompletionStatus {
            $(#[doc = concat!("`IBV_WC_", stringify!($name), "`: ", $cause)]
            pub const $name: Self = Self($code);)*

            /// Returns the verbs name without its prefix and the usual cause; `None` for a number that verbs
            /// does not define.
            #[must_use]
            pub fn explain(self) -> Option<(&'static str, &'static str)> {
                match self.0 {
                    $($code => Some((stringify!($name), $cause)),)*
                    _ => None,
                }
            }
        }
    };
}

statuses! {
    SUCCESS = 0, "done";
    LOC_LEN_ERR = 1, "a message was longer than the receive that took it: post larger receives";
    LOC_QP_OP_ERR = 2, "the queue pair could not carry out the request: check its access flags and limits, and whether this side's link is up";
    LOC_EEC_OP_ERR = 3, "end-to-end context error";
    LOC_PROT_ERR = 4, "the local buffer is not within its registration or lacks LOCAL_WRITE: check this side";
    WR_FLUSH_ERR = 5, "flushed: the queue pair was in ERR; the first failed completion before it has the cause";
    MW_BIND_ERR = 6, "a memory window could not be bound: check MW_BIND and the range";
    BAD_RESP_ERR = 7, "the peer answered with an unexpected packet";
    LOC_ACCESS_ERR = 8, "a peer's write was refused here: check the region's rights";
    REM_INV_REQ_ERR = 9, "the peer found the request invalid: its receive was too small, or the operation is not enabled there";
    REM_ACCESS_ERR = 10, "the peer refused key, range or right: the region was deregistered, is too short, or lacks the access flag";
    REM_OP_ERR = 11, "the peer failed while carrying out the request: look at its completions";
    RETRY_EXC_ERR = 12, "the peer did not acknowledge: it is dead, its queue pair is not connected, or GID, MTU or path are wrong";
    RNR_RETRY_EXC_ERR = 13, "the peer had no receive posted: it must post more or earlier";
    LOC_RDD_VIOL_ERR = 14, "reliable datagram domain violation";
    REM_INV_RD_REQ_ERR = 15, "invalid reliable datagram request";
    REM_ABORT_ERR = 16, "the peer aborted the request";
    INV_EECN_ERR = 17, "invalid end-to-end context number";
    INV_EEC_STATE_ERR = 18, "invalid end-to-end context state";
    FATAL_ERR = 19, "the device failed: reopen it";
    RESP_TIMEOUT_ERR = 20, "no response in time";
    GENERAL_ERR = 21, "an error that verbs does not name: the vendor error has more";
}

impl fmt::Display for CompletionStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.explain() {
            Some((name, cause)) => write!(f, "{name} ({cause})"),
            None => write!(f, "completion status {}", self.0),
        }
    }
}
