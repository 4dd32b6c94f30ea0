//! KV-cache blocks: pools of them, and their transfer from where they were computed to where they are used.
//!
//! Decode [grants](Decode::grant) blocks of its pool to a request, prefill [pushes](Prefill::push) those that it has of the
//! request; or prefill [offers](Prefill::offer) them, and decode [pulls](Decode::pull). Decode learns of each block whether it
//! is there. Where blocks lie is [`layout`]'s, which writes carry
//! them is [`plan`]'s; links and progress are `comm`'s.
//!
//! ```
//! use std::net::TcpListener;
//! use std::time::Duration;
//! use rdma_collective::bootstrap::JobToken;
//! use rdma_collective::engine::{Engine, EngineOptions};
//! use rdma_collective::link::Meet;
//! use rdma_collective::kv::layout::{Layout, Model, Order};
//! use rdma_collective::kv::{Decode, LinkOptions, Pool, PoolUse, Prefill};
//! use rdma_core::{Deadline, Device, SoftOptions};
//!
//! # type Outcome = Result<(), Box<dyn std::error::Error + Send + Sync>>;
//! let (token, request) = (JobToken::random()?, 7);
//! let deadline = Deadline::after(Duration::from_secs(10));
//! let layout = Layout::new(Model::DEEPSEEK_V3.shape(16, 8, Order::LayerBlockPart))?;
//! let engine = || -> Result<_, Box<dyn std::error::Error + Send + Sync>> {
//!     Ok(Engine::new(&Device::soft(SoftOptions::default()).open()?, EngineOptions::default())?)
//! };
//! let listener = TcpListener::bind("127.0.0.1:0")?;
//! let address = listener.local_addr()?;
//!
//! // In another process, as a rule.
//! let prefill = std::thread::spawn(move || -> Outcome {
//!     let engine = engine()?;
//!     let pool = Pool::allocate(&engine, layout, PoolUse::Source)?;
//!     pool.write(0, 3, 0, b"tokens")?;
//!     let meet = Meet::Connect(address);
//!     let prefill = Prefill::new(&engine, &pool, &meet, &token, &LinkOptions::default(), deadline)?;
//!     prefill.push(request, &[3, 1], deadline)?.wait()?;
//!     Ok(())
//! });
//!
//! let engine = engine()?;
//! let pool = Pool::allocate(&engine, layout, PoolUse::Destination)?;
//! let meet = Meet::Accept(&listener);
//! let decode = Decode::new(&engine, &pool, &meet, &token, &LinkOptions::default(), deadline)?;
//! let received = decode.grant(request, &[0, 5], deadline)?.wait()?;
//! assert!(received.verdicts.all_valid());
//! let mut bytes = [0; 6];
//! pool.read(0, 0, 0, &mut bytes)?;
//! assert_eq!(&bytes, b"tokens");
//! prefill.join().expect("prefill runs")?;
//! # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
//! ```

mod checksum;
mod decode;
mod error;
mod fence;
mod journal;
pub mod layout;
mod lease;
mod link;
mod message;
mod pending;
pub(crate) mod plan;
mod pool;
mod prefill;
mod pull;
mod push;
mod receive;
mod remembered;
mod revoking;
#[cfg(test)]
mod tests;
mod verdict;

#[cfg(any(fuzzing, test))]
pub(crate) use link::fuzz as fuzz_payload;
#[cfg(any(fuzzing, test))]
pub(crate) use message::fuzz;

pub use decode::{Decode, Grant, LayerFuture, Progress, Received};
pub use error::{KvError, PoolError, TransferError};
pub use journal::{LinkEvent, LinkStats, TransferKind, TransferOutcome};
pub use lease::HoldKind;
pub use link::{LinkError, LinkOptions, Prepared};
pub use pending::{GrantFuture, OfferFuture, PullFuture, PushFuture};
pub use plan::PlanError;
pub use pool::{Pool, PoolStats, PoolUse};
pub use prefill::{Prefill, Pulled, Push, Pushed};
pub use pull::{Offer, Pull};
pub use revoking::{Revoking, RevokingFuture};
pub use verdict::{BlockVerdict, Verdicts};
