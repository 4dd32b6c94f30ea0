//! The variables of Slurm for a task of srun.
//!
//! A batch script and a shell of salloc have variables of the allocation, too, but are no rank of a step.

use super::claim::{Claim, Hosts};
use super::names::{
    SLURM_JOB_ID, SLURM_JOB_NUM_NODES, SLURM_LOCALID, SLURM_NNODES, SLURM_NODEID, SLURM_NTASKS, SLURM_PROCID,
    SLURM_STEP_ID, SLURM_STEP_NUM_NODES, SLURM_STEP_NUM_TASKS, SLURM_STEP_TASKS_PER_NODE,
};
use super::reader::{Number, Reader, invalid, parse};
use super::{Launcher, Namespace};
use crate::env::error::EnvErrorKind;

/// The first of the special step numbers: the batch script, the interactive shell, and the like.
const STEP_SPECIAL_MIN: u32 = 0xffff_fff0;
/// The most nodes in a list of tasks per node.
const NODES_MAX: u32 = super::reader::WORLD_MAX;

pub(super) fn claim(reader: &Reader<'_>) -> Result<Option<Claim>, EnvErrorKind> {
    let Some(rank) = reader.rank(&[SLURM_PROCID])? else { return Ok(None) };
    let step = match reader.number(SLURM_STEP_ID, 0..=u32::MAX)? {
        Some(step) if step.value < STEP_SPECIAL_MIN => step,
        // A batch script: it is process 0, whatever the number of tasks of its allocation is.
        _ if rank.value == 0 => return Ok(None),
        Some(step) => return Err(invalid(step.setting)),
        None => return Err(EnvErrorKind::Missing { set: SLURM_PROCID.to_owned(), missing: SLURM_STEP_ID }),
    };
    // SLURM_NTASKS comes second, because under `srun --preserve-env` it keeps the allocation's number.
    let Some(world) = reader.world(&[reader.first_set([SLURM_STEP_NUM_TASKS, SLURM_NTASKS])])? else {
        return Err(EnvErrorKind::Missing { set: SLURM_PROCID.to_owned(), missing: SLURM_NTASKS });
    };
    let job = reader.text(SLURM_JOB_ID)?;
    let namespace = job.as_ref().map(|job| Namespace::new("slurm", &[job, &step.setting.value]));
    // With the step's number, because steps of one job may run at once and would meet at the same port.
    let job = job.map(|job| format!("{job}.{}", step.setting.value));
    let hosts = hosts(reader)?;
    let local_world = match hosts {
        Hosts::One => Some(world.value),
        _ => tasks_here(reader)?,
    };
    let local_rank = reader.rank(&[SLURM_LOCALID])?.map(|rank| rank.value);
    let claim = Claim::new(Launcher::Slurm, rank, world)?;
    Ok(Some(Claim { local_rank, local_world, hosts, job, namespace, ..claim }))
}

/// The number of hosts of the step. In an allocation of one node, the step has no other.
fn hosts(reader: &Reader<'_>) -> Result<Hosts, EnvErrorKind> {
    let step = reader.number(reader.first_set([SLURM_STEP_NUM_NODES, SLURM_NNODES]), 1..=NODES_MAX)?;
    let job = reader.number(SLURM_JOB_NUM_NODES, 1..=NODES_MAX)?;
    let is_one = |nodes: &Option<Number>| nodes.as_ref().is_some_and(|nodes| nodes.value == 1);
    Ok(match &step {
        _ if is_one(&step) || is_one(&job) => Hosts::One,
        Some(_) => Hosts::Several,
        None => Hosts::Unknown,
    })
}

/// The number of tasks on this node, from a list such as `4(x2),3`.
fn tasks_here(reader: &Reader<'_>) -> Result<Option<u32>, EnvErrorKind> {
    let (Some(list), Some(node)) =
        (reader.setting(SLURM_STEP_TASKS_PER_NODE)?, reader.number(SLURM_NODEID, 0..=NODES_MAX)?)
    else {
        return Ok(None);
    };
    let mut before = 0_u32;
    for entry in list.value.split(',') {
        let (tasks, nodes) = match entry.split_once("(x") {
            Some((tasks, nodes)) => (parse(tasks), nodes.strip_suffix(')').and_then(parse)),
            None => (parse(entry), Some(1)),
        };
        let (Some(tasks), Some(nodes)) = (tasks, nodes) else { return Err(invalid(list)) };
        before = before.saturating_add(nodes);
        if node.value < before {
            return Ok(Some(tasks));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::env::Variables;

    #[test]
    fn tasks_of_a_node_are_read_from_the_list() {
        let here = |list: &str, node: &str| {
            let variables: Variables =
                [(SLURM_STEP_TASKS_PER_NODE, list), (SLURM_NODEID, node)].into_iter().collect();
            tasks_here(&Reader::new(&variables))
        };
        for (node, tasks) in [("0", 4), ("1", 4), ("2", 3), ("3", 8)] {
            assert_eq!(here("4(x2),3,8", node).unwrap(), Some(tasks), "node {node}");
        }
        assert_eq!(here("4(x2),3,8", "4").unwrap(), None);
        for list in ["4(x", "4(x)", "x", "4,", "4(y2)", "4(x2)3"] {
            assert!(matches!(here(list, "7"), Err(EnvErrorKind::Invalid { .. })), "{list}");
        }
    }
}
