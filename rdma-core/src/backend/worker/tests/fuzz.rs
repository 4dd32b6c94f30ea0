//! Completions with any number in any field: none is believed that cannot be right, and no request completes twice.

use std::collections::HashMap;

use super::super::interface::RawCompletion;
use super::super::work::Work;
use super::scripted::{buffer, core};
use crate::{Opcode, RemoteKey, RemoteMemory};

/// Carries out `data` as posts and as completions of the device. Panics when a property does not hold.
pub(crate) fn completions(data: &[u8]) {
    let (mut core, qp) = core();
    let mut rest = data;
    // Bytes of each request that is outstanding, and every name that was ever given.
    let (mut outstanding, mut names) = (HashMap::new(), Vec::new());
    while let Some([step, len]) = take::<2>(&mut rest) {
        let bytes = usize::from(len % 64) + 1;
        let to = RemoteMemory { addr: 0x1000, len: bytes as u64, rkey: RemoteKey(9) };
        let work = match step % 8 {
            0 => Work::send(buffer(bytes)),
            1 => Work::write(buffer(bytes), to).unsignalled(),
            2 => Work::read(buffer(bytes), to),
            3 => Work::recv(buffer(bytes)),
            _ => {
                core.raw.completions.push_back(completion(step, &names, &mut rest));
                loop {
                    match core.poll() {
                        Ok(None) => break,
                        Ok(Some(done)) => {
                            let posted = outstanding.remove(&done.id).expect("a request completes once");
                            if let Ok(success) = &done.result {
                                let fits = success.opcode == Opcode::RecvWriteImm
                                    || success.bytes as usize <= posted;
                                assert!(fits, "{success:?} of {posted} bytes");
                            }
                            let _ = format!("{done:?}");
                        }
                        // The device is not believed any more.
                        Err(_) => return,
                    }
                }
                continue;
            }
        };
        if let Ok(id) = core.post(qp, work) {
            names.push(id.0);
            assert_eq!(outstanding.insert(id, bytes), None, "{id:?} was given twice");
        }
    }
}

/// A completion, which names a request of ours in most cases.
fn completion(step: u8, names: &[u64], rest: &mut &[u8]) -> RawCompletion {
    let mut word = || u32::from_le_bytes(take(rest).unwrap_or_default());
    let chosen = names.get(word() as usize % names.len().max(1)).copied();
    let any = u64::from(word()) << 32 | u64::from(word());
    RawCompletion {
        wr_id: chosen.filter(|_| step & 0x18 != 0).unwrap_or(any),
        status: if step & 0x20 == 0 { 0 } else { word() },
        vendor_error: word(),
        qp_num: word(),
        byte_len: if step & 0x40 == 0 { word() % 80 } else { word() },
        write_imm: step & 0x80 != 0,
        imm: (step & 4 == 0).then(&mut word),
    }
}

fn take<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (first, behind) = rest.split_first_chunk()?;
    *rest = behind;
    Some(*first)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_completion_is_right_or_refused(data in prop::collection::vec(any::<u8>(), 0..600)) {
            super::completions(&data);
        }
    }
}
