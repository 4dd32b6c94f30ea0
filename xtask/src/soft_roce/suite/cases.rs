//! What the suite runs, as data. A case names its programs; `{device}`, `{self}` and `{peer}` stand for what the
//! host knows, `{bin:NAME}` for a release program of ours and `{test:NAME}` for a test executable.

use std::time::Duration;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use crate::cargo::Executable;
use crate::programs;

/// The whole suite on one host.
pub const LIMIT: Duration = Duration::from_secs(900);
/// One case.
const CASE_SECONDS: u64 = 240;

/// What is built before the machines boot: they cannot build.
pub const BUILDS: &[&[&str]] = &[
    programs::BUILD,
    // The choice of packages is that of `cargo test --workspace`, so that nothing is built twice.
    &["test", "--no-run", "--workspace", "--lib", "--test", "memlock", "--test", "allocations"],
];

/// A case as it is written down.
struct Case {
    name: &'static str,
    /// On how many hosts it runs.
    hosts: &'static [u8],
    /// Runs first, on host 0; for a case without a client, the whole of it.
    server: &'static str,
    /// Starts once the server listens: on host 0 of one, or on host 1 of two.
    client: Option<&'static str>,
    /// Whether the server goes on for ever, and is ended when the client has.
    server_stays: bool,
    /// Who must have printed the device that was used.
    names_device: Sides,
}

/// Sides of a case.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Sides {
    /// The server, or the only side; it may speak for the other one as well.
    Server,
    /// The server and the client, each for itself.
    Both,
}

const CASES: &[Case] = &[
    Case {
        name: "conformance",
        hosts: &[1],
        server: "{bin:conformance} --device {device}",
        client: None,
        server_stays: false,
        names_device: Sides::Server,
    },
    Case {
        name: "conformance",
        hosts: &[2],
        server: "{bin:conformance} --device {device} --serve {self}:18500",
        client: Some("{bin:conformance} --device {device} --peer {peer}:18500 --only across::"),
        server_stays: true,
        names_device: Sides::Both,
    },
    Case {
        name: "ib_write_bw",
        hosts: &[1, 2],
        server: "ib_write_bw -d {device} -x 1 -s 65536 -n 200 -F",
        client: Some("ib_write_bw -d {device} -x 1 -s 65536 -n 200 -F {peer}"),
        server_stays: false,
        names_device: Sides::Both,
    },
    Case {
        name: "write_bw",
        hosts: &[1, 2],
        server: "{bin:write_bw} -d {device} -x 1 -s 65536 -n 200 -F",
        client: Some("{bin:write_bw} -d {device} -x 1 -s 65536 -n 200 -F {peer}"),
        server_stays: false,
        names_device: Sides::Both,
    },
    Case {
        name: "ib_write_lat",
        hosts: &[1],
        server: "ib_write_lat -d {device} -x 1 -n 200 -F",
        client: Some("ib_write_lat -d {device} -x 1 -n 200 -F {peer}"),
        server_stays: false,
        names_device: Sides::Both,
    },
    Case {
        name: "write_lat",
        hosts: &[1, 2],
        server: "{bin:write_lat} -d {device} -x 1 -n 200 -F",
        client: Some("{bin:write_lat} -d {device} -x 1 -n 200 -F {peer}"),
        server_stays: false,
        names_device: Sides::Both,
    },
    Case {
        name: "allreduce, three ranks",
        hosts: &[1],
        server: "{bin:allreduce} --device {device} --ranks 3 -b 64K -e 1M -f 4 -n 3",
        client: None,
        server_stays: false,
        names_device: Sides::Server,
    },
    Case {
        name: "allreduce, a rank on each host",
        hosts: &[2],
        server: "env RANK=0 WORLD_SIZE=2 MASTER_ADDR={self} MASTER_PORT=18600 \
            {bin:allreduce} --device {device} -b 64K -e 256K -f 4 -n 3",
        client: Some(
            "env RANK=1 WORLD_SIZE=2 MASTER_ADDR={peer} MASTER_PORT=18600 \
            {bin:allreduce} --device {device} -b 64K -e 256K -f 4 -n 3",
        ),
        server_stays: false,
        names_device: Sides::Server,
    },
    Case {
        name: "kvcache_transfer, one command",
        hosts: &[1],
        server: "{bin:kvcache_transfer} --device {device} --prompt 256",
        client: None,
        server_stays: false,
        names_device: Sides::Server,
    },
    Case {
        name: "kvcache_transfer, two roles",
        hosts: &[1, 2],
        server: "{bin:kvcache_transfer} --role decode --listen {self}:18700 --device {device} --prompt 256 --checksums",
        client: Some(
            "{bin:kvcache_transfer} --role prefill --peer {peer}:18700 --device {device} --prompt 256 --checksums",
        ),
        server_stays: false,
        names_device: Sides::Both,
    },
    Case {
        name: "backend over libibverbs",
        hosts: &[1],
        server: "{test:rdma_core} ibverbs::tests --ignored --nocapture --test-threads=1",
        client: None,
        server_stays: false,
        names_device: Sides::Server,
    },
    Case {
        name: "no allocation a post",
        hosts: &[1],
        server: "{test:allocations} --ignored --nocapture --test-threads=1",
        client: None,
        server_stays: false,
        names_device: Sides::Server,
    },
    Case {
        name: "limits on pinning",
        hosts: &[1],
        server: "{test:memlock} --ignored --nocapture --test-threads=1",
        client: None,
        server_stays: false,
        names_device: Sides::Server,
    },
];

/// A case with its programs found, as a host reads it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Planned {
    /// What the report calls it.
    pub name: String,
    /// See [`Case::server`].
    pub server: Vec<String>,
    /// See [`Case::client`].
    pub client: Option<Vec<String>>,
    /// See [`Case::server_stays`].
    pub server_stays: bool,
    /// See [`Case::names_device`].
    pub names_device: Sides,
    /// How long it may take.
    pub seconds: u64,
}

impl Planned {
    /// How long it may take.
    pub fn limit(&self) -> Duration {
        Duration::from_secs(self.seconds)
    }
}

/// The cases for `hosts` hosts, with what cargo built put in for its names.
pub fn plan(hosts: u8, built: &[Executable]) -> Result<Vec<Planned>> {
    let cases = CASES.iter().filter(|case| case.hosts.contains(&hosts));
    let plan = cases.map(|case| {
        Ok(Planned {
            name: case.name.to_owned(),
            server: words(case.server, built)?,
            client: case.client.map(|client| words(client, built)).transpose()?,
            server_stays: case.server_stays,
            names_device: case.names_device,
            seconds: CASE_SECONDS,
        })
    });
    plan.collect()
}

fn words(line: &str, built: &[Executable]) -> Result<Vec<String>> {
    line.split(' ').map(|word| program(word, built)).collect()
}

fn program(word: &str, built: &[Executable]) -> Result<String> {
    let (is_test, name) =
        match word.strip_suffix('}').map(|word| (word.strip_prefix("{bin:"), word.strip_prefix("{test:"))) {
            Some((Some(name), _)) => (false, name),
            Some((None, Some(name))) => (true, name),
            _ => return Ok(word.to_owned()),
        };
    let found = built.iter().find(|built| built.name == name && built.is_test == is_test);
    let path = &found.with_context(|| format!("cargo built no `{name}`: see BUILDS"))?.path;
    path.to_str().map(str::to_owned).with_context(|| format!("{} is not UTF-8", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_replaced_by_what_cargo_built() {
        let built = |name: &str, is_test| Executable {
            name: name.to_owned(),
            path: format!("out/{name}-{is_test}").into(),
            is_test,
        };
        let built = [built("kv", true), built("kv", false)];
        assert_eq!(
            words("{bin:kv} -d {device}", &built).ok(),
            Some(vec!["out/kv-false".into(), "-d".into(), "{device}".into()])
        );
        assert_eq!(words("{test:kv}", &built).ok(), Some(vec!["out/kv-true".into()]));
        assert!(words("{bin:other}", &built).is_err());
    }

    #[test]
    fn every_number_of_hosts_has_cases() {
        for hosts in [1, 2] {
            assert!(CASES.iter().any(|case| case.hosts.contains(&hosts)), "none for {hosts}");
        }
    }
}
