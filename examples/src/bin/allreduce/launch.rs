//! Starts every rank as a process on this host, serves the store where they meet, and sees to their end.

use crate::seat::{JOB_TOKEN, LAUNCHER, MASTER_ADDR, MASTER_PORT, RANK, WORLD_SIZE};
use anyhow::Context;
use rdma_collective::comm::bootstrap::{JobToken, StoreOptions, StoreServer};
use std::net::{Ipv4Addr, SocketAddr};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// How long the others may take to notice that one rank failed, and to say so, before they are ended.
const GRACE: Duration = Duration::from_secs(10);
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// Runs this program's own command line as `ranks` processes; true when all of them succeeded.
///
/// # Errors
///
/// What keeps the processes from being started.
pub fn local(ranks: usize) -> anyhow::Result<bool> {
    let token = JobToken::random()?;
    let world = u32::try_from(ranks)?;
    let server =
        StoreServer::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), StoreOptions::new(token, world))?;
    let mut group = Group::default();
    for rank in 0..ranks {
        group
            .start(rank, ranks, server.address(), token)
            .with_context(|| format!("rank {rank} does not start"))?;
    }
    Ok(group.supervise())
}

/// Processes that are ended when it is dropped.
#[derive(Default)]
struct Group {
    running: Vec<(usize, Child)>,
}

impl Group {
    fn start(&mut self, rank: usize, ranks: usize, store: SocketAddr, token: JobToken) -> anyhow::Result<()> {
        let child = Command::new(std::env::current_exe()?)
            .args(std::env::args_os().skip(1))
            .env(RANK, rank.to_string())
            .env(WORLD_SIZE, ranks.to_string())
            .env(MASTER_ADDR, store.ip().to_string())
            .env(MASTER_PORT, store.port().to_string())
            .env(JOB_TOKEN, token.to_hex())
            .env(LAUNCHER, std::process::id().to_string())
            .stdin(Stdio::null())
            .spawn()?;
        self.running.push((rank, child));
        Ok(())
    }

    /// Waits for all of them; once one has failed, the others have [`GRACE`] left.
    fn supervise(&mut self) -> bool {
        let mut failed: Option<Instant> = None;
        while !self.running.is_empty() {
            self.running.retain_mut(|(rank, child)| match child.try_wait() {
                Ok(None) => true,
                Ok(Some(status)) => {
                    if !status.success() {
                        failed.get_or_insert_with(Instant::now);
                        explain(*rank, child.id(), status);
                    }
                    false
                }
                Err(error) => {
                    failed.get_or_insert_with(Instant::now);
                    eprintln!("allreduce: rank {rank} cannot be waited for: {error}");
                    false
                }
            });
            if failed.is_some_and(|since| since.elapsed() > GRACE) {
                let ranks: Vec<String> = self.running.iter().map(|(rank, _)| rank.to_string()).collect();
                eprintln!(
                    "allreduce: ended rank {}, which did not end by itself after a rank failed",
                    ranks.join(", ")
                );
                return false; // dropping the group ends them
            }
            sleep(LOOK_EVERY);
        }
        failed.is_none()
    }
}

/// A rank that fails says why itself, unless it could not.
fn explain(rank: usize, pid: u32, status: ExitStatus) {
    if status.code().is_none() {
        eprintln!("allreduce: rank {rank} (process {pid}) was ended: {status}");
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        for (_, child) in &mut self.running {
            // One that has ended meanwhile cannot be killed and need not be.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
