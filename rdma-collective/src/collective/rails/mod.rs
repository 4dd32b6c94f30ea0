//! Several devices a rank: operations go over all of them, and over those that are left when one fails.
//!
//! A rail is a device, or a port, of each rank, with a communicator of its own on it. How operations are cut, and who decides
//! what has to be done again, is `stripe`'s; `run` carries them out.

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

/// How [`Rails`] are made; alike on all ranks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RailsOptions {
    /// Of the communicator on each rail; its name gets the rail's number behind it.
    pub communicator: CommunicatorOptions,
    /// Bytes from which an operation is cut into pieces, one for each rail (256 KiB). One of fewer goes over every rail as a
    /// whole, and ends when the first has carried it.
    pub stripe_bytes_min: usize,
    /// Bytes that a rail carries at a time (8 MiB), which are kept apart until all ranks have them: each rail holds so much.
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
/// A rail is one device of each rank, with queue pairs of its own to its neighbours; the same device may be several rails.
/// Large operations are cut into pieces, which the rails carry side by side. When a rail fails its pieces are done again on
/// the others: that costs the time in which it is found out, which is the engine's
/// [`peer_timeout`](crate::engine::EngineOptions::peer_timeout) if it falls silent, and no element. A rail that has failed stays
/// so: make new rails, of the next [epoch](CommunicatorOptions::epoch), to take it up again. When no rail is left that all
/// ranks have, an operation fails, and all after it.
///
/// Elements are copied through memory of the library, so that nothing of the caller's is in use when a call returns. A
/// reduction gives the same bits on all ranks; which ones depends on how it was cut, unless
/// [`reproducible`](CommunicatorOptions::reproducible).
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
/// let engine = |name: &str| -> Result<Engine, Box<dyn std::error::Error>> {
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
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Rails {
    /// One at least.
    rails: Vec<Rail>,
    options: RailsOptions,
    /// Rails that no rank had lost at the last decision.
    live: RailSet,
    /// What the last rail to fail has failed with.
    failure: Option<CollectiveError>,
}

impl Rails {
    /// How many there may be.
    pub const MAX: usize = RAILS_MAX;

    /// Meets the other ranks in the store and connects to the neighbours, on the device of each of `engines`.
    ///
    /// All ranks call it with as many engines, in the same order: the first of each make a rail, and so on. The store is
    /// needed until then alone.
    ///
    /// # Errors
    ///
    /// [`CommunicatorError::Rails`] when there are none, or more than 8; [`CommunicatorError::RailUndriven`] when an engine has no thread of
    /// its own, without which what a rail is behind with would not go on between calls; [`CommunicatorError::Differs`] when ranks have not as many, or
    /// other options; otherwise as for [`Communicator::new`].
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

    /// How many ranks there are.
    #[must_use]
    pub fn size(&self) -> u32 {
        self.rails.first().map_or(1, |rail| rail.comm().size())
    }

    /// How many rails there were at the beginning.
    #[must_use]
    pub fn count(&self) -> usize {
        self.rails.len()
    }

    /// The rails that have failed since, by their numbers, and why.
    pub fn failed(&self) -> impl Iterator<Item = (usize, &CollectiveError)> {
        let failure = |(number, rail)| Rail::failure(rail).map(|failure| (number, failure));
        self.rails.iter().enumerate().filter_map(failure)
    }

    /// The communicator on the rail of that number.
    #[must_use]
    pub fn communicator(&self, rail: usize) -> Option<&Communicator> {
        self.rails.get(rail).map(Rail::comm)
    }

    /// Ends the communicator of each rail, as [`Communicator::close`] does.
    ///
    /// # Errors
    ///
    /// That of a rail which had not failed before.
    pub fn close(self, deadline: Deadline) -> Result<(), CollectiveError> {
        let mut left = self.rails.len() as u32;
        let close = |rail: Rail| {
            // One that takes long leaves time for those after it.
            let share = Deadline::after(deadline.remaining() / left);
            left -= 1;
            rail.close(deadline.min(share))
        };
        self.rails.into_iter().map(close).fold(Ok(()), Result::and)
    }
}

/// Ranks with other rails than the others would wait for them.
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
