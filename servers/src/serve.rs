//! A server of any role, from its options to its listener.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use axum::routing::get;
use axum::{Json, Router as Routes};
use clap::Args;
use rdma_collective::bootstrap::{JobToken, Join, StoreClient};
use rdma_collective::engine::{Engine, EngineOptions};
use rdma_collective::kv::{KvNode, NodeOptions, PoolUse};
use rdma_core::{Deadline, Device, DeviceList, SoftOptions};
use tokio::net::TcpListener;

use crate::batch::Computed;
use crate::cache::{Blocks, Memory};
use crate::directory::{Directory, Entry, File, Http, LASTS, Role, Store, Table, hex};
use crate::health::Probe;
use crate::members::Members;
use crate::model::Config;
use crate::roles::{Decode, Prefill, Router, Single};
use crate::{api, generate, listen};

/// The time in which a store is joined.
const JOIN_WITHIN: Duration = Duration::from_secs(30);

/// Options of a server.
#[derive(Debug, Clone, Args)]
pub struct Options {
    /// The name of the server, unique in the job [default: its role and a random number].
    #[arg(long)]
    pub name: Option<String>,
    /// The address of its HTTP; port 0 takes any free one.
    #[arg(long, default_value = "127.0.0.1:0")]
    pub listen: SocketAddr,
    /// The address that others are told [default: that of the listener].
    #[arg(long)]
    pub address: Option<String>,
    /// The address at which its node meets others; port 0 takes any free one.
    #[arg(long, default_value = "127.0.0.1:0")]
    pub kv_listen: SocketAddr,
    /// The job's token, 32 hexadecimal digits; all servers of a job have the same.
    #[arg(
        long,
        env = "MINI_SERVER_TOKEN",
        hide_env_values = true,
        default_value = "00000000000000000000000000000000"
    )]
    pub token: JobToken,
    /// Where servers find each other: own (this server has the directory), http:HOST:PORT (another one has it),
    /// file:PATH (addresses, one a line), store:HOST:PORT,RANK,WORLD (the library's store).
    #[arg(long, default_value = "own")]
    pub directory: String,
    /// The shape of the model, a config.json [default: a model of 4 layers].
    #[arg(long)]
    pub model: Option<PathBuf>,
    /// Blocks of the cache, of 16 tokens each.
    #[arg(long, default_value_t = 1024)]
    pub blocks: u32,
    /// Requests that have blocks of the cache or wait for some; more are refused with 429.
    #[arg(long, default_value_t = 256)]
    pub requests: usize,
    /// Seconds in which a client says its request, and takes what was said to it; a slower one is given up.
    #[arg(long, default_value = "30", value_parser = seconds)]
    pub client_within: Duration,
    /// The RDMA device [default: the software device].
    #[arg(long)]
    pub device: Option<String>,
}

/// A server that listens.
pub struct Server {
    /// The address of its HTTP.
    pub address: SocketAddr,
    /// The entry of this server in the directory.
    pub entry: Entry,
    listener: TcpListener,
    routes: Routes,
    members: Members,
    node: Option<KvNode>,
    meets: Role,
    client_within: Duration,
}

impl Server {
    /// Makes a server of a role. It listens, and answers once it [runs](Self::run).
    ///
    /// # Errors
    ///
    /// The error names the option that cannot be.
    pub async fn new(role: Role, options: &Options) -> Result<Self> {
        let config = options.model.as_deref().map_or_else(|| Ok(Config::default()), Config::read)?;
        let random = format!("{role}-{:08x}", getrandom::u32().unwrap_or_default());
        let name = options.name.clone().unwrap_or(random);
        let listener = listen::listen(options.listen, options.client_within)?;
        let address = listener.local_addr()?;
        let table = Table::default();
        let members = Members::new(options.token, directory(options, &table)?);
        let Part { routes, node, meets, cache, cannot } = Part::new(role, &name, config, &members, options)?;
        let probe = Arc::new(Probe { name: name.clone(), role, config, cache, cannot });
        let http = options.address.clone().unwrap_or_else(|| address.to_string());
        let blob = node.as_ref().map(|node| hex(&node.export())).unwrap_or_default();
        let entry = Entry { name, role, http, blob, until: 0 };
        let own = (entry.clone(), options.token);
        let sealed = async move || own.0.seal(&own.1, LASTS).map(Json).map_err(|error| error.to_string());
        let routes = routes.merge(table.routes()).route("/entry", get(sealed));
        let routes = routes.route("/health", get(async move || probe.answer()));
        let client_within = options.client_within;
        Ok(Self { address, entry, listener, routes, members, node, meets, client_within })
    }

    /// Answers requests, for ever.
    ///
    /// # Errors
    ///
    /// The listener has failed.
    pub async fn run(self) -> Result<()> {
        let Self { entry, listener, routes, members, node, meets, client_within, .. } = self;
        tokio::spawn(members.keep(entry, node, meets));
        listen::serve(listener, routes, client_within).await
    }
}

/// The part of a server that its role has.
struct Part {
    routes: Routes,
    node: Option<KvNode>,
    meets: Role,
    cache: Option<(Blocks, Computed)>,
    cannot: Box<dyn Fn() -> Option<String> + Send + Sync>,
}

impl Part {
    fn new(role: Role, name: &str, config: Config, members: &Members, options: &Options) -> Result<Self> {
        let requests = options.requests;
        Ok(match role {
            Role::Prefill => {
                let (memory, node) = node(name, &config, PoolUse::Source, options)?;
                let prefill = Arc::new(Prefill::new(config, memory, node.clone(), requests)?);
                let cache = Some((prefill.blocks().clone(), prefill.computed().clone()));
                let (routes, cannot) = (prefill.routes(), Box::new(|| None));
                Self { routes, node: Some(node), meets: Role::Decode, cache, cannot }
            }
            Role::Decode => {
                let (memory, node) = node(name, &config, PoolUse::Destination, options)?;
                let decode = Arc::new(Decode::new(config, memory, node.clone(), members.clone(), requests)?);
                let cache = Some((decode.blocks().clone(), decode.computed().clone()));
                let (of, health) = (Arc::clone(&decode), Arc::clone(&decode));
                let stats = get(async move || Json(of.bytes()));
                let routes =
                    api::routes(Arc::clone(&decode)).merge(generate::routes(decode)).route("/stats", stats);
                Self {
                    routes,
                    node: Some(node),
                    meets: Role::Prefill,
                    cache,
                    cannot: Box::new(move || health.cannot()),
                }
            }
            Role::Router => {
                let router = Router::new(config, members.clone())?;
                let (routes, cannot) =
                    (api::routes(Arc::new(router.clone())), Box::new(move || router.cannot()));
                Self { routes, node: None, meets: Role::Decode, cache: None, cannot }
            }
            Role::Single => {
                let single = Arc::new(Single::new(config, options.blocks, requests)?);
                let cache = Some((single.blocks().clone(), single.computed().clone()));
                let routes = api::routes(Arc::clone(&single)).merge(generate::routes(single));
                Self { routes, node: None, meets: Role::Decode, cache, cannot: Box::new(|| None) }
            }
        })
    }
}

/// Reads a number of seconds.
fn seconds(text: &str) -> Result<Duration> {
    let within = Duration::try_from_secs_f64(text.parse()?)?;
    ensure!(!within.is_zero(), "no time at all");
    Ok(within)
}

/// The memory and the node of a server.
fn node(name: &str, config: &Config, purpose: PoolUse, options: &Options) -> Result<(Memory, KvNode)> {
    let device = match &options.device {
        None => Device::soft(SoftOptions::default()).open()?,
        Some(name) => DeviceList::probe().find(name)?.open()?,
    };
    let engine = Engine::new(&device, EngineOptions::default())?;
    let memory = Memory::new(&engine, config, options.blocks, purpose)?;
    let node_options = NodeOptions::new(name, options.kv_listen);
    let node = KvNode::new(&engine, &[memory.pool()], &options.token, &node_options)?;
    Ok((memory, node))
}

/// The directory that an option names.
fn directory(options: &Options, table: &Table) -> Result<Box<dyn Directory>> {
    let (kind, at) = options.directory.split_once(':').unwrap_or((&options.directory, ""));
    Ok(match kind {
        "own" => Box::new(table.clone()),
        "http" => Box::new(Http::new(at.to_owned())?),
        "file" => Box::new(File::new(PathBuf::from(at))?),
        "store" => {
            let mut parts = at.split(',');
            let mut next =
                |what| parts.next().with_context(|| format!("store:HOST:PORT,RANK,WORLD has no {what}"));
            let address = next("address")?.parse().context("the address of the store")?;
            let (rank, world) = (next("rank")?.parse()?, next("world")?.parse()?);
            let join = Join { address, token: options.token, rank, world };
            Box::new(Store::new(StoreClient::connect(join, Deadline::after(JOIN_WITHIN))?))
        }
        other => bail!(
            "there is no directory {other}: own, http:HOST:PORT, file:PATH or store:HOST:PORT,RANK,WORLD"
        ),
    })
}
