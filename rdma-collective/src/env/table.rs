//! The table of all variables that are read. Errors quote the expected values from it, and `docs/environment.md` is
//! made of it.

use std::fmt::Write;

use super::names::*;

/// A row of the table.
#[derive(Debug)]
pub(super) struct Variable {
    pub(super) name: &'static str,
    /// The launcher or the people that set the variable.
    by: &'static str,
    /// The meaning of the variable.
    meaning: &'static str,
    /// The values that the variable takes, as errors quote them.
    values: &'static str,
    /// The effect if the variable is not set.
    default: &'static str,
    /// Whether the variable gives a rank of this process.
    pub(super) gives_rank: bool,
}

const fn row(
    name: &'static str,
    by: &'static str,
    meaning: &'static str,
    values: &'static str,
    default: &'static str,
) -> Variable {
    Variable { name, by, meaning, values, default, gives_rank: false }
}

const fn rank(
    name: &'static str,
    by: &'static str,
    meaning: &'static str,
    default: &'static str,
) -> Variable {
    Variable { name, by, meaning, values: A_RANK, default, gives_rank: true }
}

const A_RANK: &str = "a number from 0 to 65535";
const A_COUNT: &str = "a number from 1 to 65536";
const A_PORT: &str = "a port from 1 to 65535";
const A_HOST: &str = "a host's name or address";
const A_NAME: &str = "a name";
const NODES: &str = "a number from 1 to 65536";
const NODE: &str = "a number from 0 to 65536";
const NEEDED: &str = "needed beside the rank";
const UNKNOWN: &str = "not known";
const TASK_HOSTS: &str = "VC_TASK_HOSTS";

const TORCH: &str = "torchrun, LocalRanks, people";
const OPEN_MPI: &str = "Open MPI's mpirun";
const PMI: &str = "MPICH, Intel MPI, Cray, `srun --mpi=pmi2`";
const SLURM: &str = "srun";
const LWS: &str = "LeaderWorkerSet";
const TRAINER: &str = "Kubeflow Trainer";
const VOLCANO: &str = "Volcano";
const PEOPLE: &str = "people";

/// All variables, the innermost launcher first: of two launchers, the first wins.
pub(super) const VARIABLES: &[Variable] = &[
    row(
        RDMA_PARENT_PID,
        "LocalRanks",
        "the process that serves the store, and with which the rank ends",
        "a process",
        "another launcher started the rank",
    ),
    row(
        RDMA_JOB_TOKEN,
        "LocalRanks, people",
        "the job's token, a secret that only its processes know",
        "32 hexadecimal digits",
        "derived, no secret: see above",
    ),
    row(
        TORCHELASTIC_RUN_ID,
        "torchrun",
        "torchrun started this process; the run, which tells jobs apart",
        A_NAME,
        "not torchrun's",
    ),
    rank(RANK, TORCH, "the rank", "another launcher's"),
    row(WORLD_SIZE, TORCH, "how many ranks there are", A_COUNT, NEEDED),
    row(LOCAL_RANK, TORCH, "the rank among those of this host", A_RANK, UNKNOWN),
    row(LOCAL_WORLD_SIZE, TORCH, "how many ranks this host has", A_COUNT, UNKNOWN),
    row(
        NCCL_COMM_ID,
        PEOPLE,
        "where the ranks meet; wins over all that follows",
        "host:port or [address]:port",
        "MASTER_ADDR and MASTER_PORT",
    ),
    row(
        MASTER_ADDR,
        TORCH,
        "the host of rank 0",
        A_HOST,
        "the launcher's own, or the job's name on one host",
    ),
    row(
        MASTER_PORT,
        TORCH,
        "the port where the ranks meet, or from which theirs is derived",
        A_PORT,
        "29500 where the launcher gives a host alone",
    ),
    rank(OMPI_COMM_WORLD_RANK, OPEN_MPI, "the rank", "another launcher's"),
    row(OMPI_COMM_WORLD_SIZE, OPEN_MPI, "how many ranks there are", A_COUNT, NEEDED),
    row(OMPI_COMM_WORLD_LOCAL_RANK, OPEN_MPI, "the rank among those of this host", A_RANK, UNKNOWN),
    row(
        OMPI_COMM_WORLD_LOCAL_SIZE,
        OPEN_MPI,
        "how many ranks this host has",
        A_COUNT,
        "not known: taken to be all",
    ),
    row(
        PMIX_NAMESPACE,
        "PMIx",
        "the job's name, by which ranks of one host meet",
        A_NAME,
        "an address is needed",
    ),
    row(
        PMIX_SERVER_URI2,
        "PMIx",
        "part of that name: tells apart jobs of one number",
        A_NAME,
        "the name alone",
    ),
    rank(PMI_RANK, PMI, "the rank", "another launcher's"),
    row(PMI_SIZE, PMI, "how many ranks there are", A_COUNT, NEEDED),
    row(PMI_LOCAL_RANK, PMI, "the rank among those of this host", A_RANK, "MPI_LOCALRANKID"),
    row(PMI_LOCAL_SIZE, PMI, "how many ranks this host has", A_COUNT, "MPI_LOCALNRANKS"),
    row(MPI_LOCALRANKID, PMI, "as PMI_LOCAL_RANK", A_RANK, UNKNOWN),
    row(MPI_LOCALNRANKS, PMI, "as PMI_LOCAL_SIZE", A_COUNT, UNKNOWN),
    row(
        PMI_JOBID,
        PMI,
        "the job's name, by which ranks of one host meet",
        A_NAME,
        "Slurm's step, where it has the same ranks",
    ),
    rank(PMIX_RANK, "PMIx", "the rank, where PMIX_SIZE or PMI_SIZE is set", "another launcher's"),
    row(
        PMIX_SIZE,
        "launchers with PMIx",
        "how many ranks there are",
        A_COUNT,
        "PMIx itself has no variable for it",
    ),
    rank(SLURM_PROCID, SLURM, "the rank, within a step", "another launcher's"),
    row(
        SLURM_STEP_ID,
        SLURM,
        "this is a task of srun; names the step",
        "the number of a step of srun",
        "a batch script: no rank",
    ),
    row(SLURM_STEP_NUM_TASKS, SLURM, "how many ranks there are", A_COUNT, "SLURM_NTASKS"),
    row(SLURM_NTASKS, SLURM, "how many ranks there are", A_COUNT, NEEDED),
    row(SLURM_LOCALID, SLURM, "the rank among those of this host", A_RANK, UNKNOWN),
    row(SLURM_STEP_NUM_NODES, SLURM, "whether all ranks are on one host", NODES, "SLURM_NNODES"),
    row(SLURM_NNODES, SLURM, "whether all ranks are on one host", NODES, "not known: taken to be one"),
    row(SLURM_JOB_NUM_NODES, SLURM, "all ranks are on one host when it is 1", NODES, UNKNOWN),
    row(SLURM_STEP_TASKS_PER_NODE, SLURM, "how many ranks this host has", "a list such as 4(x2),3", UNKNOWN),
    row(SLURM_NODEID, SLURM, "which entry of that list is this host's", NODE, UNKNOWN),
    row(
        SLURM_JOB_ID,
        SLURM,
        "with the step: the name by which ranks of one host meet",
        A_NAME,
        "an address is needed",
    ),
    row(LWS_LEADER_ADDRESS, LWS, "the host of rank 0", A_HOST, "no rank of a LeaderWorkerSet"),
    row(LWS_GROUP_SIZE, LWS, "how many ranks there are, one a pod", A_COUNT, NEEDED),
    rank(LWS_WORKER_INDEX, LWS, "the rank", "needed beside LWS_LEADER_ADDRESS"),
    rank(PET_NODE_RANK, TRAINER, "the rank, one a pod", "no rank of a Trainer"),
    row(PET_NNODES, TRAINER, "how many ranks there are", A_COUNT, NEEDED),
    row(
        PET_NPROC_PER_NODE,
        TRAINER,
        "processes a pod: more than one needs torchrun",
        "1, auto, cpu, gpu or xpu",
        "1",
    ),
    row(PET_MASTER_ADDR, TRAINER, "the host of rank 0", A_HOST, "MASTER_ADDR"),
    row(PET_MASTER_PORT, TRAINER, "the port where the ranks meet", A_PORT, "29500"),
    row(
        TASK_HOSTS,
        VOLCANO,
        "one for each TASK: its hosts; the ranks are all of them, tasks by name",
        "hosts with commas between them",
        "no rank of a Volcano job",
    ),
    rank(VC_TASK_INDEX, VOLCANO, "the rank, where there is one task", "VK_TASK_INDEX"),
    rank(VK_TASK_INDEX, "Volcano, older", "as VC_TASK_INDEX", "no rank of a Volcano job"),
    row(
        HOSTNAME,
        "Kubernetes",
        "which of Volcano's hosts this is, where there are several tasks",
        A_HOST,
        "an error where it is needed",
    ),
    rank(JOB_COMPLETION_INDEX, "Indexed Job", "the rank, where WORLD_SIZE or MASTER_ADDR is set", "no rank"),
    row(
        NCCL_IB_HCA,
        PEOPLE,
        "which RDMA devices: names with that beginning, `=` whole names, `^` all other names; a port after `:`",
        "a list such as mlx5_0:1,mlx5_bond_0, =mlx5_1 or ^mlx5_2",
        "all",
    ),
    row(
        NCCL_IB_GID_INDEX,
        PEOPLE,
        "the GID to send from",
        "a number from 0 to 255, or -1 to have it chosen",
        "the first that is routable, IPv4 before IPv6",
    ),
    row(NCCL_IB_ROCE_VERSION_NUM, PEOPLE, "the type of GID on Ethernet", "1 or 2", "2"),
    row(
        NCCL_IB_ADDR_FAMILY,
        PEOPLE,
        "the address family of the GID",
        "AF_INET or AF_INET6",
        "either, IPv4 first",
    ),
    row(NCCL_IB_DISABLE, PEOPLE, "1: the software device even where there are others", "0 or 1", "0"),
    row(
        NCCL_IB_TIMEOUT,
        PEOPLE,
        "the time before a request is sent again: 4.096 us times 2 to the power of the value",
        "a number from 1 to 31",
        "17; 14 on soft-RoCE",
    ),
    row(NCCL_IB_RETRY_CNT, PEOPLE, "how often a request is sent again", "a number from 0 to 7", "7"),
    row(NCCL_IB_TC, PEOPLE, "the IP traffic class", "a number from 0 to 255", "0"),
    row(NCCL_IB_SL, PEOPLE, "the InfiniBand service level", "a number from 0 to 15", "0"),
    row(
        NCCL_IB_QPS_PER_CONNECTION,
        PEOPLE,
        "queue pairs to a peer on each device, 8 at most in all: the lanes of a communicator; the same on all ranks",
        "a number from 1 to 128",
        "1",
    ),
    row(
        NCCL_SOCKET_IFNAME,
        PEOPLE,
        "at which network interface the software device answers: a list as NCCL_IB_HCA without ports",
        "a list such as eth0,ib, =eth0 or ^docker,lo",
        "the one by which the ranks meet",
    ),
    row(
        NCCL_HOSTID,
        PEOPLE,
        "what tells this host from others: ranks with different ones share no memory unless the mapped wire is asked for, and count as of several hosts",
        "a name",
        "the boot of its kernel",
    ),
    row(
        NCCL_ALGO,
        PEOPLE,
        "which algorithms operations may take; the same on all ranks",
        "a list of ring, tree, flat, pieces, direct, pairs, bruck and hierarchical, in any case, such as ring,direct or ^pieces, or \
         several such as ring;allreduce:tree; others of NCCL's are ignored",
        "all",
    ),
    row(
        RDMA_PEER_TIMEOUT,
        PEOPLE,
        "after how many seconds of silence a peer counts as lost, while an operation waits for it",
        "a number from 1 to 3600",
        "3",
    ),
    row(
        RDMA_TUNING_FILE,
        PEOPLE,
        "which algorithm an operation takes, by collective, ranks, peers and bytes; the same on all ranks",
        "a file as `tune` writes it",
        "a table that is built in",
    ),
    row(NCCL_DEBUG, PEOPLE, "the level of the log", "NONE, VERSION, WARN, INFO, ABORT or TRACE", "NONE"),
];

/// The values that `name` takes; `None` for a name that is not in the table.
pub(super) fn expected(name: &str) -> Option<&'static str> {
    let of_task = name.starts_with(HOSTS.0) && name.ends_with(HOSTS.1);
    let name = if of_task { TASK_HOSTS } else { name };
    VARIABLES.iter().find(|variable| variable.name == name).map(|variable| variable.values)
}

/// The table of all variables as Markdown. `docs/environment.md` contains it, and a test compares the two.
///
/// [`Environment`](crate::env::Environment) and [`NcclOptions`](crate::env::NcclOptions) read these variables.
#[must_use]
pub fn variables_table() -> String {
    let mut text =
        "| variable | set by | meaning | values | when it is not set |\n|---|---|---|---|---|\n".to_owned();
    for Variable { name, by, meaning, values, default, .. } in VARIABLES {
        let name = name.replace(TASK_HOSTS, "VC_*TASK*_HOSTS");
        // Writing to a string does not fail.
        let _ = writeln!(text, "| `{name}` | {by} | {meaning} | {values} | {default} |");
    }
    text
}
