//! `Debug` of the errors: the text of `Display`.

use super::*;
use crate::memory::Unshared;
use crate::memory::pinning::{NotKnown, PinningDiagnosis};
use crate::types::Failure;

/// Implements `Debug` of each error as its `Display`.
///
/// A `main` that returns an error prints the error by `Debug`, and so does `unwrap`. The remedy stands in the text of
/// `Display` alone, so a derived `Debug` would hide the remedy from those who need it most.
#[doc(hidden)]
#[macro_export]
macro_rules! debug_as_display {
    ($($error:ident $(<$parameter:ident>)?),+ $(,)?) => {$(
        // Derived impls are not listed in `public-api.txt`.
        #[automatically_derived]
        impl$(<$parameter>)? ::core::fmt::Debug for $error$(<$parameter>)? {
            fn fmt(&self, f: &mut ::core::fmt::Formatter<'_>) -> ::core::fmt::Result {
                ::core::fmt::Display::fmt(self, f)
            }
        }
    )+};
}

debug_as_display!(CloseError, ConnectError, CreateError, DetachError, Failure, FenceError, Forked);
debug_as_display!(
    LibraryUnavailable,
    NoUsableGid,
    NotKnown,
    OpenError,
    PinningDiagnosis,
    PollError,
    PostError
);
debug_as_display!(PartialPost<W>, PostRefused<W>, Quarantine, QueryError, RangeError, ReachError);
debug_as_display!(RegisterError, UnshareError, Unshared);

#[cfg(test)]
mod tests {
    use std::error::Error;
    use std::path::PathBuf;
    use std::time::Duration;

    use super::*;
    use crate::memory::Irreplaceable;
    use crate::memory::pinning::{PinningNeed, PinningProbe};
    use crate::{CompletionStatus, PortNum, QpNum, Refused};

    fn system() -> io::Error {
        io::Error::from_raw_os_error(libc::EMFILE)
    }

    #[test]
    fn debug_of_every_public_error_is_its_display() {
        let qp_num = QpNum(7);
        let range = || RangeError { start: 0, end: 9, len: 8 };
        let full = || PostError::QueueFull { capacity: 4 };
        let diagnosis = PinningProbe::at("/nonexistent").read().explain(
            libc::ENOMEM,
            PinningNeed::length(4096),
            "mlx5_0",
        );
        let samples: [Box<dyn Error>; 24] = [
            Box::new(CloseError { verb: "ibv_dereg_mr", source: system() }),
            Box::new(ConnectError::ForeignWorker { qp_num }),
            Box::new(CreateError::ForeignProtectionDomain),
            Box::new(DetachError::NotAttached),
            Box::new(Failure { status: CompletionStatus::RETRY_EXC_ERR, vendor_error: 129 }),
            Box::new(FenceError::ForeignWorker { qp_num }),
            Box::new(Forked::new()),
            Box::new(LibraryUnavailable::StaticBuild),
            Box::new(NoUsableGid { port: PortNum(1), rejected: Vec::new() }),
            Box::new(NotKnown { path: PathBuf::from("/proc/meminfo"), why: "no number".to_owned() }),
            Box::new(OpenError::NotListed(system())),
            Box::new(diagnosis),
            Box::new(PollError::DeadlineExceeded { waited: Duration::from_secs(5) }),
            Box::new(full()),
            Quarantine::io_error(Irreplaceable::TooOften).into_inner().unwrap(),
            Box::new(QueryError::NoSuchPort { device: "rxe0".to_owned(), port: 2, ports: 1 }),
            Box::new(range()),
            Box::new(ReachError::Range(range())),
            Box::new(RegisterError::ZeroLength),
            Box::new(UnshareError { what: "mmap", source: system() }),
            Box::new(Unshared::Denied { what: "memfd_create", errno: libc::EMFILE }),
            Box::new(PartialPost { posted: 1, rejected: vec![()], error: full() }),
            Box::new(PostRefused { work: (), error: full() }),
            Box::new(Refused { object: (), error: RegisterError::ForeignDomain }),
        ];
        for error in samples {
            assert_eq!(format!("{error:?}"), error.to_string());
        }
    }
}
