//! Servers in processes of their own, which can be killed: for the demo, and for tests.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, ChildStdout, Command};

use crate::client::client;
use crate::observe::Figures;

/// The time in which a server listens, and the servers know each other: an emulated machine that is busy takes 25 s.
const START_WITHIN: Duration = Duration::from_secs(60);
/// Pause before servers that have just started are asked again.
const PAUSE: Duration = Duration::from_millis(50);

/// How servers are started.
#[derive(Debug, Clone)]
pub struct Starter {
    /// The program, `mini_server`.
    pub program: PathBuf,
    /// Options that all servers have.
    pub options: Vec<OsString>,
}

/// A server, which ends with this.
pub struct Process {
    /// The name.
    pub name: String,
    /// The role, as the program takes it.
    pub role: &'static str,
    /// The address of its HTTP.
    pub address: SocketAddr,
    /// The command that starts it, at this address once that is known.
    command: Command,
    running: Running,
}

/// A child, and its output, which is kept open because a server cannot go on once what it says fails.
struct Running {
    child: Child,
    _said: BufReader<ChildStdout>,
}

/// A router, and the prefills and decodes behind it.
pub struct Split {
    /// The router, which has the directory.
    pub router: Process,
    /// The prefills, and behind them the decodes.
    pub servers: Vec<Process>,
}

impl Starter {
    /// Starts a server at a free port.
    ///
    /// # Errors
    ///
    /// The program is not there, or does not say in time where it listens.
    pub async fn start(&self, role: &'static str, name: &str, directory: &str) -> Result<Process> {
        self.start_with(role, name, directory, |_| ()).await
    }

    /// Starts a server at a free port, by a command that has more options or variables.
    ///
    /// # Errors
    ///
    /// The errors of [`start`](Self::start).
    pub async fn start_with(
        &self,
        role: &'static str,
        name: &str,
        directory: &str,
        more: impl FnOnce(&mut Command),
    ) -> Result<Process> {
        let mut command = Command::new(&self.program);
        command.args([role, "--name", name, "--directory", directory]).args(&self.options);
        command.stdout(Stdio::piped()).kill_on_drop(true);
        more(&mut command);
        let (running, address) = Running::spawn(&mut command, name).await?;
        command.args(["--listen", &address.to_string()]);
        Ok(Process { name: name.to_owned(), role, address, command, running })
    }

    /// Starts prefills, decodes and a router, and waits until they have found each other.
    ///
    /// # Errors
    ///
    /// A server does not start, or they do not find each other in time.
    pub async fn start_split(&self, prefills: usize, decodes: usize) -> Result<Split> {
        let router = self.start("router", "router", "own").await?;
        let directory = format!("http:{}", router.address);
        let mut servers = Vec::with_capacity(prefills + decodes);
        for (role, count) in [("prefill", prefills), ("decode", decodes)] {
            for number in 0..count {
                servers.push(self.start(role, &format!("{role}-{number}"), &directory).await?);
            }
        }
        for server in servers.iter().chain([&router]) {
            server.answers(decodes).await?;
        }
        Ok(Split { router, servers })
    }
}

impl Running {
    async fn spawn(command: &mut Command, name: &str) -> Result<(Self, SocketAddr)> {
        let mut child = command.spawn().with_context(|| format!("cannot start {name}"))?;
        let mut said = BufReader::new(child.stdout.take().context("a server without an output")?);
        let mut line = String::new();
        let read = tokio::time::timeout(START_WITHIN, said.read_line(&mut line)).await;
        read.with_context(|| format!("{name} does not listen in time"))??;
        let address = line.trim().rsplit('/').next().and_then(|address| address.parse().ok());
        let address = address.with_context(|| format!("{name} said {line:?} where it listens"))?;
        Ok((Self { child, _said: said }, address))
    }
}

impl Split {
    /// The servers of a role.
    pub fn of(&self, role: &str) -> impl Iterator<Item = &Process> {
        self.servers.iter().filter(move |server| server.role == role)
    }

    /// All servers: the prefills, the decodes, and the router.
    pub fn all(&self) -> impl Iterator<Item = &Process> {
        self.servers.iter().chain([&self.router])
    }

    /// The server of that number, in the order of [`all`](Self::all); the router behind the last one.
    pub fn get_mut(&mut self, number: usize) -> &mut Process {
        self.servers.get_mut(number).unwrap_or(&mut self.router)
    }
}

impl Process {
    /// Starts the server again that was killed, at the same address.
    ///
    /// # Errors
    ///
    /// The program does not say in time where it listens.
    pub async fn start_again(&mut self) -> Result<()> {
        (self.running, _) = Running::spawn(&mut self.command, &self.name).await?;
        Ok(())
    }

    /// Kills the server.
    ///
    /// # Errors
    ///
    /// The system does not let it.
    pub async fn kill(&mut self) -> Result<()> {
        Ok(self.running.child.kill().await?)
    }

    /// The process, to signal it or to wait for its end.
    pub fn child(&mut self) -> &mut Child {
        &mut self.running.child
    }

    /// The number of its threads, and of its descriptors.
    ///
    /// # Errors
    ///
    /// The process has ended.
    pub fn resources(&self) -> Result<[usize; 2]> {
        let pid = self.running.child.id().with_context(|| format!("{} has ended", self.name))?;
        let count = |of| Ok::<_, std::io::Error>(std::fs::read_dir(format!("/proc/{pid}/{of}"))?.count());
        Ok([count("task")?, count("fd")?])
    }

    /// Waits until the server answers a request; a prefill, which answers none, until it has met so many decodes.
    ///
    /// # Errors
    ///
    /// The server does not within 60 s.
    pub async fn answers(&self, decodes: usize) -> Result<()> {
        let client = client(Some(START_WITHIN))?;
        let is_ready = async || {
            if self.role == "prefill" {
                let stats = Figures::ask(&client, self.address).await;
                return stats.is_ok_and(|stats| stats.met.len() >= decodes);
            }
            let body =
                serde_json::json!({ "prompt": "Is anybody there, and ready to answer?", "max_tokens": 2 });
            let url = format!("http://{}/v1/completions", self.address);
            let answer = client.post(url).json(&body).send().await;
            answer.is_ok_and(|answer| answer.status().is_success())
        };
        let asked = async {
            while !is_ready().await {
                tokio::time::sleep(PAUSE).await;
            }
        };
        tokio::time::timeout(START_WITHIN, asked).await.context("the servers do not find each other")
    }
}
