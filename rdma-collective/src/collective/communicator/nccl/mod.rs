//! NCCL's variables as options of a communicator.
//!
//! Reads `NCCL_ALGO`, `NCCL_IB_QPS_PER_CONNECTION` and the tuning file. [`env`](crate::env) finds the variables; that
//! module knows nothing of collectives.

use super::lanes::LANES_MAX;
use super::tuning::{Tuning, TuningError, TuningErrorKind};
use super::{Algorithms, CommunicatorOptions};
use crate::env::NcclOptions;

/// Names in `NCCL_ALGO` that only NCCL has: algorithms for GPUs or for switches that reduce, and operations without a
/// choice.
///
/// They are ignored with a warning, so that an environment that was made for GPUs also works here.
const NCCL_ONLY: [&str; 10] = [
    "CollNet",
    "CollNetDirect",
    "CollNetChain",
    "NVLS",
    "NVLSTree",
    "PAT",
    "Send",
    "Recv",
    "SendRecv",
    "AllGatherV",
];

impl NcclOptions {
    /// Sets the options of a communicator that the environment asks for; the others stay as they are.
    ///
    /// Reads the tuning file now, and logs at WARN which names of `NCCL_ALGO` are left out because only NCCL has them.
    ///
    /// # Errors
    ///
    /// [`TuningError`]: `NCCL_ALGO` names no algorithm, or the tuning file cannot be read, is damaged, or is of another
    /// version.
    ///
    /// ```
    /// use rdma_collective::collective::CommunicatorOptions;
    /// use rdma_collective::env::{NcclOptions, Variables};
    ///
    /// let nccl = NcclOptions::read(&Variables::from_iter([("NCCL_ALGO", "ring,direct")]))?;
    /// let mut options = CommunicatorOptions::default();
    /// nccl.apply_to_communicator(&mut options)?;
    /// assert_eq!(options.algorithms.to_string(), "ring,direct");
    /// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
    /// ```
    pub fn apply_to_communicator(&self, options: &mut CommunicatorOptions) -> Result<(), TuningError> {
        if let Some(path) = &self.tuning_file {
            options.tuning = Tuning::read(path)?;
        }
        if let Some(value) = &self.algo {
            let (algorithms, left_out) = Algorithms::read(value, &NCCL_ONLY)
                .map_err(|source| TuningErrorKind::Algorithms { value: value.clone(), source })?;
            options.algorithms = algorithms;
            if !left_out.is_empty() {
                let names = left_out.join(", ");
                crate::log::warn!(
                    "NCCL_ALGO: ignored algorithms of NCCL alone: {names}; allowed: {algorithms}"
                );
            }
        }
        if let Some(queue_pairs) = self.qps_per_connection {
            options.lanes = queue_pairs.min(LANES_MAX);
            if queue_pairs > LANES_MAX {
                crate::log::warn!(
                    "NCCL_IB_QPS_PER_CONNECTION is {queue_pairs}; {LANES_MAX} are used, which is the most"
                );
            }
        }
        if self.host_id.is_some() {
            options.host_id.clone_from(&self.host_id);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
