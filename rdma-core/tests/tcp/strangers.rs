//! Strangers at a device's listener do no harm.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddrV4, TcpStream};
use std::time::Duration;

use rdma_core::Work;

use super::end::{self, End};

/// Returns the address at which the device of `end` listens; it is in the GID that `end` sends from.
fn listener(end: &End) -> SocketAddrV4 {
    let gid = end.context.gids(rdma_core::PortNum(1)).unwrap()[1].gid.0;
    let ip: [u8; 4] = gid[12..].try_into().unwrap();
    SocketAddrV4::new(Ipv4Addr::from(ip), u16::from_be_bytes([gid[6], gid[7]]))
}

#[test]
fn garbage_silence_and_crowds_at_the_listener_do_not_disturb_traffic() {
    let (mut a, b) = End::pair();
    let target = b.region(1 << 20);
    let crowd: Vec<_> = (0..200).map(|_| TcpStream::connect(listener(&b)).unwrap()).collect();
    a.transfer(Work::write(a.filled(1 << 20, 1), target.remote()));
    for said in [
        &b"GET / HTTP/1.1\r\n\r\n"[..],
        b"rdmasoft\x63\0 another version, and more than a hello has",
        &[0xff; 1 << 16],
    ] {
        let mut stranger = TcpStream::connect(listener(&b)).unwrap();
        stranger.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        // The other end may close the connection first, so an error is fine.
        let _ = stranger.write_all(said);
        let answer = stranger.read(&mut [0; 16]);
        assert!(!answer.as_ref().is_ok_and(|n| *n > 0), "a stranger was answered");
        assert!(
            !answer.is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock),
            "a stranger was kept"
        );
        a.transfer(Work::write(a.filled(1 << 20, 2), target.remote()));
    }
    end::assert_holds(&target, 0..1 << 20, 2);
    drop(crowd);
    a.transfer(Work::write(a.filled(1 << 20, 3), target.remote()));
    end::assert_holds(&target, 0..1 << 20, 3);
}
