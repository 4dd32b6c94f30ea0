//! Server and clients over loopback sockets.

mod meeting;
mod refusals;
mod scale;
mod strangers;
mod two_jobs;

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use rdma_core::Deadline;

use super::frame::Frame;
use super::message::{Hello, Request};
use super::*;
use crate::bootstrap::{BootstrapError, FrameError};

/// Long enough for any machine; no test waits for it to end.
const LONG: Duration = Duration::from_secs(60);
const SHORT: Duration = Duration::from_millis(300);
/// For waits that the store ends an eighth before: a busy machine may be late by that.
const SECOND: Duration = Duration::from_secs(1);
const TOKEN: JobToken = JobToken::from_bytes([3; 16]);

fn long() -> Deadline {
    Deadline::after(LONG)
}

fn any_port() -> SocketAddr {
    "127.0.0.1:0".parse().unwrap()
}

fn server(world: u32) -> StoreServer {
    StoreServer::bind(any_port(), StoreOptions::new(TOKEN, world)).unwrap()
}

fn join(server: &StoreServer, rank: u32, world: u32) -> Join {
    Join { address: server.address(), token: TOKEN, rank, world }
}

fn client(server: &StoreServer, rank: u32, world: u32) -> StoreClient {
    StoreClient::connect(join(server, rank, world), long()).unwrap()
}

/// A connection that sends nothing by itself.
fn stranger(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(LONG)).unwrap();
    stream
}

/// Waits until the server drops the stranger; a reset is as good as an end.
fn assert_dropped(mut stream: &TcpStream) {
    let mut buffer = [0; 256];
    loop {
        match stream.read(&mut buffer) {
            Ok(0) => return,
            Ok(_) => {}
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => return,
            Err(error) => panic!("not dropped: {error}"),
        }
    }
}

fn hello(rank: u32) -> Frame {
    let run = message::run_hash("");
    Request::Hello(Hello { token: TOKEN, rank, world: 2, attempt: 1, run, pid: 1 }).encode(0)
}

/// Joins as `rank` by bytes alone, and returns the job's number.
fn join_by_hand(mut stream: &TcpStream, rank: u32) -> u64 {
    stream.write_all(&hello(rank).encode()).unwrap();
    let mut welcome = [0; frame::HEADER_BYTES + 8];
    stream.read_exact(&mut welcome).unwrap();
    u64::from_le_bytes(*welcome.last_chunk().unwrap())
}
