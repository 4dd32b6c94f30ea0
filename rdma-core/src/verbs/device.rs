//! Finding devices and opening them.

use crate::backend::dispatch::{self, AnyDevice};
use crate::error::{LibraryUnavailable, OpenError};
use crate::{Context, SoftOptions};

/// The RDMA devices of this host, NICs and soft-RoCE alike.
///
/// A missing libibverbs is not an error: the list is then empty and says why.
///
/// ```
/// let list = rdma_core::DeviceList::probe();
/// match list.unavailable() {
///     Some(reason) => println!("no RDMA devices: {reason}"),
///     None => println!("{} RDMA devices", list.devices().len()),
/// }
/// ```
///
/// See `ibv_get_device_list(3)`.
#[doc(alias = "ibv_get_device_list")]
#[derive(Debug, Clone)]
pub struct DeviceList {
    devices: Vec<Device>,
    unavailable: Option<String>,
    library: Option<LibraryUnavailable>,
}

/// A device that can be opened: a NIC, soft-RoCE, or the software device.
#[doc(alias = "ibv_device")]
#[derive(Debug, Clone)]
pub struct Device {
    inner: AnyDevice,
}

impl DeviceList {
    /// Looks at the devices there are now.
    #[must_use]
    pub fn probe() -> Self {
        match dispatch::list_devices() {
            Ok(found) => {
                let devices: Vec<_> = found.into_iter().map(|inner| Device { inner }).collect();
                let none = "libibverbs is there, and the kernel has no RDMA device: load the driver of the NIC, \
                            or `rdma link add rxe0 type rxe netdev NETDEV`; in a container, map /dev/infiniband into it";
                Self { unavailable: devices.is_empty().then(|| none.to_owned()), devices, library: None }
            }
            Err(OpenError::Library(library)) => {
                Self { devices: Vec::new(), unavailable: Some(library.to_string()), library: Some(library) }
            }
            Err(error) => Self { devices: Vec::new(), unavailable: Some(error.to_string()), library: None },
        }
    }

    /// The devices, in the kernel's order.
    #[must_use]
    pub fn devices(&self) -> &[Device] {
        &self.devices
    }

    /// Why the list is empty; `None` when it is not.
    #[must_use]
    pub fn unavailable(&self) -> Option<&str> {
        self.unavailable.as_deref()
    }

    /// What is the matter with libibverbs, when that is why the list is empty.
    #[must_use]
    pub fn library_unavailable(&self) -> Option<&LibraryUnavailable> {
        self.library.as_ref()
    }

    /// The device called `name`, such as `mlx5_0` or `rxe0`.
    ///
    /// # Errors
    ///
    /// [`OpenError::UnknownDevice`] with the names there are.
    pub fn find(&self, name: &str) -> Result<&Device, OpenError> {
        self.devices.iter().find(|device| device.name() == name).ok_or_else(|| OpenError::UnknownDevice {
            name: name.to_owned(),
            available: self.devices.iter().map(|device| device.name().to_owned()).collect(),
            reason: self.unavailable.clone(),
        })
    }
}

impl Device {
    /// A device in software, with the semantics of a reliable-connection NIC; it needs nothing
    /// of the system. Contexts opened from clones of it share its ports, keys and faults.
    #[must_use]
    pub fn soft(options: SoftOptions) -> Self {
        Self { inner: AnyDevice::soft(options) }
    }

    /// Its name, as `ibv_devices` prints it.
    #[doc(alias = "ibv_get_device_name")]
    #[must_use]
    pub fn name(&self) -> &str {
        self.inner.name()
    }

    /// Whether it is the software device of this crate.
    #[must_use]
    pub fn is_soft(&self) -> bool {
        self.inner.is_soft()
    }

    /// Opens it.
    ///
    /// # Errors
    ///
    /// [`OpenError::Refused`] when the system does not let this process use it,
    /// [`OpenError::Soft`] when the software device's address or threads are not to be had.
    ///
    /// ```
    /// use rdma_core::{Device, SoftOptions};
    /// let context = Device::soft(SoftOptions::default()).open()?;
    /// assert_eq!(context.name(), "soft0");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// See `ibv_open_device(3)`.
    #[doc(alias = "ibv_open_device")]
    pub fn open(&self) -> Result<Context, OpenError> {
        Ok(Context::new(self.inner.open()?, self.is_soft()))
    }
}
