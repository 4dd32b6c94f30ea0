//! Entry points of the fuzz targets. Each takes any bytes, and panics when a property of the parser does not
//! hold.

/// Parses `data` as frames of the software device's TCP wire.
pub fn message(data: &[u8]) {
    crate::backend::soft::fuzz::message(data);
}

/// Parses `data` as packets of the rendezvous, by which processes of one host set up the mapped wire.
pub fn rendezvous(data: &[u8]) {
    crate::backend::soft::rendezvous_fuzz::packet(data);
}

/// Reads `data` as posts, and as completions of a device with any number in any field.
pub fn completions(data: &[u8]) {
    crate::backend::worker::fuzz::completions(data);
}

/// Reads `data` as asynchronous events of libibverbs, with any number in any field.
pub fn events(data: &[u8]) {
    crate::backend::ibverbs::event::fuzz::events(data);
}
