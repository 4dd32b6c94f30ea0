//! Models of the gate: its holder, the handle of a deferred operation and the engine's thread, in every order.

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;

use super::super::links;
use super::*;
use crate::engine::EngineId;

/// A communicator: its gate, the lock of its state, and what one operation at a time may use.
struct Model {
    gate: FastPathGate,
    state: Mutex<()>,
    memory: UnsafeCell<u32>,
}

impl Model {
    fn new() -> Arc<Self> {
        let gate = FastPathGate::new(elsewhere(links::scratch));
        Arc::new(Self { gate, state: Mutex::new(()), memory: UnsafeCell::new(0) })
    }

    /// Carries an operation out. Loom fails the model if another one is under way at this moment.
    fn operate(&self) {
        self.memory.with_mut(|_memory| ());
    }

    fn defer(&self) {
        let (deadline, started) = (Deadline::after(Duration::from_secs(60)), Instant::now());
        self.gate.count();
        let job = elsewhere(|| Box::new(Job::of_nothing(EngineId::new())));
        self.gate.defer(DeferredOp { id: 0, job, deadline, started });
    }

    /// As [`State`](super::super::state::State) does in one hold of its lock: adopts the operation, and ends it.
    fn advance(&self, taken: impl FnOnce(&FastPathGate) -> Option<DeferredOp>) -> bool {
        let _state = self.state.lock().unwrap();
        let taken = taken(&self.gate);
        if taken.is_some() {
            self.gate.on(Event::Adopt);
            self.operate();
            self.gate.on(Event::Last);
        }
        taken.is_some()
    }

    /// As [`Shared`](super::super::shared::Shared) does.
    fn hand_to_engine(&self) -> bool {
        if !self.gate.is(Progress::Deferred) {
            return false;
        }
        drop(self.gate.slot());
        self.gate.is(Progress::Deferred) && self.advance(FastPathGate::take)
    }
}

/// Makes something large in a thread of its own, because loom's threads have stacks of some KiB.
fn elsewhere<T: Send + 'static>(make: fn() -> T) -> T {
    std::thread::spawn(make).join().unwrap()
}

fn spawn(model: &Arc<Model>, with: impl FnOnce(&Model) -> bool + 'static) -> thread::JoinHandle<bool> {
    let model = Arc::clone(model);
    thread::spawn(move || with(&model))
}

#[test]
fn loom_a_deferred_operation_is_ended_once_and_the_next_begins_after_it() {
    loom::model(|| {
        let model = Model::new();
        model.defer();
        let handle = spawn(&model, |model| {
            let looked = |_: &mut DeferredOp, _: &mut Scratch| {
                model.operate();
                true
            };
            model.gate.is(Progress::Deferred) && model.gate.finish(0, looked).is_some()
        });
        let engine =
            spawn(&model, |model| model.advance(|gate| gate.take_due(Instant::now() + HANDOVER_DELAY)));
        let handed = model.hand_to_engine();
        assert!(!model.gate.is(Progress::Deferred), "the operation was not handed over");
        // The engine's thread may still be at it; then the next one goes behind it, and not on the fast path.
        if model.gate.is_open() {
            assert_eq!(model.gate.sequence(), 1);
            model.operate();
        }
        let ended = [handle.join().unwrap(), engine.join().unwrap(), handed];
        assert_eq!(ended.into_iter().filter(|ended| *ended).count(), 1, "{ended:?}");
    });
}

/// An operation fails in the engine's thread, which tells the failure before or after the operation's end.
fn fails(told_first: bool) {
    loom::model(move || {
        let model = Model::new();
        model.gate.on(Event::Queue);
        model.gate.on(Event::Begin);
        // The engine is in the first thread, because loom misses values that a first thread may load.
        let holder = spawn(&model, |model| {
            assert!(!model.gate.is_open(), "a call begins behind a failure");
            true
        });
        let tell = |now| {
            if now {
                model.gate.set_failed(true);
            }
        };
        tell(told_first);
        model.gate.on(Event::Last);
        tell(!told_first);
        assert!(holder.join().unwrap());
    });
}

#[test]
fn loom_no_call_begins_behind_a_failure() {
    fails(true);
}

#[test]
#[should_panic = "a call begins behind a failure"]
fn loom_a_failure_that_is_told_late_is_caught() {
    fails(false);
}
