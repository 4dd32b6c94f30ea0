//! [`DeviceList`] and [`Device`]: finding devices and opening them.

use crate::backend::dispatch::{self, AnyDevice};
use crate::error::{LibraryUnavailable, OpenError};
use crate::{Context, SoftOptions};

/// The RDMA devices of this host: NICs and soft-RoCE. The software device is not among them; it is made by
/// [`Device::soft`].
///
/// A missing libibverbs is not an error. The list is empty then, and [`unavailable`](Self::unavailable) says
/// why.
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
    /// Lists the devices that are present now.
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

    /// Returns the devices, in the kernel's order.
    #[must_use]
    pub fn devices(&self) -> &[Device] {
        &self.devices
    }

    /// Returns why the list is empty; `None` when it is not.
    #[must_use]
    pub fn unavailable(&self) -> Option<&str> {
        self.unavailable.as_deref()
    }

    /// Returns why libibverbs cannot be used, if that is why the list is empty.
    #[must_use]
    pub fn library_unavailable(&self) -> Option<&LibraryUnavailable> {
        self.library.as_ref()
    }

    /// Returns the device called `name`, such as `mlx5_0` or `rxe0`.
    ///
    /// # Errors
    ///
    /// [`OpenError::UnknownDevice`], with the names of the devices that are present.
    pub fn find(&self, name: &str) -> Result<&Device, OpenError> {
        self.devices.iter().find(|device| device.name() == name).ok_or_else(|| OpenError::UnknownDevice {
            name: name.to_owned(),
            available: self.devices.iter().map(|device| device.name().to_owned()).collect(),
            reason: self.unavailable.clone(),
        })
    }
}

impl Device {
    /// Returns a software device with the semantics of a reliable-connection NIC; it needs neither hardware
    /// nor a driver.
    ///
    /// Clones of one `Device` are one device: contexts opened from them share ports, keys and faults. Every
    /// call of `soft` makes another device. [`open`](Self::open) has an example.
    #[must_use]
    pub fn soft(options: SoftOptions) -> Self {
        Self { inner: AnyDevice::soft(options) }
    }

    /// Returns the name of the device, as `ibv_devices` prints it.
    #[doc(alias = "ibv_get_device_name")]
    #[must_use]
    pub fn name(&self) -> &str {
        self.inner.name()
    }

    /// Returns whether this is the software device of this crate.
    #[must_use]
    pub fn is_soft(&self) -> bool {
        self.inner.is_soft()
    }

    /// Opens the device.
    ///
    /// # Errors
    ///
    /// - [`OpenError::Refused`] when the system does not let this process use the device.
    /// - [`OpenError::Soft`] when the software device cannot have its address, its port or its thread.
    ///
    /// ```
    /// use rdma_core::{Device, SoftOptions};
    /// let context = Device::soft(SoftOptions::default()).open()?;
    /// assert_eq!(context.name(), "soft0");
    /// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
    /// ```
    ///
    /// See `ibv_open_device(3)`.
    #[doc(alias = "ibv_open_device")]
    pub fn open(&self) -> Result<Context, OpenError> {
        Ok(Context::new(self.inner.open()?, self.is_soft()))
    }
}
