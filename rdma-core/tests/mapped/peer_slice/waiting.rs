//! Waits that end with a flag, and waits that end with the deadline.

use super::*;

fn shortly() -> Deadline {
    Deadline::after(Duration::from_millis(20))
}

#[test]
fn waiting_ends_with_the_flag_or_with_the_deadline() {
    for (mut end, peer) in pairs() {
        let (theirs, own) = (peer.region(64), end.region(64));
        let begun = Instant::now();
        let mut slice = end.worker.peer_slice(&end.qp, theirs.remote(), shortly());
        let late = [
            slice.wait(8, |flag: u32| flag == 1).map(drop),
            slice.wait_own(&own, 8, |flag: u32| flag == 1).map(drop),
        ];
        for late in late {
            assert!(matches!(late, Err(ReachError::DeadlineExceeded { .. })), "{late:?}");
        }
        assert!((Duration::from_millis(20)..Duration::from_secs(5)).contains(&begun.elapsed()));
        let (flags, owns) = (theirs.clone(), own.clone());
        let storing = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(5));
            flags.store(8, 3_u32).unwrap();
            std::thread::sleep(Duration::from_millis(5));
            owns.store(8, 4_u32).unwrap();
        });
        let mut slice = end.worker.peer_slice(&end.qp, theirs.remote(), soon());
        assert_eq!(slice.wait(8, |flag: u32| flag > 2).unwrap(), 3);
        assert_eq!(slice.wait_own(&own, 8, |flag: u32| flag > 3).unwrap(), 4);
        storing.join().unwrap();
    }
}

#[test]
fn a_deadline_ends_what_is_long_and_tells_how_much_of_it_was_done() {
    for (mut end, peer) in pairs() {
        let (theirs, own) = (peer.region(BYTES), end.region(BYTES));
        end.worker.peer_slice(&end.qp, theirs.remote(), soon()).ready().unwrap();
        let mut slice = end.worker.peer_slice(&end.qp, theirs.remote(), Deadline::after(Duration::ZERO));
        let (bytes, mut parts) = (vec![7; BYTES], 0);
        let late = [
            slice.copy_in(0, &bytes),
            slice.copy_out(0, &mut vec![0; BYTES]),
            slice.copy_from(0, BYTES, &own, 0),
            slice.copy_to(0, BYTES, &own, 0),
            slice.reduce_from(0, BYTES, |_, part| parts += part.len()),
        ];
        let done = [256 << 10, 256 << 10, 256 << 10, 256 << 10, 16 << 10];
        for (late, begun) in late.into_iter().zip(done) {
            assert!(
                matches!(late, Err(ReachError::DeadlineExceeded { done, .. }) if done == begun),
                "{late:?}"
            );
        }
        assert_eq!(parts, 16 << 10);
        // A short access is too cheap to be worth a look at the clock.
        slice.store(0, 1_u64).unwrap();
        slice.copy_in(0, &bytes[..256 << 10]).unwrap();
        end::assert_holds(&theirs, 0..256 << 10, 7);
        end::assert_holds(&theirs, 256 << 10..BYTES, 0);
    }
}

/// Bytes of the processor's last-level cache.
fn last_cache() -> usize {
    let told = std::fs::read_to_string("/sys/devices/system/cpu/cpu0/cache/index3/size");
    let kib = told.ok().and_then(|told| told.trim().strip_suffix('K')?.parse::<usize>().ok());
    kib.map_or(32 << 20, |kib| kib << 10)
}

/// Bytes that are stored around the caches must be visible before the flag, too.
#[test]
fn another_thread_sees_what_comes_before_a_flag_however_much_it_is() {
    let len = last_cache();
    for (mut end, peer) in pairs() {
        let theirs = peer.region(len + 64);
        let seen = theirs.clone();
        let mut slice = end.worker.peer_slice(&end.qp, theirs.remote(), soon());
        slice.ready().unwrap();
        let looking = std::thread::spawn(move || {
            for round in 1..3_u64 {
                seen.wait(0, |flag: u64| flag >= round, soon()).unwrap();
                // The bytes stored last are the ones that would come late.
                end::assert_holds(&seen, len..len + 64, round as u8);
                seen.store(8, round).unwrap();
            }
        });
        for round in 1..3_u64 {
            slice.copy_in(64, &vec![round as u8; len]).unwrap();
            slice.store(0, round).unwrap();
            theirs.wait(8, |flag: u64| flag >= round, soon()).unwrap();
        }
        looking.join().unwrap();
    }
}
