//! Decode of a server: asks prefill for the blocks of each request, and has them when the transfer ends.

use std::net::SocketAddr;
use std::pin::pin;

use anyhow::{Context, Result, ensure};
use rdma_core::Deadline;
use tokio::net::TcpStream;

use super::server::{Ask, REQUEST_WITHIN, Server, hear, say};

/// A prefill that this decode has met.
#[derive(Clone)]
pub struct Prefill {
    name: String,
    address: SocketAddr,
}

impl Prefill {
    /// Meets the prefill at that address.
    pub async fn meet(server: &Server, address: SocketAddr) -> Result<Self> {
        let mut stream = TcpStream::connect(address).await?;
        say(&mut stream, &Ask::Blob).await?;
        let blob: Vec<u8> = hear(&mut stream).await?;
        let name = server.node.connect(&blob, Deadline::after(REQUEST_WITHIN)).await?;
        Ok(Self { name: name.to_string(), address })
    }
}

/// Has one request prefilled, and returns its first token.
///
/// Drop this future to abort the request: the grant is given up, prefill sees the connection end and gives its push up,
/// and no byte lands in the blocks once they are taken anew.
pub async fn request(server: &Server, prefill: &Prefill, id: &str, count: usize) -> Result<u32> {
    let blocks = server.blocks.take(count).await?;
    let mut grant = server.node.grant(&prefill.name, id, &*blocks, Deadline::after(REQUEST_WITHIN)).await?;
    let mut stream = TcpStream::connect(prefill.address).await?;
    let decode = server.node.name().to_string();
    say(&mut stream, &Ask::Prefill { decode, id: id.to_owned(), blocks: count }).await?;
    let mut answer = pin!(hear::<u64>(&mut stream));
    let received = tokio::select! {
        received = &mut grant => received?,
        // A prefill that fails closes the connection.
        pushed = &mut answer => {
            pushed.with_context(|| format!("prefill did not push request {id}"))?;
            grant.await?
        }
    };
    ensure!(received.verdicts.all_valid(), "request {id}: {:?}", received.verdicts);
    let first_token = received.note.try_into().ok().context("prefill sends the first token")?;
    server.check(id, &blocks)?;
    Ok(u32::from_le_bytes(first_token))
}
