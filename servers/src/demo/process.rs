//! A server of the demo, in a process of its own.

use std::net::SocketAddr;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

/// The time in which a server listens, and the servers know each other.
const START_WITHIN: Duration = Duration::from_secs(20);

/// A server, which ends with this.
pub struct Process {
    pub name: String,
    pub role: &'static str,
    pub address: SocketAddr,
    directory: String,
    device: Option<String>,
    child: Child,
}

impl Process {
    /// Starts a server.
    pub async fn start(
        role: &'static str,
        name: &str,
        directory: &str,
        device: Option<&str>,
    ) -> Result<Self> {
        let listen = SocketAddr::from(([127, 0, 0, 1], 0));
        let (child, address) = spawn(role, name, directory, device, listen).await?;
        let (name, directory, device) = (name.to_owned(), directory.to_owned(), device.map(str::to_owned));
        Ok(Self { name, role, address, directory, device, child })
    }

    /// Starts the server again that was killed, at the same address.
    pub async fn start_again(&mut self) -> Result<()> {
        let device = self.device.as_deref();
        let (child, _) = spawn(self.role, &self.name, &self.directory, device, self.address).await?;
        self.child = child;
        Ok(())
    }

    /// Kills the server.
    pub async fn kill(&mut self) -> Result<()> {
        Ok(self.child.kill().await?)
    }

    /// Waits until the server answers a request.
    pub async fn answers(&self) -> Result<()> {
        let client = reqwest::Client::builder().no_proxy().build()?;
        let body = serde_json::json!({ "prompt": "Is anybody there, and ready to answer?", "max_tokens": 2 });
        let asked = async {
            loop {
                let url = format!("http://{}/v1/completions", self.address);
                let answer = client.post(url).json(&body).send().await;
                if answer.is_ok_and(|answer| answer.status().is_success()) {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        tokio::time::timeout(START_WITHIN, asked).await.context("the servers do not find each other")
    }
}

async fn spawn(
    role: &str,
    name: &str,
    directory: &str,
    device: Option<&str>,
    listen: SocketAddr,
) -> Result<(Child, SocketAddr)> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args([role, "--name", name, "--directory", directory, "--listen", &listen.to_string()]);
    command.args(device.iter().flat_map(|device| ["--device", device]));
    command.stdout(Stdio::piped()).kill_on_drop(true);
    let mut child = command.spawn().with_context(|| format!("cannot start {name}"))?;
    let said = child.stdout.take().context("a server without an output")?;
    let mut line = String::new();
    let read = tokio::time::timeout(START_WITHIN, BufReader::new(said).read_line(&mut line)).await;
    read.with_context(|| format!("{name} does not listen in time"))??;
    let address = line.trim().rsplit('/').next().and_then(|address| address.parse().ok());
    Ok((child, address.with_context(|| format!("{name} said {line:?} where it listens"))?))
}
