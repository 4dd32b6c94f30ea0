//! `mini_server`: a prefill, a decode, a router, or all in one.

use anyhow::Result;
use clap::{Parser, Subcommand};
use rustix::process::{Resource, getrlimit, setrlimit};
use servers::demo;
use servers::directory::Role;
use servers::serve::{self, Options, Server};
use servers::trace::Traces;
use tokio::signal::unix::{SignalKind, signal};

const AFTER: &str = "A job of three servers, of which the router has the directory:
  mini_server router --listen 127.0.0.1:8000
  mini_server prefill --directory http:127.0.0.1:8000
  mini_server decode --directory http:127.0.0.1:8000
It answers at http://127.0.0.1:8000/v1/completions. Give it a token of its own where strangers reach its ports.";

/// A disaggregated server around a small Llama, to look at.
#[derive(Parser)]
#[command(name = "mini_server", version, after_help = AFTER)]
struct Program {
    #[command(subcommand)]
    role: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Computes prompts, and pushes their blocks to decodes.
    Prefill(Options),
    /// Has prompts computed by prefills, and goes on with them.
    Decode(Options),
    /// Finds a decode for each request.
    Router(Options),
    /// Does all in one process.
    Single(Options),
    /// Starts all of them, kills some under load, and shows what happened.
    Demo(demo::Options),
}

/// Lets the process open as many files as it may, because a router has a connection to its client and one for each
/// text: with the usual 1,024 they would run out.
fn raise_descriptors() {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    // A process that may not keeps what it has.
    let _ = setrlimit(Resource::Nofile, limit);
}

#[tokio::main]
async fn main() -> Result<()> {
    let (role, mut options) = match manual::parse::<Program>().role {
        Command::Prefill(options) => (Role::Prefill, options),
        Command::Decode(options) => (Role::Decode, options),
        Command::Router(options) => (Role::Router, options),
        Command::Single(options) => (Role::Single, options),
        Command::Demo(options) => {
            let _lines = Traces::start(Role::Single, "demo", None)?;
            return demo::run(&options).await;
        }
    };
    let name = serve::name(role, &options)?;
    let traces = Traces::start(role, &name, options.otlp.as_deref())?;
    options.name = Some(name);
    raise_descriptors();
    let server = Server::new(role, &options).await?;
    println!("{} listens on http://{}", server.entry.name, server.address);
    if server.metrics != server.address {
        println!("{} shows metrics on http://{}/metrics", server.entry.name, server.metrics);
    }
    let mut ends = signal(SignalKind::terminate())?;
    tokio::select! {
        ran = server.run() => ran?,
        _ = ends.recv() => {}
        _ = tokio::signal::ctrl_c() => {}
    }
    Ok(tokio::task::spawn_blocking(|| traces.end()).await?)
}
