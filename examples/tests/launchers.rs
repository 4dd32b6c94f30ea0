//! `allreduce` as one rank of a launcher's: real processes with the variables that launchers set, and a real mpirun.

mod common;

use common::{LONG, Running, run, start_with, unsteered};
use examples::collectives::Collective;
use examples::columns::parse::ParsedTable;
use std::net::{Ipv4Addr, TcpListener};
use std::process::{Command, Stdio};

const ALLREDUCE: &str = env!("CARGO_BIN_EXE_allreduce");
const LINE: &str = "--device soft -b 8 -e 64K -f 16 -n 2 -T 120";
const RANKS: u32 = 4;

/// Starts all ranks, each with `variables` in which `{}` is its number.
fn launch(line: &str, variables: &[(&str, &str)]) -> Vec<Running> {
    let start = |rank: u32| {
        let own: Vec<_> =
            variables.iter().map(|(name, value)| (*name, value.replace("{}", &rank.to_string()))).collect();
        let own: Vec<_> = own.iter().map(|(name, value)| (*name, value.as_str())).collect();
        start_with(ALLREDUCE, line, &own)
    };
    (0..RANKS).map(start).collect()
}

/// Checks that all succeed and that the first prints one table of all.
fn verify(running: Vec<Running>) {
    let ended: Vec<_> = running.into_iter().map(|rank| rank.finish().expect(0)).collect();
    let text = &ended[0].stdout;
    let table = ParsedTable::parse(text).unwrap_or_else(|error| panic!("{error}\n{text}"));
    table.verify(Collective::AllReduce, RANKS as usize).unwrap_or_else(|error| panic!("{error}\n{text}"));
    assert!(table.ok && table.rows.len() == 4, "{text}");
    assert!(ended[1..].iter().all(|ended| ended.stdout.is_empty()));
}

/// A port that this process holds, with nobody who answers.
fn held() -> (TcpListener, String) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = listener.local_addr().unwrap().port().to_string();
    (listener, port)
}

fn torchrun(port: &str) -> Vec<(&'static str, &str)> {
    vec![
        ("RANK", "{}"),
        ("WORLD_SIZE", "4"),
        ("LOCAL_RANK", "{}"),
        ("MASTER_ADDR", "127.0.0.1"),
        ("MASTER_PORT", port),
    ]
}

#[test]
fn ranks_that_are_held_apart_say_so_once_with_their_hosts() {
    let (_store_of_torch, port) = held();
    let variables = [&torchrun(&port)[..], &[("NCCL_HOSTID", "rack-{}"), ("NCCL_DEBUG", "INFO")]].concat();
    let said = r#" unless Wire::Mapped is asked for: "rack-0" has rank 0, "rack-1" has rank 1, "#;
    for ended in launch(LINE, &variables).into_iter().map(|rank| rank.finish().expect(0)) {
        let all = format!("{}{}", ended.stdout, ended.stderr);
        assert_eq!(all.matches(said).count(), 1, "{all}");
    }
}

#[test]
fn four_processes_of_torchrun_meet_while_another_process_holds_master_port() {
    let (_store_of_torch, port) = held();
    let by_hand = torchrun(&port);
    let more = [
        ("LOCAL_WORLD_SIZE", "4"),
        ("TORCHELASTIC_RUN_ID", "none"),
        ("TORCHELASTIC_USE_AGENT_STORE", "True"),
    ];
    let elastic = [&by_hand[..], &more].concat();
    // Both at once, at one port: two jobs that only their tokens tell apart.
    let (first, second) = (launch(LINE, &by_hand), launch(LINE, &elastic));
    verify(first);
    verify(second);
}

#[test]
fn four_processes_with_slurms_variables_and_nothing_else_meet() {
    let job = std::process::id().to_string();
    verify(launch(LINE, &slurm(&job, "1")));
}

/// The variables that srun sets for a task.
fn slurm<'a>(job: &'a str, nodes: &'a str) -> Vec<(&'static str, &'a str)> {
    vec![
        ("SLURM_PROCID", "{}"),
        ("SLURM_LOCALID", "{}"),
        ("SLURM_NODEID", "0"),
        ("SLURM_NTASKS", "4"),
        ("SLURM_NPROCS", "4"),
        ("SLURM_STEP_NUM_TASKS", "4"),
        ("SLURM_STEP_NUM_NODES", nodes),
        ("SLURM_NNODES", nodes),
        ("SLURM_JOB_NUM_NODES", nodes),
        ("SLURM_JOB_ID", job),
        ("SLURM_STEP_ID", "0"),
    ]
}

#[test]
fn slurm_over_several_nodes_without_an_address_says_which_variable_to_set() {
    for rank in launch("--device soft -b 8 -e 8 -T 60", &slurm("1", "2")) {
        let told = rank.finish().expect(1).stderr;
        assert!(told.contains("Slurm started 4 ranks") && told.contains("set MASTER_ADDR"), "{told}");
    }
    let (_held, port) = held();
    let address = [("MASTER_ADDR", "127.0.0.1"), ("MASTER_PORT", port.as_str())];
    verify(launch(LINE, &[&slurm("1", "2")[..], &address].concat()));
}

/// mpirun, unless it is not installed: then why, and under CI a failure.
fn mpirun(line: &str) -> Option<Command> {
    let there = Command::new("mpirun").arg("--version").stdin(Stdio::null()).output();
    if there.is_ok_and(|output| output.status.success()) {
        let mut command = Command::new("mpirun");
        unsteered(&mut command);
        command.args(line.split(' ')).arg(ALLREDUCE);
        return Some(command);
    }
    let ci = std::env::var_os("CI").is_some_and(|ci| ci == "true");
    assert!(!ci, "CI=true, and mpirun is not installed: apt-get install openmpi-bin");
    println!("SKIPPED: mpirun is not installed; apt-get install openmpi-bin");
    None
}

#[test]
fn mpirun_launches_it_with_nothing_else_set() {
    let Some(mut command) = mpirun("--allow-run-as-root --oversubscribe -np 4") else { return };
    command.args(LINE.split(' ')).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().unwrap();
    let watched = child.id();
    let (sender, ended) = std::sync::mpsc::channel();
    std::thread::spawn(move || sender.send(child.wait_with_output()));
    let Ok(output) = ended.recv_timeout(LONG) else {
        let pid = rustix::process::Pid::from_raw(watched.cast_signed()).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        panic!("mpirun still runs after {LONG:?}");
    };
    let output = output.unwrap();
    let (text, told) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{text}\n{told}");
    let table = ParsedTable::parse(&text).unwrap_or_else(|error| panic!("{error}\n{text}\n{told}"));
    table
        .verify(Collective::AllReduce, RANKS as usize)
        .unwrap_or_else(|error| panic!("{error}\n{text}\n{told}"));
    assert!(table.ok && table.rows.len() == 4, "{text}");
}

#[test]
fn contradictory_launcher_variables_are_an_error() {
    let both = [
        ("RANK", "1"),
        ("WORLD_SIZE", "4"),
        ("OMPI_COMM_WORLD_RANK", "2"),
        ("OMPI_COMM_WORLD_SIZE", "4"),
        ("MASTER_ADDR", "127.0.0.1"),
        ("MASTER_PORT", "29500"),
    ];
    let told = start_with(ALLREDUCE, LINE, &both).finish().expect(1).stderr;
    assert!(told.contains("RANK=1") && told.contains("OMPI_COMM_WORLD_RANK=2"), "{told}");
    // A value that makes no sense is refused, not passed over.
    let told = start_with(ALLREDUCE, LINE, &[("NCCL_IB_TIMEOUT", "soon")]).finish().expect(1).stderr;
    assert!(told.contains("NCCL_IB_TIMEOUT is \"soon\""), "{told}");
    run(ALLREDUCE, "--device soft --ranks 2 -b 8 -e 8 -n 1").expect(0);
}

#[test]
fn which_variables_won_is_said_once_at_info() {
    let (_held, port) = held();
    let info =
        [("NCCL_DEBUG", "INFO"), ("NCCL_IB_HCA", "^mlx5_3"), ("SLURM_PROCID", "0"), ("SLURM_NTASKS", "9")];
    for (rank, running) in launch(LINE, &[&torchrun(&port)[..], &info].concat()).into_iter().enumerate() {
        let told = running.finish().expect(0).stderr;
        let said = |text: &str| {
            told.lines().filter(|line| line.contains("NCCL INFO") && line.contains(text)).count()
        };
        assert_eq!(said(&format!("rank {rank} of 4 by RANK={rank} and WORLD_SIZE=4")), 1, "{told}");
        assert_eq!(said("NCCL_IB_HCA set by environment to ^mlx5_3"), 1, "{told}");
    }
    let quiet = run(ALLREDUCE, "--device soft --ranks 2 -b 8 -e 8 -n 1").expect(0);
    assert_eq!(quiet.stderr, "");
}
