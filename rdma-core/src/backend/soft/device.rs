//! Software devices and their open contexts.

use std::collections::HashSet;
use std::io;
use std::net::{IpAddr, SocketAddrV4};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use super::channel::Channel;
use super::draws::Draws;
use super::engine::keys::KeyTable;
use super::engine::timer::Timer;
use super::event::Events;
use super::exposure::Exposure;
use super::fabric::{ContextRef, DeviceState, Fabric, Hold, Silence};
use super::options::{SoftOptions, Wire};
use super::wire::DeviceRef;
use super::{ProtectionDomain, Worker, driver, gid, port};
use crate::backend::interface;
use crate::error::{CreateError, OpenError, QueryError, limit};
use crate::{AsyncEvent, DeviceAttributes, Gid, GidEntry, PortAttributes, PortNum, PortState, WorkerOptions};

/// A device that can be opened; clones are the same one.
#[derive(Debug, Clone)]
pub(crate) struct Device {
    options: Arc<SoftOptions>,
    opened: Arc<Mutex<Weak<Opened>>>,
}

/// A device for as long as anything of it is open.
#[derive(Debug)]
pub(super) struct Opened {
    pub(super) name: String,
    pub(super) max_mr_size: u64,
    pub(super) device: DeviceRef,
    pub(super) fabric: &'static Fabric,
}

/// An open device.
#[derive(Debug)]
pub(crate) struct Context {
    pub(super) opened: Arc<Opened>,
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

    pub(crate) fn open(&self) -> Result<Context, OpenError> {
        let refused = |what| {
            let name = self.options.name.clone();
            move |source| OpenError::Soft { name, what, source }
        };
        let fabric = Fabric::get().map_err(refused("making its descriptors"))?;
        if fabric.is_foreign() {
            let source = io::Error::other("this process was forked from one that uses a software device");
            return Err(refused("finding its thread")(source));
        }
        let events = Channel::new().map_err(refused("making its event descriptor"))?;
        let mut last = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
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

    /// Enters the device into the fabric.
    fn start(&self, fabric: &'static Fabric) -> Result<Opened, OpenError> {
        let SoftOptions { name, wire, address, tcp_port, max_mr_size, faults, planted } = &*self.options;
        let refused = |what| move |source| OpenError::Soft { name: name.clone(), what, source };
        let IpAddr::V4(ip) = *address else {
            let source = io::Error::new(
                io::ErrorKind::Unsupported,
                format!("{address} is an IPv6 address, and a GID holds an IPv4 one"),
            );
            return Err(refused("reading its address")(source));
        };
        let netdev = gid::netdev_of(ip).map_err(refused("finding the interface that has its address"))?;
        let nonce = getrandom::u32().map_err(|error| refused("drawing a random number")(error.into()))?;
        let mut hold = fabric.lock();
        driver::start(&mut hold, fabric).map_err(refused("starting its thread"))?;
        let device = hold.devices.insert(DeviceState {
            wire: *wire,
            gids: Vec::new(),
            port: PortState::ACTIVE,
            port_returns: Timer::Off,
            silence: Silence::No,
            faults: faults.clone(),
            planted: *planted,
            keys: KeyTable::default(),
            draws: Draws::default(),
            qp_nums: Default::default(),
            domains: 0,
            exposure: None,
            told: HashSet::new(),
        });
        if let Some(faults) = faults {
            faults.attach(device);
        }
        let opened = Opened { name: name.clone(), max_mr_size: *max_mr_size, device, fabric };
        let listening = listen(&mut hold, device, *wire, SocketAddrV4::new(ip, *tcp_port)).and_then(|at| {
            let table = gid::table(at, nonce, &netdev);
            expose(&mut hold, device, &self.options, &table)?;
            Ok(table)
        });
        match listening {
            Ok(table) => {
                for entry in &table {
                    hold.by_gid.insert(entry.gid, device);
                }
                if let Some(state) = hold.devices.get_mut(device) {
                    state.gids = table;
                }
                Ok(opened)
            }
            Err(source) => {
                // Dropping `opened` takes the lock.
                drop(hold);
                Err(refused("listening for peers")(source))
            }
        }
    }
}

/// Listens for peers, unless the device is for this process alone; tells where.
fn listen(
    hold: &mut Hold<'_>,
    device: DeviceRef,
    wire: Wire,
    address: SocketAddrV4,
) -> io::Result<SocketAddrV4> {
    if wire == Wire::Local {
        return Ok(SocketAddrV4::new(*address.ip(), 0));
    }
    let listening = hold.guarded().sockets.listen(device, address);
    let port = listening.map_err(|source| match limit(&source) {
        Some(_) => source,
        // Of a device that has the port already, or another program that has.
        None => io::Error::new(source.kind(), format!("{address}: {source}")),
    })?;
    Ok(SocketAddrV4::new(*address.ip(), port))
}

/// Lets processes of this host find the device, unless it is not for them.
fn expose(
    hold: &mut Hold<'_>,
    device: DeviceRef,
    options: &SoftOptions,
    table: &[GidEntry],
) -> io::Result<()> {
    let Some(entry) = table.iter().find(|entry| !entry.gid.is_link_local()) else { return Ok(()) };
    match options.wire {
        Wire::Mapped => expose_as(hold, device, entry.gid),
        // What goes wrong is injected into messages, and to other processes they go over TCP.
        Wire::Auto if options.faults.is_none() => {
            if let Err(error) = expose_as(hold, device, entry.gid) {
                let mend =
                    limit(&error).unwrap_or("let it make memfds and listen at abstract Unix addresses");
                tracing::warn!(device = %options.name, %error, mend, "processes of this host reach the device over TCP alone");
            }
            Ok(())
        }
        Wire::Auto | Wire::Local | Wire::Tcp => Ok(()),
    }
}

fn expose_as(hold: &mut Hold<'_>, device: DeviceRef, gid: Gid) -> io::Result<()> {
    let exposure = Exposure::new()?;
    hold.guarded().rendezvous.listen(device, gid)?;
    if let Some(state) = hold.devices.get_mut(device) {
        state.exposure = Some(exposure);
    }
    Ok(())
}

impl Opened {
    pub(super) fn lock(&self) -> Hold<'_> {
        self.fabric.lock()
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        if self.fabric.is_foreign() {
            return;
        }
        let mut hold = self.lock();
        let Some(state) = hold.devices.remove(self.device) else { return };
        for entry in &state.gids {
            hold.by_gid.remove(&entry.gid);
        }
        if let Some(faults) = &state.faults {
            faults.detach(self.device);
        }
        let guarded = hold.guarded();
        guarded.sockets.unlisten(self.device);
        guarded.rendezvous.unlisten(self.device);
        if guarded.state.devices.is_empty() {
            hold.driver.wake();
        }
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        if !self.opened.fabric.is_foreign() {
            self.opened.lock().contexts.remove(self.context);
        }
    }
}

impl interface::Context for Context {
    type Pd = ProtectionDomain;
    type Worker = Worker;

    fn name(&self) -> &str {
        &self.opened.name
    }

    fn query_device(&self) -> Result<DeviceAttributes, QueryError> {
        Ok(port::device_attributes(self.opened.max_mr_size))
    }

    fn query_port(&self, port: PortNum) -> Result<PortAttributes, QueryError> {
        port::check(&self.opened.name, port)?;
        let hold = self.opened.lock();
        let state = hold.devices.get(self.opened.device).map_or(PortState::DOWN, |device| device.port);
        Ok(port::port_attributes(state))
    }

    fn gid_table(&self, port: PortNum) -> Result<Vec<GidEntry>, QueryError> {
        port::check(&self.opened.name, port)?;
        let hold = self.opened.lock();
        Ok(hold.devices.get(self.opened.device).map_or_else(Vec::new, |device| device.gids.clone()))
    }

    fn alloc_pd(self: &Arc<Self>) -> Result<ProtectionDomain, CreateError> {
        Ok(ProtectionDomain::new(Arc::clone(self)))
    }

    fn create_worker(self: &Arc<Self>, options: &WorkerOptions) -> Result<Worker, CreateError> {
        Worker::new(self, options)
    }

    fn next_event(&self) -> Result<Option<AsyncEvent>, QueryError> {
        let refused = |source| QueryError::Refused {
            verb: "ibv_get_async_event",
            device: self.opened.name.clone(),
            source,
        };
        let mut hold = self.opened.lock();
        hold.contexts.get_mut(self.context).map_or(Ok(None), Events::next).map_err(refused)
    }

    fn event_fd(&self) -> BorrowedFd<'_> {
        self.events.as_fd()
    }
}
