//! TCP ports for servers of tests.

use std::net::TcpListener;
use std::process;
use std::sync::atomic::{AtomicU32, Ordering};

/// The first port, and how many follow: below those that the system gives to clients (`ip_local_port_range`), one of
/// which the client of another test may have before the server listens.
const PORTS: [u32; 2] = [10_000, 20_000];

/// Returns a TCP port that nobody listens on, another one at each call.
pub fn free_port() -> u16 {
    static CALLS: AtomicU32 = AtomicU32::new(0);
    let own = process::id().wrapping_mul(64);
    let port = |call: u32| (PORTS[0] + own.wrapping_add(call) % PORTS[1]) as u16;
    let mut ports = (0..PORTS[1]).map(|_| port(CALLS.fetch_add(1, Ordering::Relaxed)));
    ports.find(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok()).expect("a free port")
}
