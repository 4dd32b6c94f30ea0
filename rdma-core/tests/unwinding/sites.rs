//! Every place that writes a line, and how a test reaches it.

use std::fmt;

use super::{cases, on_device, stopped};

/// A place that writes a line.
#[derive(Debug)]
pub struct Site {
    /// The file, from the folder `src`.
    pub file: &'static str,
    /// The text of the line as it is in the source.
    pub message: &'static str,
    pub reached: Reached,
}

/// How a test reaches a place.
#[derive(Clone, Copy)]
pub enum Reached {
    /// By this case, on the software device.
    Here(fn()),
    /// By this case, on a device of libibverbs.
    OnDevice(fn()),
    /// Not, on a device of libibverbs, for this reason.
    NotOnDevice(&'static str),
    /// Not, for this reason.
    Never(&'static str),
}

impl fmt::Debug for Reached {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Here(_) => f.write_str("here"),
            Self::OnDevice(_) => f.write_str("on a device"),
            Self::NotOnDevice(reason) | Self::Never(reason) => f.write_str(reason),
        }
    }
}

use Reached::{Here, Never, NotOnDevice, OnDevice};

const fn site(file: &'static str, message: &'static str, reached: Reached) -> Site {
    Site { file, message, reached }
}

pub const SITES: &[Site] = &[
    site("log/mod.rs", "more log lines came at once than are kept", Never("log/tests.rs floods a hold")),
    site(
        "memory/exported.rs",
        "memory is quarantined until the stopped peer goes on or ends",
        Here(stopped::quarantines_an_export),
    ),
    site(
        "memory/exported.rs",
        "a peer's right could not be revoked; the memory is leaked, not freed",
        Here(cases::leaks_an_export),
    ),
    site(
        "memory/registered/mod.rs",
        "memory is quarantined until the stopped peer goes on or ends",
        Here(stopped::quarantines_a_region),
    ),
    site(
        "memory/registered/mod.rs",
        "deregistration failed; the memory is leaked, not freed",
        Here(cases::leaks_a_region),
    ),
    site(
        "memory/quarantine/mod.rs",
        "the quarantine thread did not start; memory is released only by calls of quarantined()",
        Here(stopped::quarantines_without_a_thread),
    ),
    site(
        "memory/kinds/allocated/mod.rs",
        "munmap failed; the mapping is leaked",
        Here(cases::memory_cannot_be_unmapped),
    ),
    site(
        "memory/kinds/foreign/mod.rs",
        "the caller's memory is leaked, not freed, because its own pages could not be put back",
        Here(cases::leaks_shared_pages),
    ),
    site(
        "verbs/queue_pair/connect.rs",
        "a queue pair that failed to connect could not be fenced; it stays until its worker is dropped",
        Here(cases::gives_up_with_another_worker),
    ),
    site("backend/register.rs", "the caller's memory is shared in place", Here(cases::shares_in_place)),
    site(
        "backend/register.rs",
        "the caller's memory is not shared; peers reach it over TCP",
        Here(cases::adopts_memory),
    ),
    site(
        "backend/worker/mod.rs",
        "a queue pair could not be destroyed; its memory in flight is leaked",
        Here(stopped::leaks_a_queue_pair),
    ),
    site(
        "backend/worker/fence.rs",
        "the completion queue cannot be polled during a fence; outstanding requests are reported as flushed",
        Here(cases::fences_after_an_overrun),
    ),
    site(
        "backend/soft/device.rs",
        "processes of this host reach the device over TCP alone",
        Here(cases::device_is_not_published),
    ),
    site(
        "backend/soft/driver.rs",
        "the thread of the software devices panicked, and goes on: please report this defect",
        Never("only a defect panics there; its unit test plants one"),
    ),
    site(
        "backend/soft/event.rs",
        "the event queue of a context is full and events are dropped: take them with Context::next_event",
        Here(cases::drops_events),
    ),
    site(
        "backend/soft/shared_exports/mod.rs",
        "a key was drawn whose slot of the key table is taken; peers cannot use it",
        Never("a key is drawn again until its slot is free, under the same hold of the lock"),
    ),
    site(
        "backend/soft/wire/tcp/accept.rs",
        "a listener cannot be watched any more",
        Here(cases::tcp_listener_cannot_be_watched),
    ),
    site("backend/soft/wire/tcp/mod.rs", "a connection is over", Here(cases::tcp_stranger_leaves)),
    site("backend/soft/wire/tcp/mod.rs", "{what}", Here(cases::tcp_stranger_talks_garbage)),
    site("backend/soft/wire/tcp/mod.rs", "no connection to the peer", Here(cases::tcp_peer_cannot_be_called)),
    site(
        "backend/soft/wire/shm/rendezvous/connection.rs",
        "a neighbour has left",
        Here(cases::neighbour_leaves),
    ),
    site("backend/soft/wire/shm/rendezvous/connection.rs", "{what}", Here(cases::neighbour_talks_garbage)),
    site(
        "backend/soft/wire/shm/rendezvous/mod.rs",
        "a listener of the mapped wire cannot be watched any more",
        Here(cases::mapped_listener_cannot_be_watched),
    ),
    site(
        "backend/soft/wire/shm/segment/mod.rs",
        "munmap of a shared segment failed; the mapping is leaked",
        Here(cases::memory_cannot_be_unmapped),
    ),
    site(
        "backend/soft/wire/mapped/rendezvous_host.rs",
        "a peer of this host cannot be invited; that peer takes another wire",
        Here(cases::peer_cannot_be_invited),
    ),
    site(
        "backend/soft/wire/mapped/rendezvous_host.rs",
        "the rendezvous connection of a peer of this host has ended",
        Here(cases::mapped_peer_goes),
    ),
    site(
        "backend/soft/wire/mapped/rendezvous_host.rs",
        "a peer of this host is gone",
        Here(cases::mapped_peer_goes),
    ),
    site(
        "backend/soft/wire/mapped/requester.rs",
        "the peer is not mapped; requests go over TCP",
        Here(cases::writes_to_unmapped_memory),
    ),
    site(
        "backend/soft/wire/mapped/requester.rs",
        "the peer is not mapped, and the device takes no other wire",
        Here(cases::peer_answers_garbage),
    ),
    site(
        "backend/ibverbs/qp.rs",
        "ibv_destroy_qp failed; the queue pair is leaked",
        OnDevice(on_device::objects_are_not_destroyed),
    ),
    site(
        "backend/ibverbs/pd.rs",
        "ibv_dealloc_pd failed; the domain is leaked",
        OnDevice(on_device::domain_is_not_deallocated),
    ),
    site(
        "backend/ibverbs/channel.rs",
        "ibv_destroy_comp_channel failed; the channel is leaked",
        OnDevice(on_device::objects_are_not_destroyed),
    ),
    site(
        "backend/ibverbs/cq.rs",
        "ibv_destroy_cq failed; the queue is leaked",
        OnDevice(on_device::objects_are_not_destroyed),
    ),
    site(
        "backend/ibverbs/context.rs",
        "ibv_close_device failed; the device stays open until the process ends",
        NotOnDevice("every release of libibverbs returns 0"),
    ),
    site(
        "backend/ibverbs/event/mod.rs",
        "the event queue of a context is full and an event is dropped: take them with Context::next_event",
        NotOnDevice("a thousand events of a device take longer than a case may"),
    ),
    site(
        "backend/ibverbs/explain/mod.rs",
        "this registration may fail: {diagnosis}",
        NotOnDevice(
            "the suite runs as root, whom no limit binds; the line comes before the call, with nothing held",
        ),
    ),
    site(
        "backend/ibverbs/gid/mod.rs",
        "the library returned no GID table; sysfs is read instead",
        NotOnDevice("whatever refuses the table refuses the query of the port before it"),
    ),
];
