//! The part that both sides do alike: the device and the pool.

use crate::args::Args;
use crate::blocks::Blocks;
use crate::place::Place;
use crate::pool::{self, Owners};
use crate::presets::Request;
use crate::report::Device;
use crate::requests::Requests;
use crate::sides::Role;
use anyhow::{bail, ensure};
use examples::columns::header::Refused;
use examples::doctor::{self, InUse};
use examples::output::complain;
use examples::processes::{self, HandedDown, JOB_TOKEN};
use rdma_collective::bootstrap::JobToken;
use rdma_collective::engine::Engine;
use rdma_collective::env::{NcclOptions, SelectedDevice, Variables};
use rdma_collective::kv::{Pool, PoolUse};
use rdma_core::fault::FaultPlan;
use rdma_core::{PeerAccess, SoftOptions};

/// A side, ready to meet the other.
pub struct Side {
    /// Moves everything along.
    pub engine: Engine,
    /// This side's blocks, filled.
    pub pool: Pool,
    /// The job's token.
    pub token: JobToken,
    /// Faults to inject at this side's device.
    pub faults: Option<FaultPlan>,
    /// The device, to explain what it refuses.
    pub in_use: InUse,
    selected: SelectedDevice,
}

/// The token of a side that was given none: the side that waits draws it, and prints the line that sets it elsewhere.
fn token_without_one(args: &Args, place: &Place, role: Role) -> anyhow::Result<JobToken> {
    if args.tp.0.iter().any(|size| size.0 > 1) {
        bail!("{JOB_TOKEN} is not set: set it for all ranks to 32 hexadecimal digits (openssl rand -hex 16)");
    }
    if let Some(peer) = place.peer() {
        bail!(
            "{JOB_TOKEN} is not set: set it by the line that the side at {peer} has printed, or on both sides to 32 \
             hexadecimal digits of your own (openssl rand -hex 16)"
        );
    }
    let token = JobToken::random()?;
    complain(format_args!(
        "{}: {JOB_TOKEN} is not set, so this side drew a token; before the other side is started, set it there: export \
         {JOB_TOKEN}={}",
        role.name(),
        token.to_hex()
    ));
    Ok(token)
}

/// The variables of the process that started this one.
///
/// # Errors
///
/// A variable that cannot be read.
pub fn handed_down() -> anyhow::Result<HandedDown> {
    Ok(HandedDown::find(|name| std::env::var(name).ok())?)
}

impl Side {
    /// Opens the device, and allocates and fills the pool.
    ///
    /// # Errors
    ///
    /// Whatever of that fails.
    pub fn open(args: &Args, request: &Request, place: &Place) -> anyhow::Result<Self> {
        let role = request.rank.role;
        let HandedDown { token, launcher } = handed_down()?;
        let token = token.map_or_else(|| token_without_one(args, place, role), Ok)?;
        if let Some(launcher) = launcher {
            processes::end_with(launcher)?;
        }
        let faults = args.fault.filter(|_| role == Role::Decode).map(|fault| fault.plan());
        let nccl = NcclOptions::read(&Variables::of_process())?;
        let (address, wire) = (place.own_address(), args.wire.into());
        let soft = SoftOptions { address, wire, faults: faults.clone(), ..SoftOptions::default() };
        let mut wants = doctor::wants(&nccl);
        let selected = nccl
            .select(&args.device, soft, None)
            .map_err(|error| doctor::explain_choice(error, &args.device, &wants))?;
        args.wire.suits(&selected)?;
        let name = selected.context.name();
        ensure!(
            faults.is_none() || selected.context.is_soft(),
            "--fault is for the software device, and {name} is not: add --device soft"
        );
        wants.pin_bytes = request.layout.bytes();
        let in_use = InUse::new(&[&selected], wants);
        let engine = Engine::new(&selected.context, selected.engine_options(&nccl));
        let engine = engine.map_err(|error| in_use.explain(error))?;
        let source = if args.pull { PoolUse::SourceToPull } else { PoolUse::Source };
        let (purpose, owners) = match role {
            Role::Prefill if args.many() => {
                (source, Owners::new(request, Requests::new(args, request).sources())?)
            }
            Role::Prefill => (source, Owners::new(request, &source_ids(args, request))?),
            Role::Decode => (PoolUse::Destination, Owners::none(request)),
        };
        let pool =
            pool::allocate(&engine, &request.layout, purpose).map_err(|error| in_use.explain(error))?;
        pool::fill(&pool, &owners, &Blocks::new(request, args.seed)?)?;
        Ok(Self { engine, pool, token, faults, in_use, selected })
    }

    /// Where this side runs, once it is known how it reaches the other.
    pub fn device(&self, access: PeerAccess) -> Device {
        let gid = &self.selected.gid;
        let wire = match access {
            PeerAccess::Rdma => format!("{} MTU {}", gid.kind, self.selected.port.active_mtu),
            PeerAccess::Stream => "tcp".to_owned(),
            other => other.to_string(),
        };
        Device {
            name: self.selected.context.name().to_owned(),
            wire,
            gid: format!("{} {}", gid.index, gid.gid),
            refused: Refused::all(&self.selected.refused),
        }
    }
}

/// The blocks of prefill's pool that hold the request, in its order.
pub fn source_ids(args: &Args, request: &Request) -> Vec<u32> {
    crate::content::shuffled(args.seed, request.pool_blocks(), request.blocks)
}

/// The blocks of decode's pool that it is to come to, in its order.
pub fn destination_ids(args: &Args, request: &Request) -> Vec<u32> {
    crate::content::shuffled(!args.seed, request.pool_blocks(), request.blocks)
}
