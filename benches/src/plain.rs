//! A plain sender and receiver over TCP: the most that sockets give a program that does nothing else.
//!
//! The options of the sockets are those of the software device: no delay, buffers left to the kernel.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::time::Instant;

use crate::pair;

/// Sends `messages` of `size` bytes after `warm_up` others, and says the seconds from the
/// first until the receiver has confirmed the last.
///
/// # Errors
///
/// When a socket fails.
pub fn send(size: usize, messages: u64, warm_up: u64) -> io::Result<()> {
    let address = pair::introduce("-")?;
    let mut stream = TcpStream::connect(address)?;
    stream.set_nodelay(true)?;
    let message = vec![1; size];
    let mut seconds = 0.0;
    for count in [warm_up, messages] {
        stream.write_all(&count.to_le_bytes())?;
        let begin = Instant::now();
        for _ in 0..count {
            stream.write_all(&message)?;
        }
        stream.read_exact(&mut [0])?;
        seconds = begin.elapsed().as_secs_f64();
    }
    pair::say(&seconds.to_string())
}

/// Receives into one buffer, a message after the other, and confirms the last.
///
/// # Errors
///
/// When a socket fails.
pub fn receive(size: usize) -> io::Result<()> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    pair::introduce(&listener.local_addr()?.to_string())?;
    let (mut stream, _) = listener.accept()?;
    stream.set_nodelay(true)?;
    let mut message = vec![0; size];
    for _ in 0..2 {
        let mut count = [0; 8];
        stream.read_exact(&mut count)?;
        for _ in 0..u64::from_le_bytes(count) {
            stream.read_exact(&mut message)?;
        }
        stream.write_all(&[1])?;
    }
    pair::stay()
}
