//! Variables that cannot all be true, and such as only look so.

use super::*;

#[test]
fn contradictory_launcher_variables_are_quoted() {
    let torch =
        |rank, world| [("RANK", rank), ("WORLD_SIZE", world), ("MASTER_ADDR", "a"), ("MASTER_PORT", "1")];
    let told = error(&[&torch("2", "4"), OPEN_MPI].concat());
    assert!(told.starts_with("RANK=2 and OMPI_COMM_WORLD_RANK=1 contradict each other"), "{told}");
    let told = error(&[&torch("2", "8"), SRUN].concat());
    assert!(told.starts_with("WORLD_SIZE=8 and SLURM_STEP_NUM_TASKS=4 contradict"), "{told}");
    let told = error(&[SRUN, &[("WORLD_SIZE", "5")]].concat());
    assert!(told.starts_with("WORLD_SIZE=5 and SLURM_STEP_NUM_TASKS=4 contradict"), "{told}");
    let told = error(&[&torch("1", "3"), TRAINER].concat());
    assert!(told.starts_with("RANK=1 and PET_NODE_RANK=2 contradict"), "{told}");
    let told = error(
        &[&TRAINER[..5], &[("JOB_COMPLETION_INDEX", "1"), ("WORLD_SIZE", "3"), ("MASTER_ADDR", "a")]]
            .concat(),
    );
    assert!(told.starts_with("PET_NODE_RANK=2 and JOB_COMPLETION_INDEX=1 contradict"), "{told}");
    let told = error(&[&VOLCANO[..4], &[("VC_TASK_INDEX", "0"), ("HOSTNAME", "job-worker-1")]].concat());
    assert!(told.starts_with("HOSTNAME=job-worker-1 and VC_TASK_INDEX=0 contradict"), "{told}");
    // Equal numbers do not contradict each other, nor does a script that starts two ranks for each task of srun.
    assert_eq!(launch(&[&torch("1", "4"), OPEN_MPI].concat()).unwrap().unwrap().rank, 1);
    let nested = [&torch("5", "8")[..], &[("LOCAL_WORLD_SIZE", "2")], SRUN].concat();
    assert_eq!(launch(&nested).unwrap().unwrap().rank, 5);
    let of_another = [&torch("3", "8")[..], &[("LOCAL_WORLD_SIZE", "2")], SRUN].concat();
    assert!(error(&of_another).starts_with("WORLD_SIZE=8 and SLURM_STEP_NUM_TASKS=4"));
}

#[test]
fn two_names_of_one_number_that_differ_are_quoted() {
    let hydra = [("PMI_RANK", "1"), ("PMI_SIZE", "2"), ("PMI_JOBID", "7")];
    for (other, told) in [
        (("PMIX_SIZE", "3"), "PMI_SIZE=2 and PMIX_SIZE=3 contradict each other"),
        (("PMI_SIZE", "x"), "PMI_SIZE is \"x\""),
    ] {
        let said = error(&[&hydra[..], &[other]].concat());
        assert!(said.starts_with(told), "{said}");
    }
    let said = error(&[&hydra[..], &[("PMI_LOCAL_RANK", "0"), ("MPI_LOCALRANKID", "1")]].concat());
    assert!(said.starts_with("PMI_LOCAL_RANK=0 and MPI_LOCALRANKID=1 contradict"), "{said}");
    let said = error(&[&VOLCANO[..4], &[("VC_TASK_INDEX", "0"), ("VK_TASK_INDEX", "1")]].concat());
    assert!(said.starts_with("VC_TASK_INDEX=0 and VK_TASK_INDEX=1 contradict"), "{said}");
    assert!(launch(&[&hydra[..], &[("PMIX_SIZE", "2")]].concat()).is_ok());
}

/// An address that somebody sets goes before a launcher's, and is said to.
#[test]
fn an_address_that_does_not_count_is_named() {
    let address = [("MASTER_ADDR", "a"), ("MASTER_PORT", "1"), ("NCCL_COMM_ID", "b:2")];
    let lws = [("LWS_LEADER_ADDRESS", "leader.svc"), ("LWS_GROUP_SIZE", "2"), ("LWS_WORKER_INDEX", "1")];
    let report = |variables: &[(&str, &str)]| read(variables).unwrap().report();
    let count = |lines: &[String]| lines.iter().filter(|line| line.contains("does not count")).count();
    let both = report(&[&address[..], &lws].concat());
    assert!(both.contains(&"MASTER_ADDR=a is another address, and does not count".to_owned()), "{both:?}");
    assert_eq!(count(&both), 2);
    let one = report(&[&address[..2], &lws].concat());
    assert!(one.contains(&"LWS_LEADER_ADDRESS=leader.svc is another address, and does not count".to_owned()));
    let same = report(&[&lws[..], &[("MASTER_ADDR", "leader.svc"), ("MASTER_PORT", "1")]].concat());
    assert_eq!(count(&same), 0);
}

#[test]
fn ranks_of_this_host_that_cannot_be_are_quoted() {
    let torch = [("RANK", "1"), ("WORLD_SIZE", "2"), ("MASTER_ADDR", "a"), ("MASTER_PORT", "1")];
    let told = error(&[&torch[..], &[("LOCAL_WORLD_SIZE", "4")]].concat());
    assert!(told.starts_with("LOCAL_WORLD_SIZE=4 and WORLD_SIZE=2 contradict"), "{told}");
    let told = error(&[&torch[..], &[("LOCAL_RANK", "2"), ("LOCAL_WORLD_SIZE", "2")]].concat());
    assert!(told.starts_with("LOCAL_RANK=2") && told.contains("LOCAL_WORLD_SIZE=2"), "{told}");
}

/// Several ranks a pod, numbered by a script, where the pods have numbers, too.
#[test]
fn ranks_of_one_pod_agree_with_its_number() {
    let ranks = |rank| {
        let job = [("RANK", rank), ("WORLD_SIZE", "4"), ("LOCAL_WORLD_SIZE", "2"), ("MASTER_ADDR", "a")];
        [&job[..], &[("MASTER_PORT", "1")]].concat()
    };
    let pod = [("JOB_COMPLETION_INDEX", "1")];
    assert_eq!(launch(&[&ranks("3")[..], &pod].concat()).unwrap().unwrap().rank, 3);
    let told = error(&[&ranks("0")[..], &pod].concat());
    assert!(told.starts_with("RANK=0 and JOB_COMPLETION_INDEX=1 contradict"), "{told}");
    let trainer = [("PET_NNODES", "2"), ("PET_NODE_RANK", "1"), ("PET_NPROC_PER_NODE", "2")];
    assert_eq!(launch(&[&ranks("2")[..], &trainer].concat()).unwrap().unwrap().rank, 2);
    assert!(error(&trainer).contains("PET_NPROC_PER_NODE"));
}
