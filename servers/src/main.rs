//! `mini_server`: a prefill, a decode, a router, or all in one.

use anyhow::Result;
use clap::{Parser, Subcommand};
use servers::demo;
use servers::directory::Role;
use servers::serve::{Options, Server};

const AFTER: &str = "A job of three servers, of which the router has the directory:
  mini_server router --listen 127.0.0.1:8000
  mini_server prefill --directory http:127.0.0.1:8000
  mini_server decode --directory http:127.0.0.1:8000
It answers at http://127.0.0.1:8000/v1/completions. Give it a token of its own where strangers reach its ports.";

/// A disaggregated server around a small Llama, to look at.
#[derive(Parser)]
#[command(version, after_help = AFTER)]
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

#[tokio::main]
async fn main() -> Result<()> {
    tracing_subscriber::fmt().with_writer(std::io::stderr).with_max_level(tracing::Level::WARN).init();
    let (role, options) = match Program::parse().role {
        Command::Prefill(options) => (Role::Prefill, options),
        Command::Decode(options) => (Role::Decode, options),
        Command::Router(options) => (Role::Router, options),
        Command::Single(options) => (Role::Single, options),
        Command::Demo(options) => return demo::run(&options).await,
    };
    let server = Server::new(role, &options).await?;
    println!("{} listens on http://{}", server.entry.name, server.address);
    server.run().await
}
