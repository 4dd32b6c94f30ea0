//! The verdict: which limit refused a registration, or would refuse one.
//!
//! Judges a snapshot against an errno and a need, and prints the limit, the need and the shortfall. How to
//! raise the limit is left to `mend`.

use super::cgroup::RdmaResource;
use super::mend;
use super::need::PinningNeed;
use super::reading::{Bytes, Limit};
use super::snapshot::{PinningSnapshot, groups, limit_in_bytes};
use std::path::PathBuf;
use std::{error, fmt, io};

/// The reason why memory could not be pinned, or an object not be created, with the remedy.
///
/// `Display` prints several lines: the limit, the need and the shortfall; values that are in doubt; and the
/// remedy for a shell, a systemd unit and a pod spec.
///
/// [`PinningSnapshot::explain`] and [`PinningSnapshot::check_before`] make one; the [module](super) has an
/// example.
#[derive(Clone, PartialEq, Eq)]
pub struct PinningDiagnosis(Box<Inner>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct Inner {
    errno: Option<i32>,
    cause: PinningCause,
    need: PinningNeed,
    device: String,
    snapshot: PinningSnapshot,
}

/// The limit that refused.
///
/// [`PinningDiagnosis::cause`] has it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum PinningCause {
    /// RLIMIT_MEMLOCK is 0, which forbids pinning altogether (EPERM).
    MemlockZero,
    /// RLIMIT_MEMLOCK leaves too little room (ENOMEM).
    MemlockTooSmall {
        /// The soft limit in bytes.
        limit_bytes: u64,
        /// Bytes that are pinned already; 0 when that is not known.
        pinned_bytes: u64,
        /// Bytes by which the limit is too low, in whole pages.
        shortfall_bytes: u64,
    },
    /// A memory cgroup leaves too little room to bring the pages in (ENOMEM, or the out-of-memory
    /// killer).
    MemoryCgroup {
        /// The file that holds the limit.
        limit_file: PathBuf,
        /// The limit in bytes.
        limit_bytes: u64,
        /// Bytes that are charged already.
        used_bytes: u64,
        /// The part of `used_bytes` that is file cache.
        reclaimable_bytes: u64,
        /// Bytes by which the limit is too low.
        shortfall_bytes: u64,
    },
    /// The system has too little memory left (ENOMEM, or the out-of-memory killer).
    SystemMemory {
        /// Bytes that the system could still hand out.
        available_bytes: u64,
        /// Bytes that were missing.
        shortfall_bytes: u64,
    },
    /// An rdma cgroup allows no more objects on this device (EAGAIN).
    RdmaCgroup {
        /// The file that holds the limit (`rdma.max`).
        limit_file: PathBuf,
        /// The resource that is used up.
        resource: RdmaResource,
        /// The largest allowed number.
        max: u64,
        /// The number in use.
        current: u64,
    },
    /// A limit on pinning can cause this errno, but no limit that could be read explains it.
    NotExplained,
    /// No limit on pinning causes this errno.
    NotALimit,
}

impl PinningSnapshot {
    /// Explains why `need` on `device` was refused with `errno`.
    ///
    /// Take the snapshot soon after the failure and on the thread that met it, because capabilities belong to
    /// threads. EPERM, ENOMEM and EAGAIN are told apart; for any other errno the verdict is
    /// [`PinningCause::NotALimit`].
    #[must_use]
    pub fn explain(&self, errno: i32, need: PinningNeed, device: &str) -> PinningDiagnosis {
        let memlock = || self.memlock_cause(need);
        let cause = match errno {
            libc::EPERM => match (memlock(), &self.memlock.soft) {
                (Some(PinningCause::MemlockZero), _) => PinningCause::MemlockZero,
                (_, Err(_)) => PinningCause::NotExplained,
                _ => PinningCause::NotALimit,
            },
            libc::ENOMEM => memlock()
                .filter(|cause| *cause != PinningCause::MemlockZero)
                .or_else(|| self.memory_cause(need))
                .unwrap_or(PinningCause::NotExplained),
            libc::EAGAIN => {
                let resources = [RdmaResource::HcaObject, RdmaResource::HcaHandle];
                let full = resources.into_iter().find_map(|resource| self.rdma_cause(device, resource));
                full.unwrap_or(PinningCause::NotExplained)
            }
            _ => PinningCause::NotALimit,
        };
        self.diagnosis(Some(errno), cause, need, device)
    }

    /// Explains why opening `device` was refused with `errno`; [`explain`](Self::explain) is for objects on
    /// an open device.
    #[must_use]
    pub fn explain_open(&self, errno: i32, device: &str) -> PinningDiagnosis {
        let cause = match errno {
            libc::EAGAIN => {
                self.rdma_cause(device, RdmaResource::HcaHandle).unwrap_or(PinningCause::NotExplained)
            }
            _ => PinningCause::NotALimit,
        };
        self.diagnosis(Some(errno), cause, PinningNeed::length(0), device)
    }

    /// Predicts whether `need` on `device`, and one verbs object for it, would be refused. The
    /// [module](super) has an example.
    ///
    /// A value that is not known never refuses. The trap: other processes change the values meanwhile, so
    /// treat a refusal as a warning and `Ok` as no promise.
    ///
    /// # Errors
    ///
    /// The diagnosis of the first limit that would refuse, with the remedy.
    pub fn check_before(&self, need: PinningNeed, device: &str) -> Result<(), PinningDiagnosis> {
        let cause = self
            .memlock_cause(need)
            .or_else(|| self.memory_cause(need))
            .or_else(|| self.rdma_cause(device, RdmaResource::HcaObject));
        cause.map_or(Ok(()), |cause| Err(self.diagnosis(None, cause, need, device)))
    }

    fn diagnosis(
        &self,
        errno: Option<i32>,
        cause: PinningCause,
        need: PinningNeed,
        device: &str,
    ) -> PinningDiagnosis {
        let (device, snapshot) = (device.to_owned(), self.clone());
        PinningDiagnosis(Box::new(Inner { errno, cause, need, device, snapshot }))
    }

    /// Repeats the kernel's own test: is any pinning allowed, and do pinned plus new pages fit the limit in
    /// whole pages.
    pub(crate) fn memlock_cause(&self, need: PinningNeed) -> Option<PinningCause> {
        if self.ipc_lock.lifts_memlock() == Some(true) {
            return None;
        }
        let Ok(Limit::AtMost(limit_bytes)) = self.memlock.soft else { return None };
        let need_bytes = need.pinned_bytes(self.page_bytes);
        if need_bytes == 0 {
            return None;
        }
        if limit_bytes == 0 {
            return Some(PinningCause::MemlockZero);
        }
        // Without a count, 0 is assumed: that can miss a shortage, but never reports one that is not there.
        let pinned_bytes = *self.memlock.pinned_bytes.as_ref().unwrap_or(&0);
        let whole_pages = Limit::AtMost(limit_bytes - limit_bytes % self.page_bytes.max(1));
        let shortfall_bytes = whole_pages.shortfall(pinned_bytes, need_bytes);
        let cause = PinningCause::MemlockTooSmall { limit_bytes, pinned_bytes, shortfall_bytes };
        (shortfall_bytes > 0).then_some(cause)
    }

    /// Returns the cgroup that lacks most memory; if none does, checks the system.
    pub(crate) fn memory_cause(&self, need: PinningNeed) -> Option<PinningCause> {
        let need_bytes = need.new_bytes(self.page_bytes);
        if need_bytes == 0 {
            return None;
        }
        let full = groups(&self.memory_cgroups).iter().filter_map(|group| {
            let shortfall_bytes = group.shortfall_bytes(need_bytes).filter(|shortfall| *shortfall > 0)?;
            let Ok(Limit::AtMost(limit_bytes)) = group.limit else { return None };
            let cause = PinningCause::MemoryCgroup {
                limit_file: group.limit_file.clone(),
                limit_bytes,
                used_bytes: *group.used_bytes.as_ref().ok()?,
                reclaimable_bytes: *group.reclaimable_bytes.as_ref().ok()?,
                shortfall_bytes,
            };
            Some((shortfall_bytes, cause))
        });
        full.max_by_key(|(shortfall, _)| *shortfall).map(|(_, cause)| cause).or_else(|| {
            let available_bytes = *self.available_bytes.as_ref().ok()?;
            let shortfall_bytes =
                need_bytes.checked_sub(available_bytes).filter(|shortfall| *shortfall > 0)?;
            Some(PinningCause::SystemMemory { available_bytes, shortfall_bytes })
        })
    }

    /// Returns the nearest group that is full, because one more object must fit into every group.
    fn rdma_cause(&self, device: &str, resource: RdmaResource) -> Option<PinningCause> {
        groups(&self.rdma_cgroups).iter().find_map(|group| {
            let (max, current) = group.usage(device, resource)?;
            let limit_file = group.limit_file.clone();
            (current >= max).then_some(PinningCause::RdmaCgroup { limit_file, resource, max, current })
        })
    }
}

impl PinningDiagnosis {
    /// Returns the limit that refused, or would refuse.
    #[must_use]
    pub fn cause(&self) -> &PinningCause {
        &self.0.cause
    }

    /// Returns the errno that was explained; `None` for a prediction.
    #[must_use]
    pub fn errno(&self) -> Option<i32> {
        self.0.errno
    }

    /// Returns the need that was judged.
    #[must_use]
    pub fn need(&self) -> PinningNeed {
        self.0.need
    }

    /// Returns the name of the device.
    #[must_use]
    pub fn device(&self) -> &str {
        &self.0.device
    }

    /// Returns the snapshot that was judged.
    #[must_use]
    pub fn snapshot(&self) -> &PinningSnapshot {
        &self.0.snapshot
    }
}

impl error::Error for PinningDiagnosis {}

impl fmt::Display for PinningDiagnosis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.fmt_cause(f)?;
        self.fmt_doubts(f)?;
        mend::fmt(self, f)
    }
}

impl PinningDiagnosis {
    /// Prints the limit, the need and the shortfall.
    fn fmt_cause(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let page = self.0.snapshot.page_bytes;
        let (pinned, new) = (Bytes(self.0.need.pinned_bytes(page)), Bytes(self.0.need.new_bytes(page)));
        let (name, device) = (errno_name(self.0.errno), &self.0.device);
        let bytes = |number: &u64| Bytes(*number);
        let about = if self.0.need.is_estimate() { "about " } else { "" };
        match &self.0.cause {
            PinningCause::MemlockZero => {
                write!(f, "RLIMIT_MEMLOCK is 0, so nothing may be pinned{name}: ")?;
                writeln!(f, "all of the {about}{pinned} needed are too many")
            }
            PinningCause::MemlockTooSmall { limit_bytes, pinned_bytes, shortfall_bytes } => {
                let [limit, held, shortfall] = [limit_bytes, pinned_bytes, shortfall_bytes].map(bytes);
                write!(
                    f,
                    "RLIMIT_MEMLOCK is too small{name}: the limit is {limit}, {held} are pinned already, "
                )?;
                writeln!(f, "{about}{pinned} more are needed, {shortfall} too many")
            }
            PinningCause::MemoryCgroup {
                limit_bytes,
                used_bytes,
                reclaimable_bytes,
                shortfall_bytes,
                ..
            } => {
                let [limit, used] = [limit_bytes, used_bytes].map(bytes);
                let [cache, shortfall] = [reclaimable_bytes, shortfall_bytes].map(bytes);
                write!(f, "the memory cgroup is too small{name}: its limit is {limit}, ")?;
                write!(f, "{used} are used, of which {cache} are file cache, ")?;
                writeln!(f, "up to {new} more are needed, {shortfall} too many")
            }
            PinningCause::SystemMemory { available_bytes, shortfall_bytes } => {
                let [available, shortfall] = [available_bytes, shortfall_bytes].map(bytes);
                write!(f, "the system is short of memory{name}: {available} are available, ")?;
                writeln!(f, "up to {new} are needed, {shortfall} too many")
            }
            PinningCause::RdmaCgroup { resource, max, current, .. } => {
                let lacking = Limit::AtMost(*max).shortfall(*current, 1);
                write!(f, "the rdma cgroup is full{name}: the limit of {device} is {max} {resource}, ")?;
                writeln!(f, "{current} are in use, 1 more is needed, {lacking} too many")
            }
            PinningCause::NotExplained => {
                writeln!(f, "no limit that could be read explains the failure{name}")
            }
            PinningCause::NotALimit => writeln!(f, "the failure is not due to a limit on pinning{name}"),
        }
    }

    /// Prints values that the verdict depends on and that are not known, or easily misread.
    fn fmt_doubts(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let snapshot = &self.0.snapshot;
        match &self.0.cause {
            PinningCause::MemlockZero | PinningCause::MemlockTooSmall { .. } => {
                writeln!(f, "  CAP_IPC_LOCK, which lifts this limit: {}", snapshot.ipc_lock)?;
                if let Err(unknown) = &snapshot.memlock.pinned_bytes {
                    writeln!(f, "  what is pinned already: {unknown}")?;
                }
                Ok(())
            }
            PinningCause::MemoryCgroup { limit_file, .. } | PinningCause::RdmaCgroup { limit_file, .. } => {
                writeln!(f, "  the limit stands in {}", limit_file.display())
            }
            PinningCause::NotExplained => {
                writeln!(f, "  what was looked at:")?;
                snapshot.to_string().lines().try_for_each(|line| writeln!(f, "    {line}"))
            }
            PinningCause::NotALimit if self.0.errno == Some(libc::EPERM) => match snapshot.memlock.soft {
                Ok(Limit::AtMost(0)) | Err(_) => Ok(()),
                Ok(limit) => {
                    let limit = limit_in_bytes(limit);
                    writeln!(f, "  RLIMIT_MEMLOCK, which gives EPERM when it is 0, is {limit}")
                }
            },
            PinningCause::SystemMemory { .. } | PinningCause::NotALimit => Ok(()),
        }
    }
}

/// Returns ` (NAME)`, or nothing for a prediction.
fn errno_name(errno: Option<i32>) -> String {
    let Some(errno) = errno else { return String::new() };
    let name = match errno {
        libc::EPERM => "EPERM",
        libc::ENOMEM => "ENOMEM",
        libc::EAGAIN => "EAGAIN",
        libc::EINVAL => "EINVAL",
        libc::EFAULT => "EFAULT",
        _ => return format!(" ({})", io::Error::from_raw_os_error(errno)),
    };
    format!(" ({name})")
}
