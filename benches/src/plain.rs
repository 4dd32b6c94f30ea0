//! A plain sender and receiver over TCP, and a plain ping-pong: the most that sockets give a program that does nothing
//! else.
//!
//! The options of the sockets are those of the software device: no delay, buffers left to the kernel.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

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

/// Sends `rounds` messages of `size` bytes after a quarter as many others, each when the one before it is answered.
/// Says the median of half a round trip in seconds. A `polling` end never sleeps.
///
/// # Errors
///
/// When a socket fails.
pub fn ping(size: usize, rounds: u32, polling: bool) -> io::Result<()> {
    let address = pair::introduce("-")?;
    let mut stream = TcpStream::connect(address)?;
    stream.set_nodelay(true)?;
    stream.set_nonblocking(polling)?;
    let mut message = vec![1; size];
    let mut times = Vec::new();
    for round in 0..rounds + rounds / 4 {
        let begin = Instant::now();
        write(&mut stream, &message)?;
        read(&mut stream, &mut message)?;
        if round >= rounds / 4 {
            times.push(begin.elapsed());
        }
    }
    times.sort_unstable();
    let median = times.get(times.len() / 2).copied().unwrap_or(Duration::ZERO);
    pair::say(&(median.as_secs_f64() / 2.0).to_string())
}

/// Answers every message of `size` bytes, until the other end is gone.
///
/// # Errors
///
/// When a socket fails.
pub fn pong(size: usize, polling: bool) -> io::Result<()> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    pair::introduce(&listener.local_addr()?.to_string())?;
    let (mut stream, _) = listener.accept()?;
    stream.set_nodelay(true)?;
    stream.set_nonblocking(polling)?;
    let mut message = vec![0; size];
    while read(&mut stream, &mut message).is_ok() {
        write(&mut stream, &message)?;
    }
    pair::stay()
}

/// Reads a whole message; a socket that does not block is read again and again.
fn read(stream: &mut TcpStream, mut rest: &mut [u8]) -> io::Result<()> {
    while !rest.is_empty() {
        match stream.read(rest) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(count) => rest = &mut rest[count..],
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Writes a whole message, which is short enough for the socket's buffer.
fn write(stream: &mut TcpStream, mut rest: &[u8]) -> io::Result<()> {
    while !rest.is_empty() {
        match stream.write(rest) {
            Ok(count) => rest = &rest[count..],
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
