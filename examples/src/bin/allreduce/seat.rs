//! Which rank of which job this process is, from the variables that launchers set.

use examples::processes::{HandedDown, HandedDownError};
use rdma_collective::comm::bootstrap::Join;
use std::net::{SocketAddr, ToSocketAddrs};
use thiserror::Error;

/// This process's rank.
pub const RANK: &str = "RANK";
/// How many ranks the job has.
pub const WORLD_SIZE: &str = "WORLD_SIZE";
/// Where rank 0 serves the store.
pub const MASTER_ADDR: &str = "MASTER_ADDR";
/// On which port.
pub const MASTER_PORT: &str = "MASTER_PORT";

/// What a rank on this host is told by these variables.
pub fn variables(rank: usize, ranks: usize, store: SocketAddr) -> [(&'static str, String); 4] {
    let (host, port) = (store.ip().to_string(), store.port().to_string());
    [(RANK, rank.to_string()), (WORLD_SIZE, ranks.to_string()), (MASTER_ADDR, host), (MASTER_PORT, port)]
}

/// One rank's place.
#[derive(Debug, Clone)]
pub struct Seat {
    /// Which store to join, and as whom.
    pub join: Join,
    /// The process that serves the store; `None` when rank 0 does.
    pub launcher: Option<u32>,
}

/// The variables do not make a place.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum SeatError {
    /// Some are set and one is not.
    #[error("{set} is set and {missing} is not: set both, or neither to start all ranks on this host")]
    Missing {
        /// One that is set.
        set: &'static str,
        /// The one that is not.
        missing: &'static str,
    },
    /// One is no number.
    #[error("{name} is `{value}`, which is no number of its kind: mend it, or unset it")]
    Number {
        /// Which.
        name: &'static str,
        /// What it says.
        value: String,
    },
    /// The rank is not of this world.
    #[error(
        "RANK is {rank} and WORLD_SIZE {world}: ranks count from 0 to one less than that, and there are at most {max}"
    )]
    Range {
        /// The rank.
        rank: u32,
        /// How many there are.
        world: u32,
        /// How many there may be.
        max: u32,
    },
    /// The store's host has no address.
    #[error("MASTER_ADDR `{host}` has no address: {reason}")]
    Host {
        /// The host.
        host: String,
        /// What the system says.
        reason: String,
    },
    /// What the launcher handed down cannot be read.
    #[error(transparent)]
    Launcher(#[from] HandedDownError),
}

impl Seat {
    /// The place that `variable` tells of; `None` when it tells of none. An empty variable counts as unset.
    ///
    /// # Errors
    ///
    /// [`SeatError`] when they tell of half a place.
    pub fn find(
        variable: impl Fn(&str) -> Option<String>,
        ranks_max: u32,
    ) -> Result<Option<Self>, SeatError> {
        let variable = |name: &str| variable(name).filter(|value| !value.is_empty());
        let names = [RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT];
        let [rank, world, host, port] = names.map(|name| (name, variable(name)));
        let all = [&rank, &world, &host, &port];
        let Some(set) = [&rank, &world].into_iter().find(|(_, value)| value.is_some()).map(|(name, _)| *name)
        else {
            return Ok(None); // MASTER_ADDR alone is left in many a shell
        };
        if let Some((missing, _)) = all.into_iter().find(|(_, value)| value.is_none()) {
            return Err(SeatError::Missing { set, missing });
        }
        let (rank, world, port) = (number(rank)?, number(world)?, number(port)?);
        if rank >= world || world > ranks_max {
            return Err(SeatError::Range { rank, world, max: ranks_max });
        }
        let address = resolve(&host.1.unwrap_or_default(), port)?;
        let HandedDown { token, launcher } = HandedDown::find(variable)?;
        Ok(Some(Self { join: Join { address, token, rank, world }, launcher }))
    }
}

fn number<T: std::str::FromStr>((name, value): (&'static str, Option<String>)) -> Result<T, SeatError> {
    let value = value.unwrap_or_default();
    value.parse().map_err(|_| SeatError::Number { name, value })
}

fn resolve(host: &str, port: u16) -> Result<SocketAddr, SeatError> {
    let failed = |reason: String| SeatError::Host { host: host.to_owned(), reason };
    let addresses = (host, port).to_socket_addrs().map_err(|error| failed(error.to_string()))?;
    // IPv4 first: what has both listens on that in any case.
    addresses
        .min_by_key(SocketAddr::is_ipv6)
        .ok_or_else(|| failed("the name is known, without one".to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find(variables: &[(&str, &str)]) -> Result<Option<Seat>, SeatError> {
        let variable = |name: &str| {
            variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
        };
        Seat::find(variable, 256)
    }

    const ALL: [(&str, &str); 4] =
        [(RANK, "1"), (WORLD_SIZE, "2"), (MASTER_ADDR, "127.0.0.1"), (MASTER_PORT, "29500")];

    #[test]
    fn four_variables_make_a_place() {
        let seat = find(&ALL).unwrap().unwrap();
        assert_eq!((seat.join.rank, seat.join.world, seat.launcher), (1, 2, None));
        assert_eq!(seat.join.address, "127.0.0.1:29500".parse().unwrap());
        let token = "00112233445566778899aabbccddeeff";
        let handed_down = [("RDMA_JOB_TOKEN", token), ("RDMA_LAUNCHER_PID", "4711")];
        let seat = find(&[&ALL[..], &handed_down].concat()).unwrap().unwrap();
        assert!(seat.join.token == token.parse().unwrap() && seat.launcher == Some(4711));
    }

    #[test]
    fn without_rank_and_world_there_is_none() {
        assert!(find(&[]).unwrap().is_none());
        assert!(find(&[(RANK, ""), (WORLD_SIZE, ""), (MASTER_ADDR, "10.0.0.1")]).unwrap().is_none());
    }

    #[test]
    fn half_a_place_is_an_error_that_names_the_other_half() {
        let error = find(&ALL[..3]).unwrap_err().to_string();
        assert!(error.starts_with("RANK is set and MASTER_PORT is not"), "{error}");
        assert!(find(&ALL[1..]).unwrap_err().to_string().starts_with("WORLD_SIZE is set and RANK is not"));
    }

    #[test]
    fn what_makes_no_sense_is_quoted() {
        let with = |name: &'static str, value: &'static str| {
            let mut all = ALL.to_vec();
            all.retain(|(known, _)| *known != name);
            all.push((name, value));
            find(&all).unwrap_err().to_string()
        };
        assert!(with(RANK, "one").contains("RANK is `one`"));
        assert!(with(RANK, "2").contains("ranks count from 0"));
        assert!(with(WORLD_SIZE, "257").contains("at most 256"));
        assert!(with(MASTER_PORT, "99999").contains("MASTER_PORT is `99999`"));
        assert!(with(MASTER_ADDR, "no such host").contains("no such host"));
        assert!(with("RDMA_JOB_TOKEN", "xyz").contains("RDMA_JOB_TOKEN"));
    }
}
