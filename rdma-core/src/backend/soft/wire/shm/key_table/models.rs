//! Model of a registration that is entered while a peer looks it up.

use loom::sync::Arc;
use loom::thread;

use super::*;

fn entry() -> Entry {
    let (word, long) = (|| AtomicU32::new(0), || AtomicU64::new(0));
    Entry {
        serial: long(),
        key: word(),
        access: word(),
        domain: word(),
        version: word(),
        addr: long(),
        len: long(),
        memory: long(),
        offset: long(),
    }
}

/// A registration in which every field tells the serial.
fn export(serial: u64) -> Export {
    let (word, access) = (serial as u32, Access::from_bits_retain(serial as u32));
    let registered = Registered { domain: Domain(word), addr: serial, len: serial, access, serial };
    Export { key: word, registered, memory: serial, version: word, offset: serial }
}

#[test]
fn loom_no_half_of_a_registration_is_read() {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(|| {
        let shared = Arc::new(entry());
        shared.publish(&export(1));
        let owner = {
            let entry = Arc::clone(&shared);
            thread::spawn(move || {
                entry.revoke();
                entry.publish(&export(2));
            })
        };
        if let Some(read) = shared.read() {
            let whole = export(read.registered.serial);
            assert_eq!(format!("{read:?}"), format!("{whole:?}"), "two registrations in one");
        }
        owner.join().unwrap();
    });
}
