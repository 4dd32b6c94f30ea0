//! The names of all variables that are read, by the launcher that sets them; `table` says what each means.

pub(super) const RANK: &str = "RANK";
pub(super) const WORLD_SIZE: &str = "WORLD_SIZE";
pub(super) const LOCAL_RANK: &str = "LOCAL_RANK";
pub(super) const LOCAL_WORLD_SIZE: &str = "LOCAL_WORLD_SIZE";
pub(super) const MASTER_ADDR: &str = "MASTER_ADDR";
pub(super) const MASTER_PORT: &str = "MASTER_PORT";
/// The run's name, which only torchrun sets. The other variables are set by many, so this one tells torchrun from them.
pub(super) const TORCHELASTIC_RUN_ID: &str = "TORCHELASTIC_RUN_ID";

/// The pid of the parent, which serves the store, and with which the ranks end.
pub(super) const RDMA_PARENT_PID: &str = "RDMA_PARENT_PID";
/// The job's token, a secret of its processes.
pub(super) const RDMA_JOB_TOKEN: &str = "RDMA_JOB_TOKEN";

pub(super) const OMPI_COMM_WORLD_RANK: &str = "OMPI_COMM_WORLD_RANK";
pub(super) const OMPI_COMM_WORLD_SIZE: &str = "OMPI_COMM_WORLD_SIZE";
pub(super) const OMPI_COMM_WORLD_LOCAL_RANK: &str = "OMPI_COMM_WORLD_LOCAL_RANK";
pub(super) const OMPI_COMM_WORLD_LOCAL_SIZE: &str = "OMPI_COMM_WORLD_LOCAL_SIZE";
/// PMIx's name of the job: a number in Open MPI 4, the host and process of mpirun in 5.
pub(super) const PMIX_NAMESPACE: &str = "PMIX_NAMESPACE";
/// The address of the job's daemon on this host. It tells apart jobs that have the same number by chance.
pub(super) const PMIX_SERVER_URI2: &str = "PMIX_SERVER_URI2";

pub(super) const PMI_RANK: &str = "PMI_RANK";
pub(super) const PMI_SIZE: &str = "PMI_SIZE";
pub(super) const PMI_LOCAL_RANK: &str = "PMI_LOCAL_RANK";
pub(super) const PMI_LOCAL_SIZE: &str = "PMI_LOCAL_SIZE";
pub(super) const MPI_LOCALRANKID: &str = "MPI_LOCALRANKID";
pub(super) const MPI_LOCALNRANKS: &str = "MPI_LOCALNRANKS";
pub(super) const PMI_JOBID: &str = "PMI_JOBID";
pub(super) const PMIX_RANK: &str = "PMIX_RANK";
pub(super) const PMIX_SIZE: &str = "PMIX_SIZE";

pub(super) const SLURM_PROCID: &str = "SLURM_PROCID";
pub(super) const SLURM_LOCALID: &str = "SLURM_LOCALID";
pub(super) const SLURM_NODEID: &str = "SLURM_NODEID";
/// The number of tasks: the step's within a step, the allocation's elsewhere.
pub(super) const SLURM_NTASKS: &str = "SLURM_NTASKS";
pub(super) const SLURM_STEP_NUM_TASKS: &str = "SLURM_STEP_NUM_TASKS";
pub(super) const SLURM_STEP_NUM_NODES: &str = "SLURM_STEP_NUM_NODES";
pub(super) const SLURM_NNODES: &str = "SLURM_NNODES";
pub(super) const SLURM_JOB_NUM_NODES: &str = "SLURM_JOB_NUM_NODES";
pub(super) const SLURM_STEP_TASKS_PER_NODE: &str = "SLURM_STEP_TASKS_PER_NODE";
pub(super) const SLURM_JOB_ID: &str = "SLURM_JOB_ID";
pub(super) const SLURM_STEP_ID: &str = "SLURM_STEP_ID";

pub(super) const LWS_LEADER_ADDRESS: &str = "LWS_LEADER_ADDRESS";
pub(super) const LWS_GROUP_SIZE: &str = "LWS_GROUP_SIZE";
pub(super) const LWS_WORKER_INDEX: &str = "LWS_WORKER_INDEX";

pub(super) const PET_NODE_RANK: &str = "PET_NODE_RANK";
pub(super) const PET_NNODES: &str = "PET_NNODES";
pub(super) const PET_NPROC_PER_NODE: &str = "PET_NPROC_PER_NODE";
pub(super) const PET_MASTER_ADDR: &str = "PET_MASTER_ADDR";
pub(super) const PET_MASTER_PORT: &str = "PET_MASTER_PORT";

/// The index of the pod, which is the rank.
pub(super) const JOB_COMPLETION_INDEX: &str = "JOB_COMPLETION_INDEX";

pub(super) const VC_TASK_INDEX: &str = "VC_TASK_INDEX";
pub(super) const VK_TASK_INDEX: &str = "VK_TASK_INDEX";
/// Prefix and suffix of the variables that list hosts; the task's name is between them, in capitals.
pub(super) const HOSTS: (&str, &str) = ("VC_", "_HOSTS");
/// The name that Kubernetes gives the pod, which Volcano's lists contain, too.
pub(super) const HOSTNAME: &str = "HOSTNAME";

pub(super) const NCCL_IB_HCA: &str = "NCCL_IB_HCA";
pub(super) const NCCL_IB_GID_INDEX: &str = "NCCL_IB_GID_INDEX";
pub(super) const NCCL_IB_ROCE_VERSION_NUM: &str = "NCCL_IB_ROCE_VERSION_NUM";
pub(super) const NCCL_IB_ADDR_FAMILY: &str = "NCCL_IB_ADDR_FAMILY";
pub(super) const NCCL_IB_DISABLE: &str = "NCCL_IB_DISABLE";
pub(super) const NCCL_IB_TIMEOUT: &str = "NCCL_IB_TIMEOUT";
pub(super) const NCCL_IB_RETRY_CNT: &str = "NCCL_IB_RETRY_CNT";
pub(super) const NCCL_IB_TC: &str = "NCCL_IB_TC";
pub(super) const NCCL_IB_SL: &str = "NCCL_IB_SL";
pub(super) const NCCL_IB_QPS_PER_CONNECTION: &str = "NCCL_IB_QPS_PER_CONNECTION";
pub(super) const NCCL_SOCKET_IFNAME: &str = "NCCL_SOCKET_IFNAME";
pub(super) const NCCL_DEBUG: &str = "NCCL_DEBUG";
pub(super) const NCCL_HOSTID: &str = "NCCL_HOSTID";
pub(super) const NCCL_ALGO: &str = "NCCL_ALGO";
pub(super) const RDMA_PEER_TIMEOUT: &str = "RDMA_PEER_TIMEOUT";
pub(super) const RDMA_TUNING_FILE: &str = "RDMA_TUNING_FILE";
pub(super) const NCCL_COMM_ID: &str = "NCCL_COMM_ID";
