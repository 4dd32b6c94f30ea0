//! Directories that are away, slow, lie or say garbage cost servers nothing but the servers that they do not name.

#[path = "directory/bad.rs"]
mod bad;
#[path = "directory/file.rs"]
mod file;
#[path = "directory/members.rs"]
mod members;
#[path = "directory/options.rs"]
mod options;
#[path = "directory/store.rs"]
mod store;
mod support;

use rdma_collective::bootstrap::JobToken;
use servers::directory::{Entry, Role};

fn token() -> JobToken {
    support::TOKEN.parse().unwrap()
}

/// The entry of a server that nobody can reach.
fn entry(name: &str, role: Role) -> Entry {
    Entry { name: name.to_owned(), role, http: "127.0.0.1:9".to_owned(), blob: String::new(), until: 0 }
}
