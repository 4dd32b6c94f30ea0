//! A long message must not keep other threads from the devices of the process.

use std::sync::atomic::{AtomicBool, Ordering};

use rdma_core::{Region, Work};

use super::end::{self, End};

const LONG: usize = 256 << 20;
const SEVERAL: u32 = 10;

fn holds(region: &Region, at: usize, byte: u8) -> bool {
    let mut there = [0];
    region.copy_out(at, &mut there).unwrap();
    there == [byte]
}

#[test]
fn others_have_the_devices_in_the_midst_of_a_long_message() {
    let (mut first, mut second) = End::pair();
    let target = second.region(LONG);
    // Until the memory is mapped, messages wait without the lock.
    let mapped = target.remote().slice(0..1).unwrap();
    first.transfer(Work::write(first.filled(1, 0), mapped));
    // Other load on the machine may keep the other thread away in one round, but not in five.
    let came = (1..6).any(|round| {
        let source = first.filled(LONG, round);
        let over = AtomicBool::new(false);
        let came = std::thread::scope(|scope| {
            let others = scope.spawn(|| {
                let mut came = 0;
                while !over.load(Ordering::Acquire) {
                    let begun = holds(&target, 0, round);
                    second.qp.query_state(&mut second.worker).unwrap();
                    came += u32::from(begun && holds(&target, LONG - 1, round - 1));
                }
                came
            });
            first.transfer(Work::write(source, target.remote()));
            over.store(true, Ordering::Release);
            others.join().unwrap()
        });
        end::assert_holds(&target, 0..LONG, round);
        came >= SEVERAL
    });
    assert!(came, "they wait for all of the message");
}
