//! Servers that find each other by etcd, which comes late, stops, dies, loses its data and is cut off.

#[path = "etcd/daemon.rs"]
mod daemon;
#[path = "etcd/keys.rs"]
mod keys;
#[path = "etcd/lost.rs"]
mod lost;
#[path = "etcd/proxy.rs"]
mod proxy;
mod support;
