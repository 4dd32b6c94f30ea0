//! Memory and connections of a rank that does nothing but all-reduce.

use std::collections::BTreeSet;
use std::error::Error;
use std::fs;

use rdma_collective::bootstrap::StoreClient;
use rdma_collective::collective::{Communicator, CommunicatorOptions, ReduceOp};
use rdma_collective::engine::{Engine, EngineOptions};
use rdma_core::{Deadline, Device};

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

/// Figures of a rank.
#[derive(Debug, Clone, Copy)]
pub struct Footprint {
    /// The peak of the process in bytes (`VmHWM`, shared memory included), less the buffer and the process before it
    /// touched the library.
    pub beyond_buffer: u64,
    /// TCP connections to other ranks.
    pub connections: usize,
}

/// Reduces once in `bytes`, and returns the figures. `before` is what the process was: see [`resident`].
///
/// # Errors
///
/// The device refuses, the operation fails, or a sum is wrong.
pub fn rank(
    device: &Device,
    bytes: u64,
    before: u64,
    store: &mut StoreClient,
    deadline: Deadline,
) -> Result<Footprint> {
    let others = connections()?;
    let engine = Engine::new(&device.open()?, EngineOptions::default())?;
    let mut communicator = Communicator::new(&engine, store, CommunicatorOptions::default(), deadline)?;
    let mut buffer = vec![1.0_f32; usize::try_from(bytes)? / 4];
    communicator.all_reduce(&mut buffer, ReduceOp::Sum, deadline)?;
    let sum = store.world() as f32; // each rank's elements are 1
    if buffer.iter().any(|value| *value != sum) {
        return Err("the sum is wrong".into());
    }
    let peak = status("VmHWM")?;
    let connections = connections()?.saturating_sub(others);
    communicator.close(deadline)?;
    Ok(Footprint { beyond_buffer: peak.saturating_sub(bytes).saturating_sub(before), connections })
}

/// Bytes of this process that are in memory.
///
/// # Errors
///
/// `/proc` cannot be read.
pub fn resident() -> Result<u64> {
    status("VmRSS")
}

/// A figure of `/proc/self/status`, in bytes.
fn status(name: &str) -> Result<u64> {
    let text = fs::read_to_string("/proc/self/status")?;
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    let figure = line.and_then(|line| line.split_whitespace().next()).ok_or_else(|| format!("no {name}"))?;
    Ok(figure.parse::<u64>()? * 1024)
}

/// Established TCP connections of this process.
fn connections() -> Result<usize> {
    let descriptors = fs::read_dir("/proc/self/fd")?.flatten();
    let targets = descriptors.filter_map(|descriptor| fs::read_link(descriptor.path()).ok());
    let sockets: BTreeSet<String> = targets.map(|target| target.to_string_lossy().into_owned()).collect();
    let table = fs::read_to_string("/proc/self/net/tcp")?;
    let is_ours = |line: &&str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        words.get(3) == Some(&"01")
            && words.get(9).is_some_and(|inode| sockets.contains(&format!("socket:[{inode}]")))
    };
    Ok(table.lines().filter(is_ours).count())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn both_ends_of_a_connection_count_and_a_listener_does_not() {
        let before = connections().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let far = listener.accept().unwrap();
        assert!(connections().unwrap() >= before + 2);
        drop((near, far));
        assert!(resident().unwrap() > 0);
    }
}
