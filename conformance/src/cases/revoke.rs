//! Deregistration while a peer writes: after it returns, no byte of the peer lands.

use super::cases;
use super::fence::{attack, wait_for_a_write};
use super::helpers::OPEN;
use crate::{CaseResult, Lab, check};

cases!("revoke":
    no_write_lands_after_deregistration,
    no_write_lands_in_memory_registered_again,
);

fn no_write_lands_after_deregistration(lab: &Lab) -> CaseResult {
    for _ in 0..20 {
        let (left, right) = lab.pair()?;
        let target = right.pd.alloc_region(64 << 10, OPEN)?;
        let (to, deadline) = (target.remote(), lab.soon());
        let attacker = std::thread::spawn(move || attack(left, to, deadline));
        wait_for_a_write(&target, deadline)?;
        let mut memory = target.deregister()?;
        memory.fill(0xff);
        for _ in 0..20 {
            std::thread::sleep(std::time::Duration::from_micros(500));
            check!(memory.iter().all(|byte| *byte == 0xff), "a write landed after deregistration");
        }
        attacker.join().map_err(|_| "the attacker panicked")??;
    }
    Ok(())
}

/// Registers the memory again after a revocation: the old key must not reach it.
fn no_write_lands_in_memory_registered_again(lab: &Lab) -> CaseResult {
    for _ in 0..10 {
        let (left, right) = lab.pair()?;
        let target = right.pd.alloc_region(16 << 10, OPEN)?;
        let (to, deadline) = (target.remote(), lab.soon());
        let attacker = std::thread::spawn(move || attack(left, to, deadline));
        wait_for_a_write(&target, deadline)?;
        let mut memory = target.deregister()?;
        memory.fill(0xff);
        let again = right.pd.register(memory, OPEN)?;
        check!(again.rkey() != to.rkey, "the key was given out again at once");
        attacker.join().map_err(|_| "the attacker panicked")??;
        let mut bytes = vec![0; again.len()];
        again.copy_out(0, &mut bytes)?;
        check!(bytes.iter().all(|byte| *byte == 0xff), "a write with the old key landed");
    }
    Ok(())
}
