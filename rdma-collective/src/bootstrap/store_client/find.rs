//! The search for a store whose address is not certain: at one of several ports, or by the job's name.

use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use rdma_core::Deadline;

use super::{CONNECT_PAUSE_MAX, Join, StoreClient};
use crate::bootstrap::message::{Refusal, Reply, Request};
use crate::bootstrap::{BootstrapError, MixedJobs, MixedJobsKind};
use crate::bootstrap::{JobToken, by_name};

/// The time that one port has to answer at first: another program's server may accept and stay silent for ever.
const PROBE_MIN: Duration = Duration::from_millis(250);
/// The time that one port has to answer later on: by then, slowness of the store itself is more likely.
const PROBE_MAX: Duration = Duration::from_secs(2);

/// The time that the holders of ports have to answer a second rank 0. A store answers within milliseconds; another
/// program may be silent for ever, and the start of the job waits for it.
const CLAIM_WITHIN: Duration = Duration::from_secs(1);

impl StoreClient {
    /// Finds the store of a job at one of the `ports` of a host, and joins it. All ports are tried again and again
    /// until the deadline.
    ///
    /// A server with another token or of another run, or one that is no store, belongs to somebody else and is skipped.
    ///
    /// # Errors
    /// [`BootstrapError::NotFound`] at the deadline, with the most telling answer of another server. A refusal of the
    /// job's own store, such as [`BootstrapError::OtherWorld`], at once.
    pub fn find(
        ip: IpAddr,
        ports: &[u16],
        job: (JobToken, u32, u32),
        deadline: Deadline,
    ) -> Result<Self, BootstrapError> {
        Self::find_run(ip, ports, job, "", deadline)
    }

    /// [`find`](Self::find) as a rank of a launcher's run. Stores of other runs are passed over.
    pub(crate) fn find_run(
        ip: IpAddr,
        ports: &[u16],
        (token, rank, world): (JobToken, u32, u32),
        run: &str,
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
                match Self::attempt(&join, run, attempt, deadline.min(Deadline::after(probe))) {
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

    /// Joins the store that rank 0 serves on this host [by name](super::super::StoreServer::bind_by_name), and waits
    /// for it until the deadline. The caller needs no token: rank 0 hands it to processes of the same user.
    ///
    /// # Errors
    /// [`BootstrapError::NobodyByName`] if no rank 0 appeared, [`BootstrapError::Impostor`] if another user holds the
    /// name; otherwise the errors of [`connect`](Self::connect).
    pub fn connect_by_name(
        name: &str,
        rank: u32,
        world: u32,
        deadline: Deadline,
    ) -> Result<Self, BootstrapError> {
        let (address, token) = by_name::ask(name, deadline)?;
        Self::connect(Join { address, token, rank, world }, deadline)
    }
}

/// Asks the stores at `addresses`, all of this host, whether one of them has the job of which this process is rank 0;
/// returns [`BootstrapError::Mixed`] if so.
///
/// Addresses where nobody listens cost nothing. All others are asked at once, and have [`CLAIM_WITHIN`]
/// together, but at most a quarter of the time until `deadline`.
pub(crate) fn claim(
    addresses: &[SocketAddr],
    (token, world): (JobToken, u32),
    run: &str,
    deadline: Deadline,
) -> Option<BootstrapError> {
    let deadline = Deadline::after(CLAIM_WITHIN.min(deadline.remaining() / 4));
    let mut asked = Vec::new();
    for &address in addresses {
        let join = Join { address, token, rank: 0, world };
        let within = deadline.min(Deadline::after(PROBE_MIN));
        let Ok(mut client) = StoreClient::open(&join, run, within) else { continue };
        let claim = Request::Claim(client.hello(0));
        if let Ok(id) = client.ask(&claim, within) {
            asked.push((client, id));
        }
    }
    asked.into_iter().find_map(|(mut client, id)| match client.receive(id, deadline) {
        Ok(Reply::Refused(refusal @ Refusal::TwoJobs { .. })) => Some(client.refused(refusal, "")),
        _ => None,
    })
}

/// Whether an error may come from a server of somebody else, or from none, so that the search goes on.
fn is_not_ours(error: &BootstrapError) -> bool {
    weight(error) > 0
}

/// The rank of an error as an explanation why the store was not found; 0 for an error of the job's own store.
fn weight(error: &BootstrapError) -> u8 {
    match error {
        BootstrapError::Lost { .. } => 1,
        BootstrapError::NotAStore { .. } => 2,
        BootstrapError::NoAnswer { .. } => 3,
        BootstrapError::OtherToken { .. } | BootstrapError::OtherVersion { .. } => 4,
        BootstrapError::Mixed(MixedJobs(MixedJobsKind::OtherRun { .. })) => 5,
        _ => 0,
    }
}
