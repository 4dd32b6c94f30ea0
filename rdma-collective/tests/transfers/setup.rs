//! KV links that cannot be: pools and jobs that do not go together, and strangers where peers meet.

use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

use crate::common::long;
use crate::pair::{CANARY, SHAPE, TOKEN, engine, pool, source_byte};
use rdma_collective::bootstrap::JobToken;
use rdma_collective::kv::LinkError;
use rdma_collective::kv::layout::{Attention, CacheType, Shape, TensorParallel};
use rdma_collective::kv::{Decode, LinkOptions, PoolUse, Prefill};
use rdma_collective::link::Meet;
use rdma_core::{Deadline, Wire};

/// The errors of both ends of a link that cannot be set up.
fn refused(source: Shape, destination: Shape, tokens: [JobToken; 2]) -> [LinkError; 2] {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let soon = || Deadline::after(Duration::from_secs(3));
    let options = LinkOptions::default();
    thread::scope(|scope| {
        let prefill = scope.spawn(move || {
            let engine = engine(Wire::Local, None);
            let pool = pool(&engine, source, PoolUse::Source, source_byte);
            let meet = Meet::Connect(address);
            Prefill::new(&engine, &pool, &meet, &tokens[0], &LinkOptions::default(), soon()).unwrap_err()
        });
        let engine = engine(Wire::Local, None);
        let pool = pool(&engine, destination, PoolUse::Destination, |_, _, _| CANARY);
        let meet = Meet::Accept(&listener);
        let decode = Decode::new(&engine, &pool, &meet, &tokens[1], &options, soon()).unwrap_err();
        [prefill.join().unwrap(), decode]
    })
}

#[test]
fn pools_that_do_not_match_are_refused_with_the_field() {
    for (other, field) in [
        (Shape { block_tokens: 3, ..SHAPE }, "tokens a block"),
        (
            Shape { attention: Attention::Grouped { kv_heads: 1, head_dim: 16 }, ..SHAPE },
            "1 key-value heads of 16",
        ),
        (Shape { cache_type: CacheType::Fp8E4m3, ..SHAPE }, "fp8_e4m3"),
    ] {
        for error in refused(other, SHAPE, [TOKEN; 2]) {
            assert!(matches!(error, LinkError::Layout(_)) && error.to_string().contains(field), "{error}");
        }
    }
}

#[test]
fn ranks_without_a_common_head_are_refused_with_the_ranks_that_have_one() {
    let rank = |rank| Shape { tensor_parallel: TensorParallel { rank, size: 2 }, ..SHAPE };
    for error in refused(rank(1), rank(0), [TOKEN; 2]) {
        let text = error.to_string();
        assert!(
            text.contains("rank 0 of 2 takes no head from rank 1 of 2") && text.contains("[0]"),
            "{text}"
        );
    }
}

#[test]
fn another_job_is_refused() {
    let [prefill, decode] = refused(SHAPE, SHAPE, [JobToken::from_bytes([9; 16]), TOKEN]);
    assert!(prefill.to_string().contains("another job"), "{prefill}");
    assert!(decode.to_string().contains("no process of this job"), "{decode}");
}

#[test]
fn a_pool_for_another_use_is_refused_before_anybody_is_met() {
    let engine = engine(Wire::Local, None);
    let pool = pool(&engine, SHAPE, PoolUse::Destination, |_, _, _| CANARY);
    let meet = Meet::Connect(SocketAddr::from(([127, 0, 0, 1], 9)));
    let error = Prefill::new(&engine, &pool, &meet, &TOKEN, &LinkOptions::default(), long()).unwrap_err();
    assert!(matches!(error, LinkError::WrongUse { .. }), "{error}");
}

#[test]
fn garbage_oversized_half_open_and_slow_bytes_on_the_socket_do_not_keep_the_peer_from_connecting() {
    use std::io::Write;
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    for garbage in [&b"GET / HTTP/1.1\r\n\r\n"[..], &[0xff; 100_000], b""] {
        let mut stranger = TcpStream::connect(address).unwrap();
        // This peer may be turned away before it has said everything.
        let _ = stranger.write_all(garbage);
    }
    let half_open = TcpStream::connect(address).unwrap();
    half_open.shutdown(Shutdown::Write).unwrap();
    // This peer stays as long as it may, and sends one byte of a greeting now and then.
    let mut slow = TcpStream::connect(address).unwrap();
    let slow = thread::spawn(move || {
        let greeting = [&b"RDMH"[..], &[1, 0, 0, 0], &[0; 16]].concat();
        greeting.iter().all(|byte| {
            thread::sleep(Duration::from_millis(400));
            slow.write_all(&[*byte]).is_ok()
        })
    });
    let prefill = thread::spawn(move || {
        let engine = engine(Wire::Local, None);
        let pool = pool(&engine, SHAPE, PoolUse::Source, source_byte);
        let options = LinkOptions::default();
        Prefill::new(&engine, &pool, &Meet::Connect(address), &TOKEN, &options, long()).map(drop)
    });
    let engine = engine(Wire::Local, None);
    let pool = pool(&engine, SHAPE, PoolUse::Destination, |_, _, _| CANARY);
    Decode::new(&engine, &pool, &Meet::Accept(&listener), &TOKEN, &LinkOptions::default(), long()).unwrap();
    prefill.join().unwrap().unwrap();
    drop(listener);
    assert!(!slow.join().unwrap(), "it is sent away before it has said all");
}
