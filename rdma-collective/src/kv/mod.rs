//! KV-cache blocks: the pools that hold them, and their transfer from a prefill process to a decode process.
//!
//! A transfer goes either way round. **Push:** decode [grants](Decode::grant) blocks of its pool to a request, and
//! prefill [pushes](Prefill::push) its own blocks of that request into them. **Pull:** prefill
//! [offers](Prefill::offer) blocks, and decode [pulls](Decode::pull) them. Both sides match by the id of the request,
//! and either side may come first. At the end decode has one [verdict](BlockVerdict) for each block in each layer.
//!
//! A block whose heads or layers come from several ranks of prefill has several [`Sources`].
//!
//! [`layout`] computes where blocks lie in a pool, and [`plan`] which writes carry a request. Lanes,
//! credits and heartbeats belong to [`link`](crate::link); progress belongs to the [`engine`](crate::engine).
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
//! let shape = Model::DEEPSEEK_V3.shape(16, 8, Order::LayerBlockPart);
//! let engine = || -> Result<_, Box<dyn std::error::Error + Send + Sync>> {
//!     Ok(Engine::new(&Device::soft(SoftOptions::default()).open()?, EngineOptions::default())?)
//! };
//! let listener = TcpListener::bind("127.0.0.1:0")?;
//! let address = listener.local_addr()?;
//!
//! // Prefill usually runs in another process, on another host.
//! let prefill = std::thread::spawn(move || -> Outcome {
//!     let engine = engine()?;
//!     let pool = Pool::allocate(&engine, &Layout::new(shape)?, PoolUse::Source)?;
//!     pool.write(0, 3, 0, b"tokens")?;
//!     let meet = Meet::Connect(address);
//!     let prefill = Prefill::new(&engine, &pool, &meet, &token, &LinkOptions::default(), deadline)?;
//!     prefill.push(request, &[3, 1], deadline)?.wait()?;
//!     Ok(())
//! });
//!
//! let engine = engine()?;
//! let pool = Pool::allocate(&engine, &Layout::new(shape)?, PoolUse::Destination)?;
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

mod blocks;
mod checksum;
mod decode;
mod error;
mod fence;
mod gauge;
mod given_up;
mod journal;
mod keep_alive;
pub mod layout;
mod lease;
mod link;
mod machine;
mod message;
mod node;
mod note;
mod outcome;
pub mod plan;
mod pool;
mod prefill;
mod push;
mod receive;
mod request;
mod request_id;
mod shared;
mod sources;
mod staging;
mod taken_back;
#[cfg(test)]
mod tests;
mod transfer;
mod verdict;
mod wakers;

#[cfg(any(fuzzing, test))]
pub(crate) use link::fuzz as fuzz_payload;
#[cfg(any(fuzzing, test))]
pub(crate) use message::fuzz;
#[cfg(any(fuzzing, test))]
pub(crate) use node::fuzz as fuzz_node;

pub use blocks::Blocks;
pub use decode::Decode;
pub use error::{KvError, PoolError};
pub use journal::{LinkEvent, LinkStats, TransferKind, TransferOutcome};
pub use lease::HoldKind;
pub use link::{LinkError, LinkOptions, Prepared};
pub use node::{
    Begin, Begun, Closing, Connecting, Full, KvNode, Leaving, Load, NodeError, NodeName, NodeOptions,
};
pub use outcome::{Progress, Received, Sent, TransferError};
pub use plan::PlanError;
pub use pool::{BlockShare, Pool, PoolStats, PoolUse};
pub use prefill::Prefill;
pub use request::Request;
pub use request_id::RequestId;
pub use sources::{Sources, SourcesError};
pub use transfer::{
    Grant, Joint, JointLayer, JointRevoking, Kind, LayerFuture, LayerSentFuture, Offer, OnDrop, Pull, Push,
    Receiving, Revocable, RevokeToken, Revoked, Revoking, Sending, SkippedFuture, Transfer,
};
pub use verdict::{BlockVerdict, Verdicts};
