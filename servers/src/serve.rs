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
use rdma_collective::kv::{KvNode, NodeName, NodeOptions, PoolUse};
use rdma_core::{Deadline, Device, DeviceList, SoftOptions};
use tokio::net::TcpListener;

use crate::bodies::Bodies;
use crate::cache::Memory;
use crate::directory::{Directory, Entry, File, Http, LASTS, Role, Store, Table, hex};
use crate::health::Probe;
use crate::members::Members;
use crate::model::Config;
use crate::observe::{self, Stats};
use crate::roles::{Decode, Model, Prefill, Router, Single};
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
    /// The job's token, 32 hexadecimal digits; all servers of a job have the same, and seal their entries with it. The
    /// default is public.
    #[arg(
        long,
        env = "MINI_SERVER_TOKEN",
        hide_env_values = true,
        default_value = "00000000000000000000000000000000"
    )]
    pub token: JobToken,
    /// Where servers find each other:
    ///   own                          in this server (default)
    ///   http:HOST:PORT               in the server at this address, which has `own`
    ///   file:PATH                    in a file with the HTTP addresses of all servers, one a line
    ///   etcd:HOST:PORT[,HOST:PORT]   in an etcd with these members
    ///   store:HOST:PORT,RANK,WORLD   in the library's rendezvous store
    #[arg(long, default_value = "own", hide_default_value = true, verbatim_doc_comment)]
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
    /// The address of /metrics and /stats, if strangers reach the API; port 0 takes any free one [default: that of the
    /// API].
    #[arg(long)]
    pub metrics: Option<SocketAddr>,
    /// The OpenTelemetry collector, http://HOST:4318 [default: OTEL_EXPORTER_OTLP_ENDPOINT, or none].
    #[arg(long)]
    pub otlp: Option<String>,
}

/// A server that listens.
pub struct Server {
    /// The address of its HTTP.
    pub address: SocketAddr,
    /// The address of its metrics.
    pub metrics: SocketAddr,
    /// The entry of this server in the directory.
    pub entry: Entry,
    listener: TcpListener,
    routes: Routes,
    metrics_only: Option<(TcpListener, Routes)>,
    members: Members,
    /// The node of the server, and the role of those that the node meets.
    node: Option<(KvNode, Role)>,
    bodies: Bodies,
}

impl Server {
    /// Makes a server of a role. It listens, and answers once it [runs](Self::run).
    ///
    /// # Errors
    ///
    /// The error names the option that cannot be.
    pub async fn new(role: Role, options: &Options) -> Result<Self> {
        let config = options.model.as_deref().map_or_else(|| Ok(Config::default()), Config::read)?;
        let name = name(role, options)?;
        let stats = Stats::new(role, &name);
        let listener = listen::listen(options.listen, options.client_within)?;
        let address = listener.local_addr()?;
        let table = Table::new(options.token);
        let members = Members::new(options.token, directory(options, &table)?)?;
        let Part { routes, node, cannot } = Part::new(role, &name, config, &members, options, &stats)?;
        let probe = Arc::new(Probe { name: name.clone(), role, config, stats: Arc::clone(&stats), cannot });
        let http = options.address.clone().unwrap_or_else(|| address.to_string());
        // Other servers send requests to those that have a node.
        ensure!(
            options.address.is_some() || node.is_none() || !address.ip().is_unspecified(),
            "--listen {address} is no address that others can reach; give theirs with --address HOST:PORT"
        );
        let blob = node.as_ref().map(|(node, _)| hex(&node.export())).unwrap_or_default();
        let entry = Entry { name, role, http, blob, until: 0 };
        let own = (entry.clone(), options.token);
        let sealed = async move || own.0.seal(&own.1, LASTS).map(Json).map_err(|error| error.to_string());
        let routes = routes.merge(table.routes()).route("/entry", get(sealed));
        let routes = routes.route("/health", get(async move || probe.answer()));
        let bodies = Bodies::of(&config, options.client_within);
        let page = observe::routes(&stats);
        let (routes, metrics_only) = match options.metrics {
            None => (routes.merge(page), None),
            Some(address) => (routes, Some((listen::listen(address, options.client_within)?, page))),
        };
        let metrics = metrics_only.as_ref().map_or(Ok(address), |(listener, _)| listener.local_addr())?;
        Ok(Self { address, metrics, entry, listener, routes, metrics_only, members, node, bodies })
    }

    /// Answers requests, for ever.
    ///
    /// # Errors
    ///
    /// The listener has failed.
    pub async fn run(self) -> Result<()> {
        let Self { entry, listener, routes, metrics_only, members, node, bodies, .. } = self;
        tokio::spawn(members.keep(entry, node));
        tokio::spawn(observe::keep());
        if let Some((listener, page)) = metrics_only {
            tokio::spawn(listen::serve(listener, page, bodies.clone()));
        }
        listen::serve(listener, routes, bodies).await
    }
}

/// The name of a server: that of its options, or one by chance.
///
/// # Errors
///
/// Names are 1 to 64 printable ASCII characters without spaces, quotes and backslashes, so that logs, metrics and the
/// directory show them as they are.
pub fn name(role: Role, options: &Options) -> Result<String> {
    let random = || format!("{role}-{:08x}", getrandom::u32().unwrap_or_default());
    let name = options.name.clone().unwrap_or_else(random);
    NodeName::new(&name)?;
    ensure!(!name.contains(['"', '\\']), "the name {name} has a quote or a backslash; choose another --name");
    Ok(name)
}

/// The part of a server that its role has.
struct Part {
    routes: Routes,
    /// The node of the server, and the role of those that the node meets.
    node: Option<(KvNode, Role)>,
    cannot: Box<dyn Fn() -> Option<String> + Send + Sync>,
}

impl Part {
    fn new(
        role: Role,
        name: &str,
        config: Config,
        members: &Members,
        options: &Options,
        stats: &Arc<Stats>,
    ) -> Result<Self> {
        let stats = Arc::clone(stats);
        Ok(match role {
            Role::Prefill => {
                let (model, node) = node(name, config, PoolUse::Source, options, stats)?;
                let prefill = Arc::new(Prefill::new(model, node.clone()));
                let (routes, cannot) = (prefill.routes(), Box::new(|| None));
                Self { routes, node: Some((node, Role::Decode)), cannot }
            }
            Role::Decode => {
                let (model, node) = node(name, config, PoolUse::Destination, options, stats)?;
                let decode = Arc::new(Decode::new(model, node.clone(), members.clone())?);
                let health = Arc::clone(&decode);
                let routes = api::routes(Arc::clone(&decode)).merge(generate::routes(decode));
                Self { routes, node: Some((node, Role::Prefill)), cannot: Box::new(move || health.cannot()) }
            }
            Role::Router => {
                let router = Router::new(config, members.clone(), stats)?;
                let (routes, cannot) =
                    (api::routes(Arc::new(router.clone())), Box::new(move || router.cannot()));
                Self { routes, node: None, cannot }
            }
            Role::Single => {
                let single = Arc::new(Single::new(config, options.blocks, options.requests, stats)?);
                let routes = api::routes(Arc::clone(&single)).merge(generate::routes(single));
                Self { routes, node: None, cannot: Box::new(|| None) }
            }
        })
    }
}

/// Reads a number of seconds.
pub(crate) fn seconds(text: &str) -> Result<Duration> {
    let within = Duration::try_from_secs_f64(text.parse()?)?;
    ensure!(!within.is_zero(), "no time at all");
    Ok(within)
}

/// The model and the node of a server.
fn node(
    name: &str,
    config: Config,
    purpose: PoolUse,
    options: &Options,
    stats: Arc<Stats>,
) -> Result<(Model, KvNode)> {
    let device = match &options.device {
        None => Device::soft(SoftOptions::default()).open()?,
        Some(name) => DeviceList::probe().find(name)?.open()?,
    };
    let engine = Engine::new(&device, EngineOptions::default())?;
    let memory = Memory::new(&engine, &config, options.blocks, purpose)?;
    let node_options = NodeOptions::new(name, options.kv_listen);
    let node = KvNode::new(&engine, &[memory.pool()], &options.token, &node_options)?;
    Ok((Model::new(config, memory, Some(&node), options.requests, stats)?, node))
}

/// The directory that an option names.
fn directory(options: &Options, table: &Table) -> Result<Box<dyn Directory>> {
    let (kind, at) = options.directory.split_once(':').unwrap_or((&options.directory, ""));
    Ok(match kind {
        "own" => Box::new(table.clone()),
        "http" => Box::new(Http::new(at.to_owned())?),
        "file" => Box::new(File::new(PathBuf::from(at))?),
        #[cfg(feature = "etcd")]
        "etcd" => Box::new(crate::directory::Etcd::new(at, &options.token)?),
        #[cfg(not(feature = "etcd"))]
        "etcd" => bail!("this program was built without etcd; build it with `--features etcd`"),
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
            "there is no directory {other}: own, http:HOST:PORT, file:PATH, etcd:HOST:PORT or store:HOST:PORT,RANK,WORLD"
        ),
    })
}
