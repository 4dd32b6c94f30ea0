//! Order of events, and the bound on those that nobody asks for.

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::*;

fn readable(descriptor: BorrowedFd<'_>) -> bool {
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut [PollFd::from_borrowed_fd(descriptor, PollFlags::IN)], Some(&now)).unwrap() == 1
}

/// A library's descriptor, and the events that it has.
struct Library(OwnedFd, VecDeque<AsyncEvent>);

impl Library {
    fn with(count: u8) -> Self {
        let descriptor = eventfd(u32::from(count.min(1)), EventfdFlags::NONBLOCK).unwrap();
        Self(descriptor, (0..count).map(event).collect())
    }

    fn take(&mut self) -> Result<Option<AsyncEvent>, QueryError> {
        let event = self.1.pop_front();
        if self.1.is_empty() {
            let _ = rustix::io::read(&self.0, &mut [0; 8]);
        }
        Ok(event)
    }
}

fn event(port: u8) -> AsyncEvent {
    AsyncEvent::new(EventKind::PORT_ACTIVE, Some(PortNum(port)), None)
}

#[test]
fn what_a_look_finds_is_told_in_order_before_what_comes_later() {
    let mut library = Library::with(3);
    let events = Events::new().unwrap();
    events.watch(library.0.as_fd()).unwrap();
    assert!(readable(events.fd()));
    events.collect(|| library.take());
    assert!(library.1.is_empty() && readable(events.fd()), "whoever sleeps for events is not told");
    library.1.push_back(event(3));
    rustix::io::write(&library.0, &1_u64.to_ne_bytes()).unwrap();
    for port in 0..4 {
        assert!(readable(events.fd()));
        assert_eq!(events.next(|| library.take()).unwrap(), Some(event(port)));
    }
    assert!(!readable(events.fd()));
    assert_eq!(events.next(|| library.take()).unwrap(), None);
}

#[test]
fn what_nobody_asks_for_is_bounded() {
    let mut library = Library::with(0);
    let events = Events::new().unwrap();
    events.watch(library.0.as_fd()).unwrap();
    let mut asked = 0;
    events.collect(|| {
        asked += 1;
        Ok(Some(event(0)))
    });
    assert_eq!(asked, CHECK_MAX);
    for _ in 0..2 * KEPT_MAX {
        events.collect(|| Ok(Some(event(0))));
    }
    let mut kept = 0;
    while events.next(|| library.take()).unwrap().is_some() {
        kept += 1;
    }
    assert_eq!(kept, KEPT_MAX);
    assert!(!readable(events.fd()));
}
