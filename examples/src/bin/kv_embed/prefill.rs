//! Prefill of a server: computes the blocks of each prompt, and pushes them to the decode that asks.

use anyhow::Result;
use rdma_collective::kv::Request;
use rdma_core::Deadline;
use tokio::io::AsyncReadExt;
use tokio::net::{TcpListener, TcpStream};

use super::server::{Ask, REQUEST_WITHIN, Server, hear, say};

/// Serves decodes for ever: a task for each connection.
pub async fn serve(server: Server, listener: TcpListener) -> Result<()> {
    loop {
        let (stream, _) = listener.accept().await?;
        let server = server.clone();
        tokio::spawn(async move {
            if let Err(error) = answer(&server, stream).await {
                eprintln!("prefill: {error:#}");
            }
        });
    }
}

/// Answers what one connection asks. A decode that gives up closes its connection: the push is dropped then, and so
/// given up, and its blocks are free once the device reads them no more.
async fn answer(server: &Server, mut stream: TcpStream) -> Result<()> {
    match hear(&mut stream).await? {
        // A server has a registry for this, such as etcd.
        Ask::Blob => say(&mut stream, &server.node.export()).await,
        Ask::Prefill { decode, id, blocks } => tokio::select! {
            pushed = prefill(server, &decode, &id, blocks) => say(&mut stream, &pushed?).await,
            _ = stream.read_u8() => Ok(()),
        },
    }
}

/// Computes the blocks of a prompt and pushes them, with the first token as the note.
async fn prefill(server: &Server, decode: &str, id: &str, blocks: usize) -> Result<u64> {
    let blocks = server.blocks.take(blocks).await?;
    let first_token = server.compute(id, &blocks)?;
    let request = Request::new(id).note(&first_token.to_le_bytes());
    let push = server.node.push(decode, request, &*blocks, Deadline::after(REQUEST_WITHIN)).await?;
    Ok(push.await?.bytes)
}
