//! Connections of clients, and the time that a client may take: to say its request, and to take its answer.

use std::io::{Error, ErrorKind, IoSlice, Result as IoResult};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context as Wait, Poll};
use std::time::Duration;

use anyhow::{Context, Result};
use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::middleware::from_fn_with_state;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use socket2::{Domain, Protocol, Socket, Type};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::{Sleep, sleep};

use crate::api::refusing;
use crate::bodies::{Bodies, whole};

/// Connections at once, so that a process with the usual 1,024 files has some left. Others wait to be accepted.
const CONNECTIONS_MAX: usize = 768;
/// Pause after a connection that could not be accepted: the process has no file left, or the client was gone.
const PAUSE: Duration = Duration::from_millis(50);

/// A listener at an address. The system ends connections whose client is gone without a word.
///
/// # Errors
///
/// The address is not to be had.
pub fn listen(address: SocketAddr, client_within: Duration) -> Result<TcpListener> {
    let context = || format!("cannot listen on {address}");
    let socket =
        Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP)).with_context(context)?;
    socket.set_reuse_address(true).with_context(context)?;
    socket.set_tcp_user_timeout(Some(client_within)).with_context(context)?;
    socket.bind(&address.into()).with_context(context)?;
    socket.listen(1024).with_context(context)?;
    socket.set_nonblocking(true).with_context(context)?;
    Ok(TcpListener::from_std(socket.into())?)
}

/// Answers requests, for ever. A connection ends when its client takes longer than the time of `bodies` for the head of
/// a request, its body, or what was said to it.
///
/// # Errors
///
/// Never: a connection that fails is the loss of its client alone.
pub async fn serve(listener: TcpListener, routes: Router, bodies: Bodies) -> Result<()> {
    // The limit of `whole` is the only one.
    let client_within = bodies.within;
    let routes = refusing(routes).layer(DefaultBodyLimit::disable()).layer(from_fn_with_state(bodies, whole));
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(client_within);
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        let place = Arc::clone(&places).acquire_owned().await?;
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::warn!(%error, "a client was not accepted");
                sleep(PAUSE).await;
                continue;
            }
        };
        // Without it a token waits for the acknowledgement of the one before.
        _ = stream.set_nodelay(true);
        let client = Client { stream, within: client_within, stalled: None };
        let connection =
            http.serve_connection(TokioIo::new(client), TowerToHyperService::new(routes.clone()));
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(%error, "a connection has ended");
            }
            drop(place);
        });
    }
}

/// A connection, which fails when its client does not keep up.
struct Client {
    stream: TcpStream,
    within: Duration,
    /// The end of the client's time, while it has not taken all that was said. A part that it takes does not count:
    /// otherwise a client that takes a byte a second would have its connection for ever.
    stalled: Option<Pin<Box<Sleep>>>,
}

impl Client {
    /// Bounds the time of a write of `all` bytes.
    fn bounded(
        &mut self,
        written: Poll<IoResult<usize>>,
        all: usize,
        wait: &mut Wait<'_>,
    ) -> Poll<IoResult<usize>> {
        match &written {
            Poll::Ready(Ok(count)) if *count == all => self.stalled = None,
            Poll::Ready(Err(_)) => {}
            _ => {
                let within = self.within;
                let stalled = self.stalled.get_or_insert_with(|| Box::pin(sleep(within)));
                if stalled.as_mut().poll(wait).is_ready() {
                    return Poll::Ready(Err(Error::new(
                        ErrorKind::TimedOut,
                        "the client does not read its answer",
                    )));
                }
            }
        }
        written
    }
}

impl AsyncRead for Client {
    fn poll_read(
        mut self: Pin<&mut Self>,
        wait: &mut Wait<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<IoResult<()>> {
        Pin::new(&mut self.stream).poll_read(wait, into)
    }
}

impl AsyncWrite for Client {
    fn poll_write(mut self: Pin<&mut Self>, wait: &mut Wait<'_>, bytes: &[u8]) -> Poll<IoResult<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(wait, bytes);
        self.bounded(written, bytes.len(), wait)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        wait: &mut Wait<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<IoResult<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(wait, parts);
        self.bounded(written, parts.iter().map(|part| part.len()).sum(), wait)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, wait: &mut Wait<'_>) -> Poll<IoResult<()>> {
        Pin::new(&mut self.stream).poll_flush(wait)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, wait: &mut Wait<'_>) -> Poll<IoResult<()>> {
        Pin::new(&mut self.stream).poll_shutdown(wait)
    }
}
