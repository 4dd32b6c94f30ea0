//! The software device's wires, as people name them.

use anyhow::ensure;
use clap::ValueEnum;
use rdma_collective::env::SelectedDevice;
use rdma_core::Wire;

/// Wires of the software device that lead to another process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum WireName {
    /// The fastest there is
    Auto,
    /// Memory shared with it: both on one host, as one user
    Mapped,
    /// A TCP connection
    Tcp,
}

impl WireName {
    /// Checks that the selected device has such a wire.
    ///
    /// # Errors
    ///
    /// The device is a NIC, and a wire was named.
    pub fn suits(self, selected: &SelectedDevice) -> anyhow::Result<()> {
        ensure!(
            self == Self::Auto || selected.context.is_soft(),
            "--wire chooses the software device's, and {} is a NIC: name the device soft, or leave --wire out",
            selected.context.name()
        );
        Ok(())
    }
}

impl From<WireName> for Wire {
    fn from(name: WireName) -> Self {
        match name {
            WireName::Auto => Self::Auto,
            WireName::Mapped => Self::Mapped,
            WireName::Tcp => Self::Tcp,
        }
    }
}
