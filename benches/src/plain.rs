//! A plain sender and receiver over TCP: the most that sockets give a program that does nothing else.
//!
//! The options of the sockets are those of the software device: no delay, buffers left to the kernel.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::time::Instant;

use crate::ends::Wait;
use crate::pair;
use crate::samples::median_of;
use crate::soft::Outcome;

/// Round trips between two looks at the clock.
const BATCH: u32 = 8;

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

/// Sends messages of `size` bytes, the next when the last was answered, and says the seconds of one way.
///
/// # Errors
///
/// When a socket fails, or the other end is gone.
pub fn ping(size: usize, wait: Wait) -> Outcome<()> {
    let address = pair::introduce("-")?;
    let mut stream = waiting(TcpStream::connect(address)?, wait)?;
    let mut message = vec![1; size];
    let seconds = median_of(|| {
        for _ in 0..BATCH {
            whole(size, |done| stream.write(&message[done..]))?;
            if !whole(size, |done| stream.read(&mut message[done..]))? {
                return Err("the other end is gone".into());
            }
        }
        Ok(())
    })?;
    drop(stream);
    Ok(pair::say(&(seconds / f64::from(2 * BATCH)).to_string())?)
}

/// Answers messages until the other end closes.
///
/// # Errors
///
/// When a socket fails.
pub fn pong(size: usize, wait: Wait) -> io::Result<()> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    pair::introduce(&listener.local_addr()?.to_string())?;
    let mut stream = waiting(listener.accept()?.0, wait)?;
    let mut message = vec![0; size];
    while whole(size, |done| stream.read(&mut message[done..]))? {
        whole(size, |done| stream.write(&message[done..]))?;
    }
    pair::stay()
}

fn waiting(stream: TcpStream, wait: Wait) -> io::Result<TcpStream> {
    stream.set_nodelay(true)?;
    stream.set_nonblocking(wait == Wait::Polling)?;
    Ok(stream)
}

/// Goes on until all bytes are through, and says whether they are: not when the other end has closed before.
fn whole(size: usize, mut part: impl FnMut(usize) -> io::Result<usize>) -> io::Result<bool> {
    let mut done = 0;
    while done < size {
        match part(done) {
            Ok(0) => return Ok(false),
            Ok(more) => done += more,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    Ok(true)
}
