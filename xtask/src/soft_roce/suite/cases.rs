//! The suite's cases as data, with [`collectives`], [`perftest`], [`tools`] and [`faults`]. A case names its programs;
//! `{device}`, `{self}` and `{peer}` stand for what the host knows, `{port}` for one that no other case has,
//! `{bin:NAME}` for a program of ours and `{test:NAME}` for a test executable.

use std::ops::RangeFrom;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use super::faults;
use super::network::Network;
use super::{collectives, perftest, tools};
use crate::cargo::{self, Executable};

/// Where servers of cases listen.
const PORTS: RangeFrom<u16> = 18_800..;

/// Build before the machines boot: the tests that cases name, and `planted`, for whose sake cargo builds the program
/// `conformance` as it builds those of `examples` for `chaos`. The choice of packages is that of all tests, so that
/// nothing is built twice.
const BUILD: &[&str] = &[
    "test",
    "--no-run",
    "--workspace",
    "--exclude=servers",
    "--lib",
    "--test=memlock",
    "--test=allocations",
    "--test=forked",
    "--test=forked_engines",
    "--test=unwinding",
    "--test=on_device",
    "--test=layouts",
    "--test=chaos",
    "--test=processes",
    "--test=revocation",
    "--test=node",
    "--test=pingpong",
    "--test=tables",
    "--test=planted",
];

/// Build before the machines boot, for the cases of `rdma-tools` alone.
const BUILD_TOOLS: &[&str] = &["test", "--no-run", "--package=tools", "--test=pingpong", "--test=tables"];

/// A case as it is written down.
pub struct Case {
    pub name: &'static str,
    /// On how many hosts it runs.
    pub hosts: &'static [u8],
    /// Runs first, on host 0; for a case without a client, the whole of it.
    pub server: &'static str,
    /// Starts once the server listens: on host 0 of one, or on host 1 of two.
    pub client: Option<&'static str>,
    /// Arguments that both have besides.
    pub work: &'static str,
    /// Whether the server goes on for ever, and is ended when the client has.
    pub server_stays: bool,
    /// Whether host 1 runs the server, and host 0 the client: of those that cost a host alone.
    pub swapped: bool,
    /// The sides that must have printed the device that was used.
    pub names_device: Sides,
    /// The state of the network between the hosts meanwhile.
    pub network: Network,
    /// Names in the final errors of the server and of the client, one of several with `|` between them, where the
    /// network may be the end of them. Without, both succeed.
    pub errors: Option<[&'static str; 2]>,
    /// Where it runs besides a soak.
    pub share: Share,
    /// How long it may take.
    pub seconds: u64,
}

/// How much of the suite runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Share {
    /// Cases that every change has to pass.
    Regular,
    /// All that is done to the network, and to processes.
    Soak,
    /// All cases of `rdma-tools`, of which a soak has none besides.
    Tools,
}

impl Share {
    /// How long the share may take. The regular one takes half of it where the guest is emulated and the machine is
    /// busy; 2,000 rounds of blocks that are taken back take a quarter of an hour of the soak there.
    pub fn limit(self) -> Duration {
        Duration::from_secs(match self {
            Self::Regular => 1800,
            Self::Soak | Self::Tools => 3600,
        })
    }
}

/// Two programs that talk, and a network that is left alone.
pub const PLAIN: Case = Case {
    name: "",
    hosts: &[],
    server: "",
    client: None,
    work: "",
    server_stays: false,
    swapped: false,
    names_device: Sides::Both,
    network: Network::Clean,
    errors: None,
    share: Share::Regular,
    seconds: 240,
};

/// Sides of a case.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Sides {
    /// The server, or the only side; it may speak for the other one as well.
    Server,
    /// The server and the client, each for itself.
    Both,
    /// Programs whose text has no device.
    Neither,
}

const CASES: &[Case] = &[
    Case {
        name: "conformance",
        hosts: &[1],
        server: "{bin:conformance} --device {device}",
        names_device: Sides::Server,
        ..PLAIN
    },
    Case {
        name: "conformance",
        hosts: &[2],
        server: "{bin:conformance} --device {device} --serve {self}:18500",
        client: Some("{bin:conformance} --device {device} --peer {peer}:18500 --only across::"),
        server_stays: true,
        ..PLAIN
    },
    Case {
        name: "kvcache_transfer, one command",
        hosts: &[1],
        server: "{bin:kvcache_transfer} --device {device} --prompt 256",
        names_device: Sides::Server,
        ..PLAIN
    },
    Case {
        name: "kvcache_transfer, pulled",
        hosts: &[1],
        server: "{bin:kvcache_transfer} --device {device} --prompt 32 --requests 8 --concurrency 4 --pull --checksums",
        names_device: Sides::Server,
        ..PLAIN
    },
    Case {
        name: "kvcache_transfer, pulled, some given up",
        hosts: &[1],
        server: "{bin:kvcache_transfer} --device {device} --prompt 32 --requests 8 --concurrency 4 --pull \
            --abort-rate 30",
        names_device: Sides::Server,
        share: Share::Soak,
        ..PLAIN
    },
    Case {
        name: "kvcache_transfer, by layers, some given up",
        hosts: &[1],
        server: "{bin:kvcache_transfer} --device {device} --prompt 32 --requests 8 --concurrency 4 --stream \
            --abort-rate 30",
        names_device: Sides::Server,
        ..PLAIN
    },
    Case {
        name: "kvcache_transfer, pushed, some given up",
        hosts: &[1],
        server: "{bin:kvcache_transfer} --device {device} --prompt 32 --requests 8 --concurrency 4 --abort-rate 30",
        names_device: Sides::Server,
        share: Share::Soak,
        ..PLAIN
    },
    Case {
        name: "kvcache_transfer, two roles",
        hosts: &[1, 2],
        server: "env RDMA_JOB_TOKEN=5c9f0d1e6a7b48239c0d1e2f3a4b5c6d \
            {bin:kvcache_transfer} --role decode --listen {self}:18700 --device {device} --prompt 64 --checksums",
        client: Some(
            "env RDMA_JOB_TOKEN=5c9f0d1e6a7b48239c0d1e2f3a4b5c6d \
            {bin:kvcache_transfer} --role prefill --peer {peer}:18700 --device {device} --prompt 64 --checksums",
        ),
        ..PLAIN
    },
    Case {
        name: "kills",
        hosts: &[1],
        server: "env CHAOS_DEVICE={device} {test:chaos} name_it_and_no_other one_that_is_killed --nocapture \
            --test-threads=1",
        names_device: Sides::Server,
        ..PLAIN
    },
    Case {
        name: "kills, all of them",
        hosts: &[1],
        server: "env SOAK=full CHAOS_DEVICE={device} {test:chaos} name_it_and_no_other one_that_is_killed --nocapture \
            --test-threads=1",
        names_device: Sides::Server,
        share: Share::Soak,
        seconds: 800,
        ..PLAIN
    },
    Case {
        name: "kills in any collective",
        hosts: &[1],
        server: "env CHAOS_DEVICE={device} {test:chaos} killed_in_any_collective --nocapture --test-threads=1",
        names_device: Sides::Server,
        share: Share::Soak,
        seconds: 420,
        ..PLAIN
    },
    Case {
        name: "kills and stops in some operations",
        hosts: &[1],
        server: "{test:processes} on_a_device --ignored --nocapture --test-threads=1",
        names_device: Sides::Server,
        ..PLAIN
    },
    Case {
        name: "kills and stops in every operation",
        hosts: &[1],
        server: "env SOAK=full {test:processes} on_a_device --ignored --nocapture --test-threads=1",
        names_device: Sides::Server,
        share: Share::Soak,
        seconds: 480,
        ..PLAIN
    },
    Case {
        name: "subscribers of the log that panic or call back",
        hosts: &[1],
        server: "{test:unwinding} on_a_device --ignored --nocapture",
        names_device: Sides::Server,
        share: Share::Soak,
        ..PLAIN
    },
    Case {
        name: "backend over libibverbs",
        hosts: &[1],
        server: "{test:rdma_core} ibverbs::tests --ignored --nocapture --test-threads=1",
        names_device: Sides::Server,
        ..PLAIN
    },
    Case {
        name: "forked children",
        hosts: &[1],
        server: "{test:forked} on_a_device --ignored --nocapture --test-threads=1",
        names_device: Sides::Server,
        ..PLAIN
    },
    Case {
        name: "forked children of ranks",
        hosts: &[1],
        server: "{test:forked_engines} on_a_device --ignored --nocapture --test-threads=1",
        names_device: Sides::Server,
        ..PLAIN
    },
    Case {
        name: "forked children of ranks, all calls",
        hosts: &[1],
        server: "env SOAK=full {test:forked_engines} on_a_device --ignored --nocapture --test-threads=1",
        names_device: Sides::Server,
        share: Share::Soak,
        seconds: 480,
        ..PLAIN
    },
    Case {
        name: "no allocation a post",
        hosts: &[1],
        server: "{test:allocations} --ignored --nocapture --test-threads=1",
        names_device: Sides::Server,
        ..PLAIN
    },
    Case {
        name: "links and communicators",
        hosts: &[1],
        server: "{test:on_device} --ignored --nocapture --test-threads=1",
        names_device: Sides::Server,
        ..PLAIN
    },
    Case {
        name: "pools of any layout",
        hosts: &[1],
        server: "{test:layouts} on_a_device --ignored --nocapture --test-threads=1",
        names_device: Sides::Server,
        ..PLAIN
    },
    Case {
        name: "blocks taken back from a process that pushes",
        hosts: &[1],
        server: "{test:revocation} on_a_device --ignored --nocapture",
        names_device: Sides::Server,
        ..PLAIN
    },
    Case {
        name: "blocks taken back from a process that pushes, all rounds",
        hosts: &[1],
        server: "env SOAK=full {test:revocation} on_a_device --ignored --nocapture",
        names_device: Sides::Server,
        share: Share::Soak,
        seconds: 1200,
        ..PLAIN
    },
    Case {
        name: "nodes that come and go",
        hosts: &[1],
        server: "{test:node} on_a_device --ignored --nocapture",
        names_device: Sides::Server,
        seconds: 200,
        ..PLAIN
    },
    Case {
        name: "nodes that come and go, all events",
        hosts: &[1],
        server: "env SOAK=full {test:node} on_a_device --ignored --nocapture",
        names_device: Sides::Server,
        share: Share::Soak,
        seconds: 1200,
        ..PLAIN
    },
    Case {
        name: "links and communicators, all rounds",
        hosts: &[1],
        server: "env SOAK=full {test:on_device} leave_nothing --ignored --nocapture --test-threads=1",
        names_device: Sides::Server,
        share: Share::Soak,
        seconds: 800,
        ..PLAIN
    },
    Case {
        name: "limits on pinning",
        hosts: &[1],
        server: "{test:memlock} --ignored --nocapture --test-threads=1",
        names_device: Sides::Server,
        ..PLAIN
    },
    Case {
        name: "findings of the doctor, each made and mended",
        hosts: &[1],
        server: "env WRITE_BW={bin:write_bw} ALLREDUCE={bin:allreduce} {test:tables} real:: --ignored --nocapture \
            --test-threads=1",
        names_device: Sides::Server,
        ..PLAIN
    },
];

/// A case with its programs found, as a host reads it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Planned {
    /// The case's name in the report.
    pub name: String,
    /// See [`Case::server`].
    pub server: Vec<String>,
    /// See [`Case::client`].
    pub client: Option<Vec<String>>,
    /// See [`Case::server_stays`].
    pub server_stays: bool,
    /// See [`Case::swapped`].
    pub swapped: bool,
    /// See [`Case::names_device`].
    pub names_device: Sides,
    /// See [`Case::network`].
    pub network: Network,
    /// See [`Case::errors`].
    pub errors: Option<[String; 2]>,
    /// See [`Case::seconds`].
    pub seconds: u64,
}

impl Planned {
    /// How long it may take.
    pub fn limit(&self) -> Duration {
        Duration::from_secs(self.seconds)
    }
}

/// Builds what the cases name: the machines cannot.
pub fn build(share: Share) -> Result<Vec<Executable>> {
    cargo::build(&mut cargo::cargo(if share == Share::Tools { BUILD_TOOLS } else { BUILD })?)
}

/// The cases for `hosts` hosts; those that cost a host come last.
fn cases(hosts: u8, share: Share) -> impl Iterator<Item = &'static Case> {
    let is_in = move |case: &&Case| match share {
        Share::Regular => case.share == Share::Regular,
        Share::Soak => case.share == Share::Soak || case.network != Network::Clean,
        Share::Tools => case.name.starts_with(tools::PREFIX),
    };
    CASES
        .iter()
        .chain(collectives::CASES)
        .chain(perftest::CASES)
        .chain(tools::CASES)
        .chain(faults::CASES)
        .filter(move |case| case.hosts.contains(&hosts))
        .filter(is_in)
}

/// The cases for `hosts` hosts, with what cargo built put in for its names.
pub fn plan(hosts: u8, share: Share, built: &[Executable]) -> Result<Vec<Planned>> {
    let plan = cases(hosts, share).zip(PORTS).map(|(case, port)| {
        let side =
            |line: &str| words(&format!("{line} {}", case.work).replace("{port}", &port.to_string()), built);
        Ok(Planned {
            name: case.name.to_owned(),
            server: side(case.server)?,
            client: case.client.map(side).transpose()?,
            server_stays: case.server_stays,
            swapped: case.swapped,
            names_device: case.names_device,
            network: case.network,
            errors: case.errors.map(|errors| errors.map(str::to_owned)),
            seconds: case.seconds,
        })
    });
    plan.collect()
}

fn words(line: &str, built: &[Executable]) -> Result<Vec<String>> {
    line.split_whitespace().map(|word| program(word, built)).collect()
}

/// Puts in a program's path; `NAME={bin:PROGRAM}` is for `env`.
fn program(word: &str, built: &[Executable]) -> Result<String> {
    let (before, place) = word.split_at(word.find('{').unwrap_or(0));
    let (is_test, name) =
        match place.strip_suffix('}').map(|word| (word.strip_prefix("{bin:"), word.strip_prefix("{test:"))) {
            Some((Some(name), _)) => (false, name),
            Some((None, Some(name))) => (true, name),
            _ => return Ok(word.to_owned()),
        };
    let found = built.iter().find(|built| built.name == name && built.is_test == is_test);
    let path = &found.with_context(|| format!("cargo built no `{name}`: see `BUILD`"))?.path;
    path.to_str()
        .map(|path| format!("{before}{path}"))
        .with_context(|| format!("{} is not UTF-8", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_replaced_by_what_cargo_built() {
        let built = |name: &str, is_test| Executable {
            name: name.to_owned(),
            path: format!("out/{name}-{is_test}").into(),
            package: "examples".into(),
            is_test,
        };
        let built = [built("kv", true), built("kv", false)];
        assert_eq!(
            words("{bin:kv} -d {device}", &built).ok(),
            Some(vec!["out/kv-false".into(), "-d".into(), "{device}".into()])
        );
        assert_eq!(words("{test:kv}", &built).ok(), Some(vec!["out/kv-true".into()]));
        assert_eq!(
            words("env KV={bin:kv} D={device}", &built).ok(),
            Some(vec!["env".into(), "KV=out/kv-false".into(), "D={device}".into()])
        );
        assert!(words("{bin:other}", &built).is_err());
    }

    #[test]
    fn every_number_of_hosts_has_cases() {
        for hosts in [1, 2] {
            assert!(CASES.iter().any(|case| case.hosts.contains(&hosts)), "none for {hosts}");
        }
    }

    #[test]
    fn a_host_is_lost_only_when_nothing_else_needs_it() {
        let costs = faults::CASES.iter().map(|case| matches!(case.network, Network::PeerKilled { .. }));
        assert!(costs.is_sorted());
        assert!(CASES.iter().all(|case| case.network == Network::Clean));
        let mut swapped = CASES.iter().chain(faults::CASES).filter(|case| case.swapped);
        assert!(swapped.all(|case| matches!(case.network, Network::PeerKilled { .. })));
    }
}
