//! A subscriber that does at each line of the library what a program's may do.

use std::sync::{Mutex, OnceLock, PoisonError};

use tracing::{Event, Id, Metadata, Subscriber, span, subscriber};

use super::ground;
use super::sources::Written;

/// The text of every planted panic.
pub const PLANTED: &str = "planted in a subscriber";

/// The act of the subscriber when the library has a line for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Behaviour {
    /// Panics when it is given the line, as printing to a closed pipe does. Dropping the panic's payload panics, too.
    PanicsInEvent,
    /// Panics when it is asked whether it wants the line.
    PanicsInEnabled,
    /// Panics when it first hears of the place.
    PanicsInRegister,
    /// Calls the library when it is given the line.
    CallsBack,
}

impl Behaviour {
    pub const ALL: [Self; 4] =
        [Self::PanicsInEvent, Self::PanicsInEnabled, Self::PanicsInRegister, Self::CallsBack];

    pub fn name(self) -> String {
        format!("{self:?}")
    }

    pub fn named(name: &str) -> Self {
        Self::ALL.into_iter().find(|it| it.name() == name).expect("a behaviour")
    }
}

static BEHAVIOUR: OnceLock<Behaviour> = OnceLock::new();
/// The place that the case is about.
static PLACE: OnceLock<Written> = OnceLock::new();
static LINES: Mutex<Vec<(String, u32)>> = Mutex::new(Vec::new());

/// Takes all lines of this process from now on.
pub fn install(behaviour: Behaviour, place: Written) {
    BEHAVIOUR.set(behaviour).unwrap();
    PLACE.set(place).unwrap();
    subscriber::set_global_default(Planted).unwrap();
}

/// The places that lines came from.
pub fn lines() -> Vec<(String, u32)> {
    LINES.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

/// Whether the place that the case is about has written its line.
pub fn is_reached() -> bool {
    let Written { file, line, .. } = PLACE.get().unwrap();
    lines().iter().any(|(found, at)| found.ends_with(&format!("/src/{file}")) && at == line)
}

/// A payload whose destructor panics.
struct Payload;

impl Drop for Payload {
    fn drop(&mut self) {
        panic!("{PLANTED}");
    }
}

struct Planted;

impl Planted {
    fn at(&self, step: Behaviour, metadata: &Metadata<'_>) {
        if BEHAVIOUR.get() != Some(&step) || !metadata.target().starts_with("rdma_core") {
            return;
        }
        let place = (metadata.file().unwrap_or("").to_owned(), metadata.line().unwrap_or(0));
        LINES.lock().unwrap_or_else(PoisonError::into_inner).push(place);
        match step {
            Behaviour::CallsBack => ground::call_back(),
            _ => std::panic::panic_any(Payload),
        }
    }
}

impl Subscriber for Planted {
    fn register_callsite(&self, metadata: &'static Metadata<'static>) -> subscriber::Interest {
        self.at(Behaviour::PanicsInRegister, metadata);
        subscriber::Interest::sometimes()
    }

    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        self.at(Behaviour::PanicsInEnabled, metadata);
        true
    }

    fn event(&self, event: &Event<'_>) {
        self.at(Behaviour::PanicsInEvent, event.metadata());
        self.at(Behaviour::CallsBack, event.metadata());
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> Id {
        panic!("the library has no spans")
    }

    fn record(&self, _: &Id, _: &span::Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}
