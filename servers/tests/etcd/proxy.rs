//! A wire to etcd that can be cut.

use std::net::SocketAddr;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// A proxy. While it is cut, connections stay open and carry nothing, as those of a network that drops all packets do.
pub struct Proxy {
    /// The address that it has in the place of the true one.
    pub address: SocketAddr,
    cut: watch::Sender<bool>,
}

impl Proxy {
    /// A proxy for an address.
    pub async fn start(to: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (cut, is_cut) = watch::channel(false);
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                tokio::spawn(carry(stream, to, is_cut.clone()));
            }
        });
        Self { address, cut }
    }

    /// Cuts the wire, or mends it.
    pub fn cut(&self, cut: bool) {
        self.cut.send(cut).unwrap();
    }
}

/// Carries bytes until the wire is cut, and is silent then until it is mended, as packets that were lost.
async fn carry(mut stream: TcpStream, to: SocketAddr, mut is_cut: watch::Receiver<bool>) {
    let carried = async {
        if !*is_cut.borrow() {
            let Ok(mut target) = TcpStream::connect(to).await else { return };
            let mut until_cut = is_cut.clone();
            tokio::select! {
                _ = tokio::io::copy_bidirectional(&mut stream, &mut target) => return,
                _ = until_cut.wait_for(|cut| *cut) => {}
            }
        }
        _ = is_cut.wait_for(|cut| !cut).await;
    };
    carried.await;
}
