//! `Debug` of the crate's errors: the text of `Display`, because `main` and `unwrap` print an error by `Debug`.

use rdma_core::debug_as_display;

use crate::bootstrap::{BootstrapError, FrameError, MixedJobs, SpawnError};
use crate::collective::tuning::TuningError;
use crate::collective::{
    AllocError, CollectiveError, CommunicatorError, InitError, ReduceError, ScheduleError, UnknownAlgorithm,
    WaitError,
};
use crate::engine::{EngineError, SetupError};
use crate::env::{EnvError, JoinError, SelectError};
use crate::kv::layout::LayoutError;
use crate::kv::{KvError, LinkError, NodeError, PlanError, PoolError, TransferError};
use crate::link::{BlobError, HandshakeError, LaneFailure};
use crate::parse_name::ParseNameError;

debug_as_display!(
    BootstrapError,
    MixedJobs,
    FrameError,
    SpawnError,
    EnvError,
    JoinError,
    SelectError,
    ParseNameError
);
debug_as_display!(AllocError, CollectiveError, CommunicatorError, InitError, ReduceError, ScheduleError);
debug_as_display!(
    TuningError,
    UnknownAlgorithm,
    EngineError,
    SetupError,
    BlobError,
    HandshakeError,
    LaneFailure
);
debug_as_display!(KvError, LayoutError, LinkError, NodeError, PlanError, PoolError, TransferError);
debug_as_display!(WaitError<T>);

#[cfg(test)]
mod tests {
    use std::error::Error;
    use std::io;
    use std::sync::Arc;
    use std::time::Duration;

    use rdma_core::doctor::Refusal;
    use rdma_core::error::{PollError, RegisterError};
    use rdma_core::{QpNum, SoftOptions};

    use super::*;
    use crate::collective::tuning::TuningErrorKind;
    use crate::collective::{Algorithms, ReduceOp};
    use crate::env::{NcclOptions, Variables};
    use crate::kv::{BlockVerdict, Verdicts};
    use crate::link::LaneName;

    #[test]
    fn debug_of_every_public_error_is_its_display() {
        let waited = Duration::from_secs(5);
        let lane = LaneName { qp_num: QpNum(7), epoch: 1 };
        let lost =
            CollectiveError::PeerFailed { rank: 3, lane, cause: LaneFailure::Closed, interrupted: None };
        let cause = Arc::new(KvError::RequestRepeated { request: 4.into() });
        let unset = Variables::from_iter([("NCCL_IB_GID_INDEX", "x")]);
        let samples: [Box<dyn Error>; 27] = [
            Box::new(BootstrapError::NotAToken { len: 3 }),
            Box::new(FrameError::NotAStore),
            Box::new(SpawnError::DeadlineExceeded { ranks: vec![1], waited }),
            Box::new(NcclOptions::read(&unset).unwrap_err()),
            Box::new(JoinError::Orphan { parent: 9 }),
            Box::new(NcclOptions::default().select("none", SoftOptions::default(), None).unwrap_err()),
            Box::new("mean".parse::<ReduceOp>().unwrap_err()),
            Box::new(AllocError::Count(ReduceError::NoInputs)),
            Box::new(lost.clone()),
            Box::new(CommunicatorError::Introduction { rank: 3 }),
            Box::new(InitError::Communicator(CommunicatorError::Introduction { rank: 3 })),
            Box::new(ReduceError::NoInputs),
            Box::new(ScheduleError::RankOutOfRange { rank: 4, ranks: 4 }),
            Box::new(WaitError::<()>::Failed(lost)),
            Box::new(TuningError::from(TuningErrorKind::NoTable {
                file: "t".to_owned(),
                reason: "empty".to_owned(),
            })),
            Box::new("loop".parse::<Algorithms>().unwrap_err()),
            Box::new(EngineError::Device { source: Arc::new(PollError::Overrun) }),
            Box::new(SetupError::LaneGone),
            Box::new(BlobError::NotABlob),
            Box::new(HandshakeError::NobodyCame { waited }),
            Box::new(LaneFailure::Silent { since: waited }),
            Box::new(KvError::RequestRepeated { request: 4.into() }),
            Box::new(LayoutError::OnePart),
            Box::new(LinkError::OtherEngine),
            Box::new(PlanError::NoBlocks),
            Box::new(PoolError::OtherEngine),
            Box::new(TransferError { cause, verdicts: Verdicts::new(1, [0], BlockVerdict::Missing) }),
        ];
        for error in samples {
            assert_eq!(format!("{error:?}"), error.to_string());
        }
    }

    #[test]
    fn the_doctor_finds_a_refused_registration_below_every_error_that_holds_one() {
        let refused = || RegisterError::Refused {
            len: 8,
            source: io::Error::from_raw_os_error(libc::ENOMEM),
            explanation: String::new(),
        };
        let errors: [Box<dyn Error>; 4] = [
            SetupError::from(refused()).into(),
            CommunicatorError::from(refused()).into(),
            PoolError::from(refused()).into(),
            AllocError::from(refused()).into(),
        ];
        for error in errors {
            assert_eq!(Refusal::of(&*error), Some(Refusal::Registration { bytes: 8 }), "{error}");
            assert_eq!(error.to_string(), refused().to_string());
        }
    }
}
