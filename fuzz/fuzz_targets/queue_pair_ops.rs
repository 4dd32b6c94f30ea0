//! Any sequence of operations on two connected queue pairs of the software device: every request that was accepted has
//! exactly one completion, and bytes that no peer may write stay as they are, whatever was asked for.
#![no_main]

use std::cell::OnceCell;
use std::collections::HashSet;
use std::ops::Range;
use std::time::Duration;

use libfuzzer_sys::arbitrary::{self, Arbitrary};
use libfuzzer_sys::fuzz_target;
use rdma_core::{
    Access, Attached, Completion, Context, Deadline, Device, Exported, Memory, ProtectionDomain, QueuePair,
    ReadyToSend, Region, RemoteKey, RemoteMemory, SoftOptions, Wire, Work, WorkId, Worker, WorkerOptions,
    loopback,
};

/// Bytes of every region.
const LEN: usize = 4096;
/// The range of the guarded region that is lent.
const LENT: Range<usize> = 1001..3003;
/// The value of bytes that no one may write.
const CANARY: u8 = 0xa5;
const STEPS_MAX: usize = 64;
const FENCE_WITHIN: Duration = Duration::from_secs(60);

#[derive(Debug, Clone, Copy, Arbitrary)]
enum Kind {
    Send,
    Write,
    WriteImm,
    Read,
    Recv,
    OwnedSend,
}

#[derive(Debug, Clone, Copy, Arbitrary)]
enum Target {
    /// May be written and read by peers.
    Open,
    /// May not be written by peers.
    Guarded,
    /// Was the open region's before it was registered anew.
    Former,
    /// A range of the guarded region, lent for writing.
    Lent,
    /// Was the key of that range before it was lent anew.
    FormerlyLent,
    /// A key that nobody gave.
    Guess(u32),
}

#[derive(Debug, Arbitrary)]
enum Step {
    Post {
        left: bool,
        kind: Kind,
        target: Target,
        local: (u16, u16),
        remote: (u64, u64),
        alike: bool,
        unsignalled: bool,
        inline: bool,
    },
    Poll(u8),
    /// Ends the open region and begins its successor.
    Reregister,
    /// Ends the key of the lent range, and lends the range under another.
    Relend,
    /// Ends both queue pairs and connects new ones.
    Reconnect,
}

fuzz_target!(|steps: Vec<Step>| {
    thread_local!(static CONTEXT: OnceCell<Context> = const { OnceCell::new() });
    CONTEXT.with(|context| {
        let soft = SoftOptions { wire: Wire::Local, ..SoftOptions::default() };
        let context = context.get_or_init(|| Device::soft(soft).open().unwrap());
        let mut bench = Bench::new(context);
        for step in steps.iter().take(STEPS_MAX) {
            bench.step(step);
        }
        bench.finish();
    });
});

struct Bench {
    pd: ProtectionDomain,
    worker: Worker,
    pair: Option<(QueuePair<ReadyToSend>, QueuePair<ReadyToSend>)>,
    source: Attached,
    open: Region,
    guarded: Region,
    former: RemoteMemory,
    lent: Exported,
    formerly_lent: RemoteMemory,
    /// Deregistered memory: nothing may write to it any more.
    ended: Vec<Memory>,
    outstanding: HashSet<WorkId>,
}

impl Bench {
    fn new(context: &Context) -> Self {
        let pd = context.alloc_pd().unwrap();
        let mut worker = context.worker(WorkerOptions::default()).unwrap();
        let pair = loopback(&mut worker, &pd).unwrap();
        let source = pd.alloc_region(LEN, Access::LOCAL_WRITE).unwrap();
        let open = Self::open(&pd);
        let guarded = pd.alloc_region(LEN, Access::LOCAL_WRITE | Access::REMOTE_READ).unwrap();
        guarded.copy_in(0, &[CANARY; LEN]).unwrap();
        let source = worker.attach(&source);
        let former = open.remote();
        let lent = Self::lend(&pd, &guarded);
        let formerly_lent = lent.remote();
        let (pair, ended, outstanding) = (Some(pair), Vec::new(), HashSet::new());
        Self { pd, worker, pair, source, open, guarded, former, lent, formerly_lent, ended, outstanding }
    }

    fn open(pd: &ProtectionDomain) -> Region {
        pd.alloc_region(LEN, Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ).unwrap()
    }

    fn lend(pd: &ProtectionDomain, guarded: &Region) -> Exported {
        pd.export_range(guarded, LENT, Access::LOCAL_WRITE | Access::REMOTE_WRITE).unwrap()
    }

    fn step(&mut self, step: &Step) {
        match *step {
            Step::Poll(times) => (0..times).for_each(|_| drop(self.poll())),
            Step::Reregister => {
                let region = std::mem::replace(&mut self.open, Self::open(&self.pd));
                self.former = region.remote();
                let mut memory = region.deregister().unwrap();
                memory.fill(CANARY);
                self.ended.push(memory);
            }
            Step::Relend => {
                let lent = std::mem::replace(&mut self.lent, Self::lend(&self.pd, &self.guarded));
                self.formerly_lent = lent.remote();
                lent.revoke(Deadline::after(FENCE_WITHIN)).unwrap();
            }
            Step::Reconnect => {
                self.fence();
                self.pair = Some(loopback(&mut self.worker, &self.pd).unwrap());
            }
            Step::Post { left, kind, target, local, remote, alike, unsignalled, inline } => {
                let to = self.target(target, remote, alike.then_some(local));
                let mut work = self.work(kind, local, to);
                if unsignalled {
                    work = work.unsignalled();
                }
                if inline {
                    work = work.inline();
                }
                let Some((first, second)) = &self.pair else { return };
                if let Ok(id) = self.worker.post(if left { first } else { second }, work) {
                    assert!(self.outstanding.insert(id), "{id:?} was given twice");
                }
            }
        }
    }

    fn target(&self, target: Target, (offset, len): (u64, u64), alike: Option<(u16, u16)>) -> RemoteMemory {
        let whole = match target {
            Target::Open => self.open.remote(),
            Target::Guarded => self.guarded.remote(),
            Target::Former => self.former,
            Target::Lent => self.lent.remote(),
            Target::FormerlyLent => self.formerly_lent,
            Target::Guess(key) => RemoteMemory { rkey: RemoteKey(key), ..self.open.remote() },
        };
        match alike {
            // Within bounds, and as long as the local range.
            Some((at, len)) => {
                let at = u64::from(at) % LEN as u64;
                RemoteMemory { addr: whole.addr + at, len: u64::from(len).min(LEN as u64 - at), ..whole }
            }
            None => RemoteMemory { addr: whole.addr.wrapping_add(offset), len, ..whole },
        }
    }

    fn work(&self, kind: Kind, (offset, len): (u16, u16), to: RemoteMemory) -> Work {
        let local = self.source.range(offset.into(), usize::from(len).min(to.len as usize));
        match kind {
            Kind::Send => Work::send(local),
            Kind::Write => Work::write(local, to),
            Kind::WriteImm => Work::write(local, to).with_imm(to.len as u32),
            Kind::Read => Work::read(local, to),
            Kind::Recv => Work::recv(local),
            Kind::OwnedSend => Work::send(self.pd.alloc_local(usize::from(len).max(1)).unwrap()),
        }
    }

    fn poll(&mut self) -> Option<Completion> {
        let completion = self.worker.poll().unwrap()?;
        assert!(self.outstanding.remove(&completion.id), "{completion:?} completes nothing");
        Some(completion)
    }

    fn fence(&mut self) {
        let Some((left, right)) = self.pair.take() else { return };
        self.worker.fence(left, Deadline::after(FENCE_WITHIN)).unwrap();
        self.worker.fence(right, Deadline::after(FENCE_WITHIN)).unwrap();
        while self.poll().is_some() {}
        assert!(self.outstanding.is_empty(), "without a completion: {:?}", self.outstanding);
    }

    fn finish(mut self) {
        self.fence();
        let mut bytes = [0; LEN];
        self.guarded.copy_out(0, &mut bytes).unwrap();
        bytes[LENT].fill(CANARY);
        assert_eq!(bytes, [CANARY; LEN], "a peer wrote where it may not");
        for memory in &self.ended {
            assert!(memory.iter().all(|byte| *byte == CANARY), "bytes landed after deregistration");
        }
    }
}
