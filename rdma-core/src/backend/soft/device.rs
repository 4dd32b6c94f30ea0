//! Software devices and their open contexts. A device exists in the fabric while anything of it is open.

use std::collections::HashSet;
use std::io;
use std::net::{IpAddr, SocketAddrV4};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use super::channel::Channel;
use super::engine::keys::KeyTable;
use super::event::{ContextRef, Events};
use super::fabric::{DeviceState, Fabric, FabricGuard, Silence};
use super::fault::FaultPlan;
use super::options::{SoftOptions, Wire};
use super::random::RandomPool;
use super::shared_exports::SharedExports;
use super::wire::DeviceRef;
use super::{driver, gid, limits};
use crate::error::{OpenError, QueryError, limit_advice};
use crate::log::Held;
use crate::{
    AsyncEvent, DeviceAttributes, DeviceDetails, Gid, GidEntry, PortAttributes, PortDetails, PortNum,
    PortState,
};

/// A device that can be opened. Clones are the same device: opened twice, it is one device with two contexts.
#[derive(Debug, Clone)]
pub(crate) struct Device {
    options: Arc<SoftOptions>,
    opened: Arc<Mutex<Weak<OpenDevice>>>,
}

/// The open device that all contexts, domains and registrations of it share; dropping the last one closes it.
#[derive(Debug)]
pub(super) struct OpenDevice {
    pub(super) name: String,
    pub(super) max_mr_size: u64,
    pub(super) device: DeviceRef,
    pub(super) fabric: &'static Fabric,
}

/// A context: one opening of a device, with its own queue of asynchronous events.
#[derive(Debug)]
pub(crate) struct Context {
    pub(super) opened: Arc<OpenDevice>,
    pub(super) context: ContextRef,
    events: Channel,
}

impl Device {
    pub(crate) fn new(options: SoftOptions) -> Self {
        Self { options: Arc::new(options), opened: Arc::default() }
    }

    pub(crate) fn name(&self) -> &str {
        &self.options.name
    }

    /// Opens a context. The first one also starts the device.
    pub(crate) fn open(&self) -> Result<Context, OpenError> {
        let refused = |what| {
            let name = self.options.name.clone();
            move |source| OpenError::Soft { name, what, source }
        };
        let fabric = Fabric::get().map_err(refused("making its descriptors"))?.get()?;
        let events = Channel::new().map_err(refused("making its event descriptor"))?;
        let mut last = Held::lock(|| self.opened.lock());
        let opened = match last.upgrade() {
            Some(opened) => opened,
            None => {
                let opened = Arc::new(self.start(fabric)?);
                *last = Arc::downgrade(&opened);
                opened
            }
        };
        let context = fabric.lock().contexts.insert(Events::new(opened.device, events.clone()));
        Ok(Context { opened, context, events })
    }

    /// Adds the device to the fabric: starts the driver, listens for peers, and fills the GID table.
    fn start(&self, fabric: &'static Fabric) -> Result<OpenDevice, OpenError> {
        let SoftOptions { name, wire, address, tcp_port, max_mr_size, faults } = &*self.options;
        let refused = |what| move |source| OpenError::Soft { name: name.clone(), what, source };
        faults.as_ref().map_or(Ok(()), FaultPlan::check_process)?;
        let IpAddr::V4(ip) = *address else {
            let source = io::Error::new(
                io::ErrorKind::Unsupported,
                format!("{address} is an IPv6 address, and a GID holds an IPv4 one"),
            );
            return Err(refused("reading its address")(source));
        };
        let netdev = gid::netdev_of(ip).map_err(refused("finding the interface that has its address"))?;
        let nonce = getrandom::u32().map_err(|error| refused("drawing a random number")(error.into()))?;
        let mut guard = fabric.lock();
        driver::start(&mut guard, fabric).map_err(refused("starting its thread"))?;
        let device = guard.devices.insert(DeviceState {
            wire: *wire,
            gids: Vec::new(),
            port: PortState::ACTIVE,
            port_returns: None,
            silence: Silence::No,
            faults: faults.clone(),
            keys: KeyTable::default(),
            random: RandomPool::default(),
            qp_nums: Default::default(),
            domains: 0,
            refused: 0,
            exports: None,
            unmapped_logged: HashSet::new(),
        });
        if let Some(faults) = faults {
            faults.attach(device);
        }
        let opened = OpenDevice { name: name.clone(), max_mr_size: *max_mr_size, device, fabric };
        let listening = listen(&mut guard, device, *wire, SocketAddrV4::new(ip, *tcp_port)).and_then(|at| {
            let table = gid::table(at, nonce, &netdev);
            guard.by_gid.extend(table.iter().map(|entry| (entry.gid, device)));
            if let Some(state) = guard.devices.get_mut(device) {
                state.gids = table;
            }
            publish(&mut guard, device, &self.options, gid::routable(at, nonce))
        });
        // Dropping `opened` takes the lock, so the guard must go first.
        drop(guard);
        listening.map(|()| opened).map_err(refused("listening for peers"))
    }
}

/// Listens for TCP peers, unless the device is for this process alone. Returns the address with the chosen port.
fn listen(
    guard: &mut FabricGuard<'_>,
    device: DeviceRef,
    wire: Wire,
    address: SocketAddrV4,
) -> io::Result<SocketAddrV4> {
    if wire == Wire::Local {
        return Ok(SocketAddrV4::new(*address.ip(), 0));
    }
    let listening = guard.guarded().sockets.listen(device, address);
    let port = listening.map_err(|source| match limit_advice(&source) {
        Some(_) => source,
        // Most likely another device or program has the port, so the message names the address.
        None => io::Error::new(source.kind(), format!("{address}: {source}")),
    })?;
    Ok(SocketAddrV4::new(*address.ip(), port))
}

/// Publishes the device to processes of this host, if its wire allows that.
fn publish(
    guard: &mut FabricGuard<'_>,
    device: DeviceRef,
    options: &SoftOptions,
    gid: Gid,
) -> io::Result<()> {
    match options.wire {
        Wire::Mapped => publish_as(guard, device, gid),
        // Faults are injected into messages, and mapped memory has none: with faults, other processes use TCP.
        Wire::Auto if options.faults.is_none() => {
            if let Err(error) = publish_as(guard, device, gid) {
                let mend = limit_advice(&error)
                    .unwrap_or("let it make memfds and listen at abstract Unix addresses");
                crate::log::warn!(device = %options.name, %error, mend, "processes of this host reach the device over TCP alone");
            }
            Ok(())
        }
        Wire::Auto | Wire::Local | Wire::Tcp => Ok(()),
    }
}

/// Makes the table of exports and listens for processes of this host under `gid`.
fn publish_as(guard: &mut FabricGuard<'_>, device: DeviceRef, gid: Gid) -> io::Result<()> {
    let exports = SharedExports::new()?;
    guard.guarded().rendezvous.listen(device, gid)?;
    if let Some(state) = guard.devices.get_mut(device) {
        state.exports = Some(exports);
    }
    Ok(())
}

impl Drop for OpenDevice {
    fn drop(&mut self) {
        let mut guard = self.fabric.lock();
        let Some(state) = guard.devices.remove(self.device) else { return };
        for entry in &state.gids {
            guard.by_gid.remove(&entry.gid);
        }
        if let Some(faults) = &state.faults {
            faults.detach(self.device);
        }
        let guarded = guard.guarded();
        guarded.sockets.unlisten(self.device);
        guarded.rendezvous.unlisten(self.device);
        if guarded.state.devices.is_empty() {
            guard.driver.wake.raise();
        }
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        self.opened.fabric.lock().contexts.remove(self.context);
    }
}

impl Context {
    pub(crate) fn name(&self) -> &str {
        &self.opened.name
    }

    pub(crate) fn query_device(&self) -> Result<DeviceAttributes, QueryError> {
        Ok(limits::device_attributes(self.opened.max_mr_size))
    }

    pub(crate) fn query_port(&self, port: PortNum) -> Result<PortAttributes, QueryError> {
        limits::check_port(&self.opened.name, port)?;
        let guard = self.opened.fabric.lock();
        let state = guard.devices.get(self.opened.device).map_or(PortState::DOWN, |device| device.port);
        Ok(limits::port_attributes(state))
    }

    pub(crate) fn device_details(&self) -> Result<DeviceDetails, QueryError> {
        Ok(limits::device_details(self.query_device()?))
    }

    pub(crate) fn port_details(&self, port: PortNum) -> Result<PortDetails, QueryError> {
        Ok(limits::port_details(self.query_port(port)?))
    }

    pub(crate) fn gid_table(&self, port: PortNum) -> Result<Vec<GidEntry>, QueryError> {
        limits::check_port(&self.opened.name, port)?;
        let guard = self.opened.fabric.lock();
        Ok(guard.devices.get(self.opened.device).map_or_else(Vec::new, |device| device.gids.clone()))
    }

    pub(crate) fn next_event(&self) -> Result<Option<AsyncEvent>, QueryError> {
        let refused = |source| QueryError::Refused {
            verb: "ibv_get_async_event",
            device: self.opened.name.clone(),
            source,
        };
        let mut guard = self.opened.fabric.lock();
        guard.contexts.get_mut(self.context).map_or(Ok(None), Events::next).map_err(refused)
    }

    /// The number of requests of peers that the device has refused for their key, range or rights.
    pub(crate) fn refused_requests(&self) -> u64 {
        self.opened.fabric.lock().devices.get(self.opened.device).map_or(0, |device| device.refused)
    }

    pub(crate) fn event_fd(&self) -> BorrowedFd<'_> {
        self.events.as_fd()
    }
}
