//! Ranks that meet, and those that do not, each a thread of this process with variables of its own.

use std::collections::hash_map::RandomState;
use std::fmt::Write;
use std::hash::{BuildHasher, Hasher};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rdma_core::Deadline;

use super::*;
use crate::bootstrap::BootstrapError;
use crate::bootstrap::{JobToken, StoreOptions, StoreServer, meeting_ports};
use crate::env::JoinError;

fn long() -> Deadline {
    Deadline::after(Duration::from_secs(120))
}

fn soon() -> Deadline {
    Deadline::after(Duration::from_millis(700))
}

/// The launch of rank `rank` among `world`, by variables of which `{rank}` and `{world}` are part.
fn launched(variables: &[(&str, &str)], rank: u32, world: u32) -> Launch {
    let fill = |text: &str| text.replace("{rank}", &rank.to_string()).replace("{world}", &world.to_string());
    let variables = variables.iter().map(|(name, value)| (name.to_string(), fill(value)));
    Environment::read(&variables.collect()).unwrap().launch.unwrap()
}

/// All ranks meet, gather their numbers, and part.
fn meet(variables: &[(&str, &str)], world: u32) {
    std::thread::scope(|scope| {
        for rank in 0..world {
            scope.spawn(move || {
                let mut joined = launched(variables, rank, world).join(long()).unwrap();
                let all = joined.store.all_gather("all", &rank.to_be_bytes(), long()).unwrap();
                let expected: Vec<_> = (0..world).map(|rank| rank.to_be_bytes().to_vec()).collect();
                assert_eq!(all, expected);
                assert_eq!(joined.server.is_some(), rank == 0);
                joined.close(long()).unwrap();
            });
        }
    });
}

/// A port that is free just now, as are those that are derived from it.
fn port() -> u16 {
    for _ in 0..100 {
        // Below those that the kernel gives to connections, which may hold thousands for a minute.
        let port = 10_000 + (RandomState::new().build_hasher().finish() % 20_000) as u16;
        let free = |port: &u16| TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).is_ok();
        if free(&port) && meeting_ports(port, true).iter().all(free) {
            return port;
        }
    }
    panic!("no free range of ports")
}

fn torch(port: &str) -> Vec<(&'static str, &str)> {
    vec![("RANK", "{rank}"), ("WORLD_SIZE", "{world}"), ("MASTER_ADDR", "127.0.0.1"), ("MASTER_PORT", port)]
}

fn slurm(job: &str) -> Vec<(&'static str, &str)> {
    vec![
        ("SLURM_PROCID", "{rank}"),
        ("SLURM_NTASKS", "{world}"),
        ("SLURM_JOB_ID", job),
        ("SLURM_STEP_ID", "0"),
        ("SLURM_NNODES", "1"),
    ]
}

#[test]
fn ranks_meet_where_master_port_is_free() {
    meet(&torch(&port().to_string()), 4);
}

#[test]
fn ranks_meet_beside_what_holds_master_port_and_others_after_it() {
    let port = port();
    let hold = |port| TcpListener::bind((Ipv4Addr::LOCALHOST, port)).unwrap();
    let others = meeting_ports(port, true);
    let text = port.to_string();
    // A silent stranger, and the store of another job.
    let _strangers = (hold(port), hold(others[0]));
    let other = StoreOptions::new(JobToken::random().unwrap(), 4);
    let _other = StoreServer::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, others[1])), other).unwrap();
    let by_torchrun = [&torch(&text)[..], &[("TORCHELASTIC_RUN_ID", "run 7")]].concat();
    std::thread::scope(|scope| {
        scope.spawn(|| meet(&torch(&text), 4));
        scope.spawn(|| meet(&by_torchrun, 4));
    });
}

#[test]
fn under_torchrun_master_port_is_left_alone() {
    let port = port();
    let text = port.to_string();
    let variables = [&torch(&text)[..], &[("TORCHELASTIC_RUN_ID", "none")]].concat();
    let joined = launched(&variables, 0, 1).join(long()).unwrap();
    TcpListener::bind((Ipv4Addr::LOCALHOST, port)).unwrap();
    assert!(meeting_ports(port, true).contains(&joined.server.unwrap().address().port()));
}

#[test]
fn ranks_of_one_host_meet_by_the_name_of_their_job() {
    let job = JobToken::random().unwrap().to_hex();
    let pmix = [
        ("OMPI_COMM_WORLD_RANK", "{rank}"),
        ("OMPI_COMM_WORLD_SIZE", "{world}"),
        ("OMPI_COMM_WORLD_LOCAL_SIZE", "{world}"),
        ("PMIX_NAMESPACE", &job),
    ];
    std::thread::scope(|scope| {
        scope.spawn(|| meet(&slurm(&job), 4));
        scope.spawn(|| meet(&pmix, 3));
    });
    // Nothing of it is left.
    meet(&slurm(&job), 1);
}

#[test]
fn a_job_without_a_rank_0_on_this_host_is_an_error_at_the_deadline() {
    let job = JobToken::random().unwrap().to_hex();
    let error = launched(&slurm(&job), 1, 2).join(soon()).unwrap_err();
    assert!(matches!(&error, JoinError::Bootstrap(BootstrapError::NobodyByName { .. })), "{error}");
    assert!(error.to_string().contains("set MASTER_ADDR and MASTER_PORT"), "{error}");
}

#[test]
fn a_second_rank_0_of_a_job_is_an_error_and_the_first_is_not_disturbed() {
    let job = JobToken::random().unwrap().to_hex();
    let first = launched(&slurm(&job), 0, 2).join(long()).unwrap();
    let error = launched(&slurm(&job), 0, 2).join(long()).unwrap_err();
    let JoinError::Bootstrap(BootstrapError::NameTaken { holder, .. }) = &error else { panic!("{error}") };
    assert_eq!(*holder, Some(std::process::id()));
    let second = launched(&slurm(&job), 1, 2).join(long()).unwrap();
    drop(second);
    first.close(long()).unwrap();
}

#[test]
fn another_world_size_is_refused_at_once() {
    let text = port().to_string();
    let first = launched(&torch(&text), 0, 2).join(long()).unwrap();
    let started = Instant::now();
    let error = launched(&torch(&text), 1, 3).join(long()).unwrap_err();
    let told = BootstrapError::OtherWorld { store: 2, client: 3 }.to_string();
    assert_eq!(error.to_string(), told);
    assert!(started.elapsed() < Duration::from_secs(60));
    first.close(long()).unwrap();
}

#[test]
fn the_store_of_another_job_is_named_at_the_deadline() {
    let text = port().to_string();
    let _first = launched(&torch(&text), 0, 2).join(long()).unwrap();
    let other = [&torch(&text)[..], &[TOKEN]].concat();
    let error = launched(&other, 1, 2).join(soon()).unwrap_err().to_string();
    assert!(
        error.starts_with("no store of this job at 127.0.0.1")
            && error.contains("the store has another token than this process"),
        "{error}"
    );
}

#[test]
fn ports_that_are_all_taken_are_an_error_of_rank_0() {
    let port = port();
    let text = port.to_string();
    let hold = |port: u16| TcpListener::bind((Ipv4Addr::LOCALHOST, port)).unwrap();
    let held: Vec<_> = meeting_ports(port, false).into_iter().map(hold).collect();
    let error = launched(&torch(&text), 0, 2).join(long()).unwrap_err();
    assert!(matches!(&error, JoinError::Bootstrap(BootstrapError::NoFreePort { .. })), "{error}");
    drop(held);
    meet(&torch(&text), 2);
}

/// A service's address, or one that is translated: it is on no interface of rank 0's.
#[test]
fn rank_0_listens_everywhere_when_the_address_is_none_of_its_own() {
    let port = port();
    let text = port.to_string();
    let service = elsewhere(&text);
    let joined = launched(&service, 0, 1).join(long()).unwrap();
    let address = joined.server.as_ref().unwrap().address();
    assert!(address.ip().is_unspecified() && address.port() == port, "{address}");
    joined.close(long()).unwrap();
}

#[test]
fn rank_0_warns_of_an_address_that_is_none_of_its_own_and_says_so_when_nobody_comes() {
    let port = port().to_string();
    let warnings = Arc::new(Warnings::default());
    let join = || launched(&elsewhere(&port), 0, 2).join(long());
    let mut joined = tracing::subscriber::with_default(Arc::clone(&warnings), join).unwrap();
    let told = format!("rank 0 listens on 0.0.0.0:{port}, all interfaces, since MASTER_ADDR=192.0.2.77");
    let warnings = warnings.0.lock().unwrap();
    assert!(matches!(&warnings[..], [one] if one.contains(&told)), "{warnings:?}");
    let error = joined.store.barrier("start", soon()).unwrap_err().to_string();
    assert!(error.starts_with("rank 1 did not come") && error.contains(&told), "{error}");
    assert!(error.ends_with("set MASTER_ADDR to an address of rank 0's host, on all ranks"), "{error}");
}

#[test]
fn whoever_finds_no_rank_0_is_told_which_variable_says_that_it_is_there() {
    let port = port().to_string();
    let error = launched(&torch(&port), 1, 2).join(soon()).unwrap_err().to_string();
    assert!(error.contains("see whether rank 0 runs there, since MASTER_ADDR=127.0.0.1 says so"), "{error}");
}

#[test]
fn rank_0_warns_once_beyond_loopback_where_the_job_has_no_token() {
    let line = "export RDMA_JOB_TOKEN=$(openssl rand -hex 16)";
    let count = |variables: &[(&str, &str)], warned: usize| {
        let warnings = Arc::new(Warnings::default());
        let join = || launched(variables, 0, 2).join(long());
        let _joined = tracing::subscriber::with_default(Arc::clone(&warnings), join).unwrap();
        let warnings = warnings.0.lock().unwrap();
        let told =
            warnings.iter().filter(|warning| warning.contains("has no token") && warning.ends_with(line));
        assert_eq!((told.count(), warnings.len()), (warned, warned), "{variables:?}: {warnings:?}");
    };
    let port = port().to_string();
    let everywhere: Vec<_> = torch(&port)
        .into_iter()
        .map(|(name, value)| (name, if name == "MASTER_ADDR" { "0.0.0.0" } else { value }))
        .collect();
    count(&everywhere, 1);
    count(&[&everywhere[..], &[TOKEN]].concat(), 0);
    count(&torch(&port), 0);
}

#[test]
fn a_rank_of_another_run_does_not_meet_this_one() {
    let text = port().to_string();
    let of = |run| [&torch(&text)[..], &[("TORCHELASTIC_RUN_ID", run)]].concat();
    let first = launched(&of("run 7"), 0, 2).join(long()).unwrap();
    let error = launched(&of("run 8"), 1, 2).join(soon()).unwrap_err().to_string();
    assert!(error.contains(r#"the run "run 7""#) && error.contains(r#"the run "run 8""#), "{error}");
    std::thread::scope(|scope| {
        scope.spawn(|| meet(&of("run 8"), 2));
    });
    first.close(long()).unwrap();
}

/// Variables with an address that is kept for documentation.
fn elsewhere(port: &str) -> Vec<(&'static str, &str)> {
    let torch = torch(port).into_iter().chain([TOKEN]);
    torch.map(|(name, value)| (name, if name == "MASTER_ADDR" { "192.0.2.77" } else { value })).collect()
}

const TOKEN: (&str, &str) = ("RDMA_JOB_TOKEN", "00112233445566778899aabbccddeeff");

/// Keeps what is said at WARN.
#[derive(Default)]
struct Warnings(Mutex<Vec<String>>);

impl tracing::Subscriber for Warnings {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        *metadata.level() == tracing::Level::WARN
    }

    fn event(&self, event: &tracing::Event<'_>) {
        let mut said = String::new();
        event.record(&mut |_: &tracing::field::Field, value: &dyn std::fmt::Debug| {
            let _ = write!(said, "{value:?}");
        });
        self.0.lock().unwrap().push(said);
    }

    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::Id {
        tracing::Id::from_u64(1)
    }

    fn record(&self, _: &tracing::Id, _: &tracing::span::Record<'_>) {}
    fn record_follows_from(&self, _: &tracing::Id, _: &tracing::Id) {}
    fn enter(&self, _: &tracing::Id) {}
    fn exit(&self, _: &tracing::Id) {}
}
