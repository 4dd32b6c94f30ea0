//! The environments that launchers make, as they make them; and those that nobody should make.

mod contradictions;
mod meet;
mod values;

use super::*;
use crate::env::EnvError;

/// The expected content of an environment.
struct Case {
    name: &'static str,
    variables: &'static [(&'static str, &'static str)],
    launcher: Launcher,
    /// Rank, number of ranks, and the same on this host.
    numbers: (u32, u32, Option<u32>, Option<u32>),
    meeting: Meeting,
}

fn read(variables: &[(&str, &str)]) -> Result<Environment, EnvError> {
    Environment::read(&variables.iter().copied().collect())
}

fn launch(variables: &[(&str, &str)]) -> Result<Option<Launch>, EnvError> {
    read(variables).map(|environment| environment.launch)
}

fn error(variables: &[(&str, &str)]) -> String {
    launch(variables).expect_err(&format!("{variables:?}")).to_string()
}

fn at(by: &str, host: &str, port: u16) -> Endpoint {
    Endpoint { host: host.to_owned(), port, by: by.to_owned() }
}

/// mpirun of Open MPI 4.1 with four processes on one host, as it sets them.
const OPEN_MPI: &[(&str, &str)] = &[
    ("OMPI_COMM_WORLD_RANK", "1"),
    ("OMPI_COMM_WORLD_SIZE", "4"),
    ("OMPI_COMM_WORLD_LOCAL_RANK", "1"),
    ("OMPI_COMM_WORLD_LOCAL_SIZE", "4"),
    ("PMIX_NAMESPACE", "143065089"),
    ("PMIX_RANK", "1"),
    ("PMIX_SERVER_URI2", "143065088.0;tcp4://127.0.0.1:51535"),
];

/// Task 2 of `srun -n 4 -N 1` within an allocation of two nodes.
const SRUN: &[(&str, &str)] = &[
    ("SLURM_PROCID", "2"),
    ("SLURM_LOCALID", "2"),
    ("SLURM_NODEID", "0"),
    ("SLURM_NTASKS", "4"),
    ("SLURM_STEP_NUM_TASKS", "4"),
    ("SLURM_STEP_NUM_NODES", "1"),
    ("SLURM_NNODES", "1"),
    ("SLURM_JOB_NUM_NODES", "2"),
    ("SLURM_JOB_ID", "4711"),
    ("SLURM_STEP_ID", "3"),
];

const TORCHRUN: &[(&str, &str)] = &[
    ("RANK", "5"),
    ("WORLD_SIZE", "8"),
    ("LOCAL_RANK", "1"),
    ("LOCAL_WORLD_SIZE", "4"),
    ("MASTER_ADDR", "node0"),
    ("MASTER_PORT", "29500"),
    ("TORCHELASTIC_RUN_ID", "none"),
];

const TRAINER: &[(&str, &str)] = &[
    ("PET_NNODES", "3"),
    ("PET_NPROC_PER_NODE", "auto"),
    ("PET_NODE_RANK", "2"),
    ("PET_MASTER_ADDR", "job-node-0-0.job"),
    ("PET_MASTER_PORT", "29400"),
    ("JOB_COMPLETION_INDEX", "2"),
];

const VOLCANO: &[(&str, &str)] = &[
    ("VC_MASTER_HOSTS", "job-master-0.job"),
    ("VC_WORKER_HOSTS", "job-worker-0.job,job-worker-1.job"),
    ("VC_MASTER_NUM", "1"),
    ("VC_WORKER_NUM", "2"),
    ("VC_TASK_INDEX", "1"),
    ("VK_TASK_INDEX", "1"),
    ("HOSTNAME", "job-worker-1"),
];

fn cases() -> Vec<Case> {
    torch().into_iter().chain(mpi()).chain(pods()).collect()
}

fn torch() -> Vec<Case> {
    vec![
        Case {
            name: "torchrun",
            variables: TORCHRUN,
            launcher: Launcher::Torchrun,
            numbers: (5, 8, Some(1), Some(4)),
            meeting: Meeting::BesideTorch(at("MASTER_ADDR", "node0", 29500)),
        },
        Case {
            name: "torch's variables by hand",
            variables: &[("RANK", "0"), ("WORLD_SIZE", "2"), ("MASTER_ADDR", "::1"), ("MASTER_PORT", "1024")],
            launcher: Launcher::TorchVariables,
            numbers: (0, 2, None, None),
            meeting: Meeting::Address(at("MASTER_ADDR", "::1", 1024)),
        },
        Case {
            name: "LocalRanks",
            variables: &[
                ("RDMA_PARENT_PID", "4711"),
                ("RDMA_JOB_TOKEN", "00112233445566778899aabbccddeeff"),
                ("RANK", "1"),
                ("WORLD_SIZE", "2"),
                ("MASTER_ADDR", "127.0.0.1"),
                ("MASTER_PORT", "40000"),
            ],
            launcher: Launcher::LocalRanks,
            numbers: (1, 2, None, None),
            meeting: Meeting::Served(at("MASTER_ADDR", "127.0.0.1", 40000)),
        },
    ]
}

fn mpi() -> Vec<Case> {
    vec![
        Case {
            name: "Open MPI 4",
            variables: OPEN_MPI,
            launcher: Launcher::OpenMpi,
            numbers: (1, 4, Some(1), Some(4)),
            meeting: Meeting::Namespace(Namespace::new(
                "pmix",
                &["143065089", "143065088.0;tcp4://127.0.0.1:51535"],
            )),
        },
        Case {
            name: "Open MPI 5 over two hosts",
            variables: &[
                ("OMPI_COMM_WORLD_RANK", "3"),
                ("OMPI_COMM_WORLD_SIZE", "4"),
                ("OMPI_COMM_WORLD_LOCAL_RANK", "1"),
                ("OMPI_COMM_WORLD_LOCAL_SIZE", "2"),
                ("PMIX_NAMESPACE", "prterun-node0-2711@1"),
                ("MASTER_ADDR", "node0"),
                ("MASTER_PORT", "4000"),
            ],
            launcher: Launcher::OpenMpi,
            numbers: (3, 4, Some(1), Some(2)),
            meeting: Meeting::Address(at("MASTER_ADDR", "node0", 4000)),
        },
        Case {
            name: "PMI, MPICH",
            variables: &[
                ("PMI_RANK", "1"),
                ("PMI_SIZE", "2"),
                ("MPI_LOCALRANKID", "0"),
                ("MPI_LOCALNRANKS", "1"),
                ("NCCL_COMM_ID", "10.0.0.1:4444"),
            ],
            launcher: Launcher::Pmi,
            numbers: (1, 2, Some(0), Some(1)),
            meeting: Meeting::Address(at("NCCL_COMM_ID", "10.0.0.1", 4444)),
        },
        Case {
            name: "PMIx with a size",
            variables: &[("PMIX_RANK", "1"), ("PMIX_SIZE", "2"), ("PMIX_NAMESPACE", "job1")],
            launcher: Launcher::Pmi,
            numbers: (1, 2, None, None),
            meeting: Meeting::Namespace(Namespace::new("pmix", &["job1"])),
        },
        Case {
            name: "Slurm",
            variables: SRUN,
            launcher: Launcher::Slurm,
            numbers: (2, 4, Some(2), Some(4)),
            meeting: Meeting::Namespace(Namespace::new("slurm", &["4711", "3"])),
        },
    ]
}

fn pods() -> Vec<Case> {
    vec![
        Case {
            name: "LeaderWorkerSet",
            variables: &[
                ("LWS_LEADER_ADDRESS", "vllm-0.vllm.default"),
                ("LWS_GROUP_SIZE", "4"),
                ("LWS_WORKER_INDEX", "3"),
            ],
            launcher: Launcher::LeaderWorkerSet,
            numbers: (3, 4, None, None),
            meeting: Meeting::Address(at("LWS_LEADER_ADDRESS", "vllm-0.vllm.default", 29500)),
        },
        Case {
            name: "Kubeflow Trainer",
            variables: TRAINER,
            launcher: Launcher::Trainer,
            numbers: (2, 3, None, None),
            meeting: Meeting::Address(at("PET_MASTER_ADDR", "job-node-0-0.job", 29400)),
        },
        Case {
            name: "Volcano",
            variables: VOLCANO,
            launcher: Launcher::Volcano,
            numbers: (2, 3, None, None),
            meeting: Meeting::Address(at("VC_MASTER_HOSTS", "job-master-0.job", 29500)),
        },
        Case {
            name: "Indexed Job",
            variables: &[
                ("JOB_COMPLETION_INDEX", "1"),
                ("WORLD_SIZE", "2"),
                ("MASTER_ADDR", "job-0.headless"),
                ("MASTER_PORT", "5000"),
            ],
            launcher: Launcher::IndexedJob,
            numbers: (1, 2, None, None),
            meeting: Meeting::Address(at("MASTER_ADDR", "job-0.headless", 5000)),
        },
    ]
}

#[test]
fn each_launcher_is_recognised() {
    for Case { name, variables, launcher, numbers, meeting } in cases() {
        let found = launch(variables).unwrap_or_else(|error| panic!("{name}: {error}")).expect(name);
        let Launch { rank, world, local_rank, local_world, .. } = found;
        assert_eq!((found.launcher, found.meeting), (launcher, meeting), "{name}");
        assert_eq!((rank, world, local_rank, local_world), numbers, "{name}");
    }
}

#[test]
fn empty_variables_change_nothing() {
    let all = [
        "RANK",
        "WORLD_SIZE",
        "MASTER_PORT",
        "OMPI_COMM_WORLD_RANK",
        "PMI_RANK",
        "SLURM_PROCID",
        "NCCL_IB_HCA",
        "LWS_LEADER_ADDRESS",
        "PET_NNODES",
        "VC_X_HOSTS",
        "JOB_COMPLETION_INDEX",
        "NCCL_COMM_ID",
        "RDMA_JOB_TOKEN",
        "NCCL_DEBUG",
        "NCCL_IB_TIMEOUT",
        "TORCHELASTIC_RUN_ID",
        "RDMA_PARENT_PID",
    ];
    assert_eq!(read(&all.map(|name| (name, ""))).unwrap(), read(&[]).unwrap());
    assert_eq!(launch(&[]).unwrap(), None);
    for Case { name, variables, .. } in cases() {
        let unset = all.into_iter().filter(|name| !variables.iter().any(|(set, _)| set == name));
        let with: Vec<_> = variables.iter().copied().chain(unset.map(|name| (name, ""))).collect();
        assert_eq!(launch(&with).unwrap(), launch(variables).unwrap(), "{name}");
    }
}

#[test]
fn of_launchers_within_each_other_the_innermost_wins() {
    // torchrun, once a node, by srun or mpirun, with another number for what they started.
    for outer in [SRUN, OPEN_MPI, TRAINER, VOLCANO] {
        let found = launch(&[TORCHRUN, outer].concat()).unwrap().unwrap();
        assert_eq!((found.launcher, found.rank, found.world), (Launcher::Torchrun, 5, 8));
    }
    // mpirun starts a daemon a node by srun, and its processes inherit the daemon's numbers.
    let found = launch(&[OPEN_MPI, SRUN].concat()).unwrap().unwrap();
    assert_eq!((found.launcher, found.rank), (Launcher::OpenMpi, 1));
    // MPICH does so too, while `srun --mpi=pmi2` is both at once.
    let hydra = [("PMI_RANK", "1"), ("PMI_SIZE", "2"), ("MPI_LOCALNRANKS", "2")];
    assert!(error(&[&hydra[..], SRUN].concat()).starts_with("PMI does not say by which name"));
    let both = [&[("PMI_RANK", "2"), ("PMI_SIZE", "4")], SRUN].concat();
    let found = launch(&both).unwrap().unwrap();
    assert_eq!(found.meeting, Meeting::Namespace(Namespace::new("slurm", &["4711", "3"])));
    assert_eq!(found.job.as_deref(), Some("4711.3"));
    let lines = read(&[OPEN_MPI, SRUN].concat()).unwrap().report();
    assert!(
        lines.iter().any(|line| line.contains("SLURM_PROCID=2 is another numbering: Open MPI")),
        "{lines:?}"
    );
}

/// `srun --preserve-env` leaves the allocation's numbers beside the step's.
#[test]
fn a_step_of_slurm_has_its_own_numbers() {
    let allocation = [("SLURM_NTASKS", "8"), ("SLURM_NNODES", "2"), ("SLURM_STEP_NUM_TASKS", "4")];
    let found = launch(&[SRUN, &allocation].concat()).unwrap().unwrap();
    assert_eq!((found.rank, found.world), (2, 4));
    assert_eq!(found.meeting, Meeting::Namespace(Namespace::new("slurm", &["4711", "3"])));
}

#[test]
fn an_allocation_of_slurm_is_no_rank() {
    let batch = [
        ("SLURM_PROCID", "0"),
        ("SLURM_NTASKS", "4"),
        ("SLURM_JOB_ID", "4711"),
        ("SLURM_JOB_NUM_NODES", "2"),
    ];
    assert_eq!(launch(&batch).unwrap(), None);
    let shell = [&batch[..], &[("SLURM_STEP_ID", "4294967290")]].concat();
    assert_eq!(launch(&shell).unwrap(), None);
    let found = launch(&[OPEN_MPI, &batch].concat()).unwrap().unwrap();
    assert_eq!((found.launcher, found.world), (Launcher::OpenMpi, 4));
    assert!(error(&[("SLURM_PROCID", "1"), ("SLURM_NTASKS", "4")]).contains("SLURM_STEP_ID is not"));
}

#[test]
fn steps_of_one_slurm_job_have_jobs_of_their_own() {
    let at_port = [("MASTER_ADDR", "node0"), ("MASTER_PORT", "4000")];
    let step = |step| {
        let mut variables = SRUN.to_vec();
        variables.retain(|(name, _)| *name != "SLURM_STEP_ID");
        variables.push(("SLURM_STEP_ID", step));
        launch(&[&variables[..], &at_port].concat()).unwrap().unwrap().job
    };
    assert_eq!((step("0").as_deref(), step("1").as_deref()), (Some("4711.0"), Some("4711.1")));
}

#[test]
fn ranks_that_were_numbered_by_hand_within_a_step_are_of_that_steps_job() {
    let by_hand = [("RANK", "0"), ("WORLD_SIZE", "1"), ("MASTER_ADDR", "node0"), ("MASTER_PORT", "4000")];
    assert_eq!(launch(&by_hand).unwrap().unwrap().job, None);
    let step =
        [("SLURM_PROCID", "0"), ("SLURM_NTASKS", "1"), ("SLURM_JOB_ID", "4711"), ("SLURM_STEP_ID", "2")];
    let found = launch(&[&by_hand[..], &step].concat()).unwrap().unwrap();
    assert_eq!((found.launcher, found.job.as_deref()), (Launcher::TorchVariables, Some("4711.2")));
}

#[test]
fn what_is_missing_is_named() {
    let told = error(&[("RANK", "1"), ("MASTER_ADDR", "a"), ("MASTER_PORT", "1")]);
    assert!(told.starts_with("RANK is set and WORLD_SIZE is not"), "{told}");
    assert!(error(&[("WORLD_SIZE", "2")]).starts_with("WORLD_SIZE is set and RANK is not"));
    let told = error(&[("RANK", "1"), ("WORLD_SIZE", "2")]);
    assert!(told.starts_with("RANK is set and MASTER_ADDR is not"), "{told}");
    let told = error(&[("RANK", "1"), ("WORLD_SIZE", "2"), ("MASTER_ADDR", "a")]);
    assert!(told.starts_with("MASTER_ADDR is set and MASTER_PORT is not"), "{told}");
    assert!(error(&[("OMPI_COMM_WORLD_RANK", "1")]).contains("OMPI_COMM_WORLD_SIZE is not"));
    assert!(
        error(&[("LWS_LEADER_ADDRESS", "a"), ("LWS_GROUP_SIZE", "2")]).contains("LWS_WORKER_INDEX is not")
    );
    assert!(error(&[("JOB_COMPLETION_INDEX", "0"), ("WORLD_SIZE", "2")]).contains("MASTER_ADDR is not"));
    let told = error(&[("PMIX_RANK", "1"), ("PMIX_NAMESPACE", "prterun-node0-1@1")]);
    assert!(told.starts_with("PMIX_RANK is set and PMIX_SIZE is not"), "{told}");
    assert_eq!(launch(&[("MASTER_ADDR", "10.0.0.1")]).unwrap(), None);
    assert_eq!(launch(&[("JOB_COMPLETION_INDEX", "3")]).unwrap(), None);
}

#[test]
fn several_hosts_without_an_address_say_which_variable_to_set() {
    let mut two_hosts = OPEN_MPI.to_vec();
    two_hosts.retain(|(name, _)| *name != "OMPI_COMM_WORLD_LOCAL_SIZE");
    two_hosts.push(("OMPI_COMM_WORLD_LOCAL_SIZE", "2"));
    let mut nodes = SRUN.to_vec();
    nodes.retain(|(name, _)| !name.contains("NODES"));
    nodes.push(("SLURM_STEP_NUM_NODES", "2"));
    for (variables, launcher) in [(two_hosts, "Open MPI"), (nodes, "Slurm")] {
        let told = error(&variables);
        assert!(
            told.starts_with(launcher) && told.contains("set MASTER_ADDR") && told.contains("MASTER_PORT"),
            "{told}"
        );
        let address = [("MASTER_ADDR", "node0"), ("MASTER_PORT", "29500")];
        let found = launch(&[&variables[..], &address].concat()).unwrap().unwrap();
        assert_eq!(found.meeting, Meeting::Address(at("MASTER_ADDR", "node0", 29500)));
        assert!(error(&[&variables[..], &address[..1]].concat()).contains("MASTER_PORT is not"));
    }
}
