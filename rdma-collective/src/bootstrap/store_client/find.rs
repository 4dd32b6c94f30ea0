//! Finding the store where its address is not known for sure: at one of several ports, or by the job's name.

use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use rdma_core::Deadline;

use super::{CONNECT_PAUSE_MAX, Join, StoreClient};
use crate::bootstrap::BootstrapError;
use crate::bootstrap::{JobToken, door};

/// How long one port may take to answer at first: somebody else's server may stay silent for ever.
const PROBE_MIN: Duration = Duration::from_millis(250);
/// How long later on, when the store itself may be slow.
const PROBE_MAX: Duration = Duration::from_secs(2);

impl StoreClient {
    /// Joins the store of the job with this token at whichever of `ports` of a host it listens, trying all of them
    /// again and again until the deadline.
    ///
    /// What answers with another token, or is no store, is somebody else's and passed over.
    ///
    /// # Errors
    /// [`BootstrapError::NotFound`] with what answered instead; a refusal of the store itself, such as
    /// [`BootstrapError::OtherWorld`], at once.
    pub fn find(
        ip: IpAddr,
        ports: &[u16],
        (token, rank, world): (JobToken, u32, u32),
        deadline: Deadline,
    ) -> Result<Self, BootstrapError> {
        let started = Instant::now();
        let attempt =
            getrandom::u64().map_err(|error| BootstrapError::Random { reason: error.to_string() })?;
        let (mut probe, mut pause) = (PROBE_MIN, Duration::from_millis(5));
        let address = SocketAddr::new(ip, 0);
        let mut told = BootstrapError::Lost { address, source: ErrorKind::AddrNotAvailable.into() };
        loop {
            for port in ports {
                let join = Join { address: SocketAddr::new(ip, *port), token, rank, world };
                match Self::attempt(&join, attempt, deadline.min(Deadline::after(probe))) {
                    Err(error) if is_not_ours(&error) => {
                        if weight(&error) >= weight(&told) {
                            told = error;
                        }
                    }
                    outcome => return outcome,
                }
            }
            let pausing = pause.min(deadline.remaining());
            if pausing.is_zero() {
                break;
            }
            std::thread::sleep(pausing);
            pause = (pause * 2).min(CONNECT_PAUSE_MAX);
            probe = (probe * 2).min(PROBE_MAX);
        }
        let (ports, waited) = (ports.to_vec(), started.elapsed());
        Err(BootstrapError::NotFound { host: ip, ports, waited, source: Box::new(told), by: None })
    }

    /// Joins the store that rank 0 serves on this host [by name](super::super::StoreServer::bind_by_name), waiting
    /// for it until the deadline.
    ///
    /// # Errors
    /// [`BootstrapError::NobodyByName`] when there is none, [`BootstrapError::Impostor`] when another user has it;
    /// otherwise as [`connect`](Self::connect).
    pub fn connect_by_name(
        name: &str,
        rank: u32,
        world: u32,
        deadline: Deadline,
    ) -> Result<Self, BootstrapError> {
        let (address, token) = door::knock(name, deadline)?;
        Self::connect(Join { address, token, rank, world }, deadline)
    }
}

/// Whether somebody else may have answered, or nobody.
fn is_not_ours(error: &BootstrapError) -> bool {
    weight(error) > 0
}

/// How much an error tells about why the store was not found; 0 for one that is the store's own.
fn weight(error: &BootstrapError) -> u8 {
    match error {
        BootstrapError::Lost { .. } => 1,
        BootstrapError::NotAStore { .. } => 2,
        BootstrapError::NoAnswer { .. } => 3,
        BootstrapError::OtherToken { .. } | BootstrapError::OtherVersion { .. } => 4,
        _ => 0,
    }
}
