//! Rails: operations that are striped over several devices of a rank, and go on over the rest when a device fails.
//!
//! A rail is one device, or one port, of each rank, with a communicator of its own. `stripe` decides how an operation
//! is cut and which pieces are repeated; `run` carries the pieces out.

mod buffers;
mod calls;
mod rail;
mod run;
mod stripe;

use rdma_core::Deadline;

use rail::Rail;
use stripe::{RAILS_MAX, RailSet};

use crate::bootstrap::StoreClient;
use crate::collective::CollectiveError;
use crate::collective::CommunicatorError;
use crate::collective::communicator::{Communicator, CommunicatorOptions};
use crate::engine::{Driver, Engine};

/// Options of [`Rails`]; every rank passes the same.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RailsOptions {
    /// Options of the communicator on each rail; the rail's number is appended to the name.
    pub communicator: CommunicatorOptions,
    /// Bytes from which an operation is cut into one piece for each rail (256 KiB). A shorter operation goes over every
    /// rail as a whole, and ends when the first rail has carried it.
    pub stripe_bytes_min: usize,
    /// Bytes of the longest piece (8 MiB). Each rail holds so much memory, because results are kept apart until all
    /// ranks have them.
    pub piece_bytes: usize,
}

impl Default for RailsOptions {
    fn default() -> Self {
        Self {
            communicator: CommunicatorOptions::default(),
            stripe_bytes_min: 256 * 1024,
            piece_bytes: 8 << 20,
        }
    }
}

/// A group of ranks that have several devices each.
///
/// A rail is one device of each rank, with its own queue pairs to the neighbours; one device may be several rails.
/// Large operations are cut into pieces, which the rails carry side by side. When a rail fails, its pieces are repeated
/// on the other rails, and no element is lost. The failure costs the time to detect it: up to
/// [`peer_timeout`](crate::engine::EngineOptions::peer_timeout) for a rail that falls silent. A failed rail stays
/// failed; to use it again, make new rails of the next [epoch](CommunicatorOptions::epoch). When the ranks have no rail
/// left in common, the operation fails, and so do all later ones.
///
/// Elements are copied through memory of the library, so nothing uses the caller's slices after a call returns. A
/// reduction gives the same bits on all ranks; the bits depend on how the operation was cut, unless
/// [`reproducible`](CommunicatorOptions::reproducible) is set.
///
/// ```
/// use std::time::Duration;
/// use rdma_collective::collective::{Rails, RailsOptions, ReduceOp};
/// use rdma_collective::bootstrap::{JobToken, Join, StoreClient, StoreOptions, StoreServer};
/// use rdma_collective::engine::{Engine, EngineOptions};
/// use rdma_core::{Deadline, Device, SoftOptions};
///
/// let deadline = Deadline::after(Duration::from_secs(10));
/// let token = JobToken::random()?;
/// let server = StoreServer::bind("127.0.0.1:0".parse()?, StoreOptions::new(token, 1))?;
/// let join = Join { address: server.address(), token, rank: 0, world: 1 };
/// let mut store = StoreClient::connect(join, deadline)?;
///
/// let engine = |name: &str| -> Result<Engine, Box<dyn std::error::Error + Send + Sync>> {
///     let device = Device::soft(SoftOptions { name: name.to_owned(), ..SoftOptions::default() });
///     Ok(Engine::new(&device.open()?, EngineOptions::default())?)
/// };
/// let engines = [engine("soft0")?, engine("soft1")?];
/// let mut rails = Rails::new(&engines, &mut store, RailsOptions::default(), deadline)?;
/// let mut gradients = vec![1.0_f32; 1 << 20];
/// rails.all_reduce(&mut gradients, ReduceOp::Sum, deadline)?;
/// assert!(gradients.iter().all(|sum| *sum == rails.size() as f32));
/// assert_eq!((rails.count(), rails.failed().count()), (2, 0));
/// rails.close(deadline)?;
/// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
/// ```
#[derive(Debug)]
pub struct Rails {
    /// All rails, by number; at least one.
    rails: Vec<Rail>,
    options: RailsOptions,
    /// Rails that no rank had lost when the ranks last agreed.
    live: RailSet,
    /// The error of the rail that failed last.
    failure: Option<CollectiveError>,
}

impl Rails {
    /// The largest number of rails.
    pub const MAX: usize = RAILS_MAX;

    /// Meets the other ranks in the store and connects to the neighbours, on the device of each of `engines`.
    ///
    /// All ranks pass as many engines, in the same order: the first engines of all ranks make rail 0, and so on. The
    /// store is needed only until this returns.
    ///
    /// # Errors
    ///
    /// [`CommunicatorError::Rails`] without engines, or with more than 8. [`CommunicatorError::RailUndriven`] if an
    /// engine has no thread of its own, because nobody would then drive a slow rail between calls.
    /// [`CommunicatorError::Differs`] if ranks have another number of rails or other options. Otherwise as for
    /// [`Communicator::new`].
    pub fn new(
        engines: &[Engine],
        store: &mut StoreClient,
        options: RailsOptions,
        deadline: Deadline,
    ) -> Result<Self, CommunicatorError> {
        let count = engines.len();
        if !(1..=RAILS_MAX).contains(&count) {
            return Err(CommunicatorError::Rails { count, max: RAILS_MAX });
        }
        if engines.iter().any(|engine| engine.options().driver != Driver::Thread) {
            return Err(CommunicatorError::RailUndriven);
        }
        check_alike(count, store, &options, deadline)?;
        let on = |(number, engine): (usize, &Engine)| {
            let options = &options.communicator;
            let name = format!("{}/rail{number}", options.name);
            let comm =
                Communicator::new(engine, store, CommunicatorOptions { name, ..options.clone() }, deadline)?;
            Ok(Rail::new(comm))
        };
        let rails = engines.iter().enumerate().map(on).collect::<Result<Vec<_>, CommunicatorError>>()?;
        Ok(Self { rails, options, live: RailSet::first(count), failure: None })
    }

    /// This process's rank.
    #[must_use]
    pub fn rank(&self) -> u32 {
        self.rails.first().map_or(0, |rail| rail.comm().rank())
    }

    /// The number of ranks.
    #[must_use]
    pub fn size(&self) -> u32 {
        self.rails.first().map_or(1, |rail| rail.comm().size())
    }

    /// The number of rails, the failed ones included.
    #[must_use]
    pub fn count(&self) -> usize {
        self.rails.len()
    }

    /// The rails that have failed, by number, each with its error.
    pub fn failed(&self) -> impl Iterator<Item = (usize, &CollectiveError)> {
        let failure = |(number, rail)| Rail::failure(rail).map(|failure| (number, failure));
        self.rails.iter().enumerate().filter_map(failure)
    }

    /// The communicator on rail number `rail`.
    #[must_use]
    pub fn communicator(&self, rail: usize) -> Option<&Communicator> {
        self.rails.get(rail).map(Rail::comm)
    }

    /// Ends the communicator of each rail, as [`Communicator::close`] does.
    ///
    /// # Errors
    ///
    /// The error of a rail that had not failed before.
    pub fn close(self, deadline: Deadline) -> Result<(), CollectiveError> {
        let mut left = self.rails.len() as u32;
        let close = |rail: Rail| {
            // A rail gets an equal share of the time left, so that a slow one leaves time for the next.
            let share = Deadline::after(deadline.remaining() / left);
            left -= 1;
            rail.close(deadline.min(share))
        };
        self.rails.into_iter().map(close).fold(Ok(()), Result::and)
    }
}

/// Checks that all ranks have the same rails and options, because otherwise they would wait for each other.
fn check_alike(
    count: usize,
    store: &mut StoreClient,
    options: &RailsOptions,
    deadline: Deadline,
) -> Result<(), CommunicatorError> {
    let RailsOptions { communicator: CommunicatorOptions { name, epoch, .. }, stripe_bytes_min, piece_bytes } =
        options;
    let own = format!("{count} rails, pieces of {piece_bytes} bytes from {stripe_bytes_min} on");
    let told = store.all_gather(&format!("rails/{name}/{epoch}"), own.as_bytes(), deadline)?;
    match (0..).zip(told).find(|(_, theirs)| theirs != own.as_bytes()) {
        Some((rank, theirs)) => {
            let theirs = String::from_utf8_lossy(&theirs).replace(char::is_control, " ");
            Err(CommunicatorError::Differs {
                field: "the number of rails, or their option,",
                rank,
                ours: own,
                theirs,
            })
        }
        None => Ok(()),
    }
}
