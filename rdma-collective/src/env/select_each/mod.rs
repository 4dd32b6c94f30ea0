//! The choice of several devices for one process, each by name.

use rdma_core::SoftOptions;

use super::{NcclOptions, RefusedDevice, SelectedDevice};
use crate::env::SelectError;

impl NcclOptions {
    /// Opens each of the devices called `wanted`, in that order, like [`select`](Self::select).
    ///
    /// A NIC that is named twice is opened twice. The software device is a new one each time: number `n` (from 0) is
    /// made with `soft(n)`, and can be named `soft` or by the name in those options. The software devices take the
    /// interfaces of `NCCL_SOCKET_IFNAME` in turn, so that each has a network of its own. The devices that were not
    /// chosen are in [`refused`](SelectedDevice::refused) of the first.
    ///
    /// ```
    /// use rdma_collective::env::NcclOptions;
    /// use rdma_core::SoftOptions;
    ///
    /// let soft = |number| SoftOptions { name: format!("soft{number}"), ..SoftOptions::default() };
    /// let devices = NcclOptions::default().select_each(&["soft", "soft"], soft, None)?;
    /// let names: Vec<_> = devices.iter().map(|device| device.context.name()).collect();
    /// assert_eq!(names, ["soft0", "soft1"]);
    /// # Ok::<(), rdma_collective::env::SelectError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`SelectError`] of the first device that cannot be used.
    pub fn select_each(
        &self,
        wanted: &[impl AsRef<str>],
        soft: impl Fn(usize) -> SoftOptions,
        gid_index: Option<u32>,
    ) -> Result<Vec<SelectedDevice>, SelectError> {
        let mut devices: Vec<SelectedDevice> = Vec::new();
        for name in wanted {
            let number = devices.iter().filter(|device| device.context.is_soft()).count();
            devices.push(self.find(name.as_ref(), (soft(number), number), gid_index)?);
        }
        let used: Vec<String> = devices.iter().map(|device| device.context.name().to_owned()).collect();
        let mut refused: Vec<RefusedDevice> = Vec::new();
        for other in devices.iter_mut().flat_map(|device| std::mem::take(&mut device.refused)) {
            let known = refused.iter().any(|one| one.device == other.device);
            if !known && !used.contains(&other.device) {
                refused.push(other);
            }
        }
        if let Some(first) = devices.first_mut() {
            first.refused = refused;
            first.tell();
        }
        Ok(devices)
    }
}

#[cfg(test)]
mod tests;
