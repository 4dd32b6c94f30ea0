//! The figures that the servers of a demo have counted, for each life of a server: a kill ends one.

use std::fmt::{Display, Formatter};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::client::client;
use crate::observe::Figures;
use crate::process::Process;

/// The time in which a server tells its figures.
const ASK_WITHIN: Duration = Duration::from_secs(5);
/// Pause before servers are asked again whether they still count.
const PAUSE: Duration = Duration::from_millis(200);
/// The time in which servers end what clients that went away have left, beyond the time that they linger.
const QUIET_WITHIN: Duration = Duration::from_secs(30);
/// The figures that are shown, in the order of [`shown`].
const COLUMNS: [&str; 8] = ["bytes", "free", "kept", "answered", "aborted", "unavailable", "failed", "lost"];

/// The last figures of each life of a server.
#[derive(Debug)]
pub(super) struct Lives {
    client: reqwest::Client,
    ended: Vec<(String, Figures)>,
}

impl Lives {
    /// No life has ended.
    pub fn new() -> Result<Self> {
        let client = client(Some(ASK_WITHIN))?;
        Ok(Self { client, ended: Vec::new() })
    }

    /// Keeps the figures of a server that is about to end.
    pub async fn end(&mut self, server: &Process, why: &str) -> Result<()> {
        let figures = self.ask(server).await?;
        self.ended.push((format!("{}{why}", server.name), figures));
        Ok(())
    }

    /// Keeps the figures of servers that end once they have counted nothing for a while.
    pub async fn end_quiet<'a>(
        &mut self,
        servers: impl Iterator<Item = &'a Process>,
        linger: Duration,
    ) -> Result<()> {
        let servers: Vec<_> = servers.collect();
        let began = Instant::now();
        let (mut figures, mut since) = (self.ask_all(&servers).await?, began);
        while since.elapsed() < linger && began.elapsed() < linger.saturating_add(QUIET_WITHIN) {
            tokio::time::sleep(PAUSE).await;
            let next = self.ask_all(&servers).await?;
            if next != figures {
                (figures, since) = (next, Instant::now());
            }
        }
        self.ended.extend(servers.iter().map(|server| server.name.clone()).zip(figures));
        Ok(())
    }

    async fn ask_all(&self, servers: &[&Process]) -> Result<Vec<Figures>> {
        let mut all = Vec::with_capacity(servers.len());
        for server in servers {
            all.push(self.ask(server).await?);
        }
        Ok(all)
    }

    async fn ask(&self, server: &Process) -> Result<Figures> {
        let figures = Figures::ask(&self.client, server.address).await;
        figures.with_context(|| format!("{} does not tell its figures", server.name))
    }
}

fn shown(figures: &Figures) -> [u64; COLUMNS.len()] {
    let ended = |outcome| figures.requests.get(outcome).copied().unwrap_or_default();
    let [free, kept] = [figures.blocks.free, figures.blocks.kept].map(|blocks| blocks as u64);
    let [answered, aborted, unavailable, failed] =
        ["answered", "aborted", "unavailable", "failed"].map(ended);
    [figures.kv_bytes, free, kept, answered, aborted, unavailable, failed, figures.lost]
}

impl Display for Lives {
    fn fmt(&self, to: &mut Formatter<'_>) -> std::fmt::Result {
        for name in COLUMNS {
            write!(to, "{name:>12}")?;
        }
        writeln!(to, "  server")?;
        for (server, figures) in &self.ended {
            for figure in shown(figures) {
                write!(to, "{figure:>12}")?;
            }
            writeln!(to, "  {server}")?;
        }
        Ok(())
    }
}
