//! [`Fixture`]: an object of every kind, for a child to call.

use rdma_core::fault::FaultPlan;
use rdma_core::{
    Access, Attached, Context, Device, DeviceList, Endpoint, Exported, Init, InitOptions, LocalBuf, Memory,
    PathOptions, PeerWindow, ProtectionDomain, QueuePair, QueuePairOptions, ReadyToReceive, ReadyToSend,
    Region, Reset, SoftOptions, Window, Wire, Work, Worker, WorkerOptions, gid, loopback,
};

use crate::busy::soon;

pub const BYTES: usize = 4096;
pub const ALL: Access = Access::LOCAL_WRITE.union(Access::REMOTE_WRITE).union(Access::REMOTE_READ);

/// Objects of the parent. A child gets a copy, which it may take apart.
pub struct Fixture {
    pub device: Device,
    pub list: DeviceList,
    pub faults: FaultPlan,
    pub context: Context,
    pub pd: ProtectionDomain,
    pub worker: Worker,
    pub left: QueuePair<ReadyToSend>,
    pub right: QueuePair<ReadyToSend>,
    pub reset: QueuePair<Reset>,
    pub init: QueuePair<Init>,
    pub receiving: QueuePair<ReadyToReceive>,
    pub endpoint: Endpoint,
    pub path: PathOptions,
    pub region: Region,
    /// A region without a right of peers, which can be exported.
    pub private: Region,
    pub attached: Attached,
    pub local: LocalBuf,
    pub memory: Memory,
    pub exported: Exported,
    pub window: Window,
    /// `None` where the peer is reached by a device or over TCP.
    pub peer_window: Option<PeerWindow>,
}

impl Fixture {
    /// Makes the objects on a software device.
    pub fn on(wire: Wire) -> Self {
        let faults = FaultPlan::seeded(1);
        let device =
            Device::soft(SoftOptions { wire, faults: Some(faults.clone()), ..SoftOptions::default() });
        Self::of(device, faults)
    }

    /// Makes the objects on the device that `ROCE_DEVICE` names.
    pub fn on_named_device() -> Self {
        let name = std::env::var("ROCE_DEVICE").expect("ROCE_DEVICE names the device to test");
        println!("device: {name}");
        Self::of(DeviceList::probe().find(&name).unwrap().clone(), FaultPlan::seeded(1))
    }

    fn of(device: Device, faults: FaultPlan) -> Self {
        let context = device.open().unwrap();
        let pd = context.alloc_pd().unwrap();
        let mut worker = context.worker(WorkerOptions::default()).unwrap();
        let (left, right) = loopback(&mut worker, &pd).unwrap();
        let options = InitOptions { access: ALL.difference(Access::LOCAL_WRITE), ..InitOptions::default() };
        let port = context.port(options.port).unwrap();
        let table = context.gids(options.port).unwrap();
        let chosen = gid::choose(options.port, &table, &gid::Preference::new(port.link_layer)).unwrap();
        let path = PathOptions { gid_index: chosen.entry.index, ..PathOptions::default() };
        let make = |worker: &mut Worker| worker.create_queue_pair(&pd, &QueuePairOptions::default()).unwrap();
        let reset = make(&mut worker);
        let init = make(&mut worker).init(&mut worker, &options).unwrap();
        let receiving = make(&mut worker).init(&mut worker, &options).unwrap();
        let endpoint = init.endpoint(&worker, path.gid_index).unwrap();
        let receiving = receiving.ready_to_receive(&mut worker, &endpoint, &path).unwrap();
        let region = pd.alloc_region(BYTES, ALL).unwrap();
        let private = pd.alloc_local(BYTES).unwrap().into_region().unwrap();
        let attached = worker.attach(&region);
        let exported = pd.export(&private, ALL).unwrap();
        let window = pd.alloc_window(BYTES).unwrap();
        let peer_window = worker.peer_window(&left, window.remote(), soon()).ok();
        let local = pd.alloc_local(BYTES).unwrap();
        let (memory, list) = (Memory::allocate(BYTES).unwrap(), DeviceList::probe());
        Self {
            device,
            list,
            faults,
            context,
            pd,
            worker,
            left,
            right,
            reset,
            init,
            receiving,
            endpoint,
            path,
            region,
            private,
            attached,
            local,
            memory,
            exported,
            window,
            peer_window,
        }
    }

    /// Uses every object, and compares bytes: nothing of a child may have touched them.
    pub fn assert_whole(mut self) {
        let pattern: Vec<u8> = (0..BYTES).map(|index| (index * 7 % 251) as u8).collect();
        self.local.copy_from_slice(&pattern);
        for target in [self.region.remote(), self.exported.remote()] {
            self.worker.post(&self.left, Work::write(self.local, target)).unwrap();
            let done = self.worker.wait(soon()).unwrap();
            done.result.unwrap();
            self.local = done.buffer.unwrap();
        }
        for region in [&self.region, &self.private] {
            let mut bytes = vec![0; BYTES];
            region.copy_out(0, &mut bytes).unwrap();
            assert!(bytes == pattern, "a child changed what was written");
        }
        assert!(self.worker.poll().unwrap().is_none(), "a child has left a completion");
        if let Some(theirs) = &self.peer_window {
            assert_eq!(self.window.load::<u64>(0).unwrap(), 0, "a child has written the window");
            theirs.store(0, 7_u64).unwrap();
            assert_eq!(self.window.load::<u64>(0).unwrap(), 7);
        }
        self.exported.revoke(soon()).map_err(|refused| refused.error).unwrap();
        self.worker.fence(self.left, soon()).map_err(|refused| refused.error).unwrap();
        let _ = self
            .reset
            .init(&mut self.worker, &InitOptions::default())
            .map_err(|refused| refused.error)
            .unwrap();
        assert_eq!(self.faults.counts().killed, 0, "a child killed the device");
        drop((self.window, self.worker, self.pd));
        self.private.deregister().map_err(|refused| refused.error).unwrap();
    }
}
