//! Keys of their own for ranges of a region: what they reach, and that nothing lands once one has ended.

use std::ops::Range;

use rdma_core::error::RegisterError;
use rdma_core::{Access, CompletionStatus, Exported, Region, RemoteMemory};

use super::access::{refused_read, refused_write};
use super::cases;
use super::fence::{attack, wait_for_a_write};
use super::helpers::{OPEN, bytes_of, pattern, write};
use crate::{CaseResult, End, Lab, check, check_eq};

cases!("export":
    a_range_is_reached_to_its_first_and_last_byte,
    #[exact] a_byte_before_or_behind_the_range_is_refused,
    #[exact] the_key_has_its_own_rights,
    the_key_of_the_region_reaches_all_of_it,
    #[exact] an_ended_key_is_refused,
    #[exact] keys_of_ranges_that_overlap_are_independent,
    #[exact] ranges_that_do_not_fit_the_region_get_no_key,
    #[exact] a_key_of_ranges_reaches_each_of_them_and_no_other_byte,
    no_write_lands_after_a_key_has_ended,
    no_write_lands_after_a_key_of_ranges_has_ended,
);

/// Bytes of the regions: three pages and a bit.
const LEN: usize = 3 * 4096 + 100;
/// A range whose ends are on no page and on no cache line.
const PART: Range<usize> = 1001..9003;

/// A byte that no write of these cases has.
const UNTOUCHED: u8 = 0xee;

fn a_range_is_reached_to_its_first_and_last_byte(lab: &Lab) -> CaseResult {
    let (mut left, right) = lab.pair()?;
    let region = right.pd.alloc_region(LEN, OPEN)?;
    let lent = right.pd.export_range(&region, PART, OPEN)?;
    let told = lent.remote();
    check_eq!((told.addr, told.len), (region.remote().addr + PART.start as u64, PART.len() as u64));
    check!(told.rkey != region.rkey());
    let bytes = pattern(1, PART.len());
    write(lab, &mut left, &bytes, told)?;
    write(lab, &mut left, &[1], told.slice(0..1)?)?;
    write(lab, &mut left, &[2], told.slice(told.len - 1..told.len)?)?;
    let mut expected = vec![0; LEN];
    expected[PART].copy_from_slice(&bytes);
    (expected[PART.start], expected[PART.end - 1]) = (1, 2);
    check!(bytes_of(&region)? == expected);
    Ok(())
}

fn a_byte_before_or_behind_the_range_is_refused(lab: &Lab) -> CaseResult {
    type Beyond = fn(RemoteMemory) -> RemoteMemory;
    let beyond: [Beyond; 4] = [
        |told| RemoteMemory { addr: told.addr - 1, len: 1, ..told },
        |told| RemoteMemory { addr: told.addr + told.len, len: 1, ..told },
        |told| RemoteMemory { addr: told.addr - 1, ..told },
        |told| RemoteMemory { len: told.len + 1, ..told },
    ];
    for beyond in beyond {
        let (mut left, right) = lab.pair()?;
        let region = right.pd.alloc_region(LEN, OPEN)?;
        region.copy_in(0, &[UNTOUCHED; LEN])?;
        let lent = right.pd.export_range(&region, PART, OPEN)?;
        refused_write(lab, &mut left, beyond(lent.remote()))?;
        let (mut left, right) = lab.pair()?;
        let other = right.pd.alloc_region(LEN, OPEN)?;
        let lent = right.pd.export_range(&other, PART, OPEN)?;
        refused_read(lab, &mut left, beyond(lent.remote()), CompletionStatus::REM_ACCESS_ERR)?;
        check!(bytes_of(&region)? == [UNTOUCHED; LEN], "part of a refused write landed");
    }
    Ok(())
}

fn the_key_has_its_own_rights(lab: &Lab) -> CaseResult {
    let (mut left, right) = lab.pair()?;
    let region = right.pd.alloc_region(LEN, OPEN)?;
    let read = right.pd.export_range(&region, PART, Access::REMOTE_READ)?;
    refused_write(lab, &mut left, read.remote())?;
    check!(bytes_of(&region)? == [0; LEN]);
    let (mut left, right) = lab.pair()?;
    let region = right.pd.alloc_region(LEN, OPEN)?;
    let written = right.pd.export_range(&region, PART, Access::LOCAL_WRITE | Access::REMOTE_WRITE)?;
    write(lab, &mut left, &[7; 9], written.remote().slice(0..9)?)?;
    refused_read(lab, &mut left, written.remote(), CompletionStatus::REM_ACCESS_ERR)
}

fn the_key_of_the_region_reaches_all_of_it(lab: &Lab) -> CaseResult {
    let (mut left, right) = lab.pair()?;
    let region = right.pd.alloc_region(LEN, OPEN)?;
    let lent = right.pd.export_range(&region, PART, OPEN)?;
    write(lab, &mut left, &pattern(2, LEN), region.remote())?;
    lent.revoke(lab.soon())?;
    check!(bytes_of(&region)? == pattern(2, LEN));
    write(lab, &mut left, &pattern(3, LEN), region.remote())?;
    // The key of all of the region may be had again, after the end of one of a part, and the other way round.
    let whole = right.pd.export(&region, OPEN)?;
    check_eq!(whole.remote().len, LEN as u64);
    write(lab, &mut left, &pattern(4, LEN), whole.remote())?;
    whole.revoke(lab.soon())?;
    let lent = right.pd.export_range(&region, PART, OPEN)?;
    check_eq!(lent.remote().len, PART.len() as u64);
    refused_write(lab, &mut left, RemoteMemory { rkey: lent.remote().rkey, ..region.remote() })?;
    check!(bytes_of(&region)? == pattern(4, LEN));
    Ok(())
}

fn an_ended_key_is_refused(lab: &Lab) -> CaseResult {
    for by_drop in [false, true] {
        let (mut left, right) = lab.pair()?;
        let region = right.pd.alloc_region(LEN, OPEN)?;
        let lent = right.pd.export_range(&region, PART, OPEN)?;
        let told = lent.remote();
        write(lab, &mut left, &[3; 8], told.slice(0..8)?)?;
        if by_drop {
            drop(lent);
        } else {
            lent.revoke(lab.soon())?;
        }
        region.copy_in(0, &[UNTOUCHED; LEN])?;
        refused_write(lab, &mut left, told.slice(0..8)?)?;
        check!(bytes_of(&region)? == [UNTOUCHED; LEN], "a write landed after the key had ended");
        region.deregister()?;
    }
    Ok(())
}

fn keys_of_ranges_that_overlap_are_independent(lab: &Lab) -> CaseResult {
    let (mut left, right) = lab.pair()?;
    let region = right.pd.alloc_region(LEN, OPEN)?;
    let (first, second) =
        (right.pd.export_range(&region, 0..5000, OPEN)?, right.pd.export_range(&region, 4000..LEN, OPEN)?);
    let (one, two) = (first.remote(), second.remote());
    check!(one.rkey != two.rkey);
    write(lab, &mut left, &pattern(5, 5000), one)?;
    write(lab, &mut left, &pattern(6, LEN - 4000), two)?;
    first.revoke(lab.soon())?;
    write(lab, &mut left, &pattern(7, LEN - 4000), two)?;
    let expected = [&pattern(5, 5000)[..4000], &pattern(7, LEN - 4000)].concat();
    check!(bytes_of(&region)? == expected);
    // Bytes that the other key still reaches.
    refused_write(lab, &mut left, one.slice(4000..5000)?)?;
    check!(bytes_of(&region)? == expected);
    Ok(())
}

fn ranges_that_do_not_fit_the_region_get_no_key(lab: &Lab) -> CaseResult {
    let (pd, other) = (lab.context.alloc_pd()?, lab.context.alloc_pd()?);
    let region = pd.alloc_region(64, OPEN)?;
    let reversed = Range { start: 9, end: 8 };
    for range in [0..65, 64..65, 65..65, 3..usize::MAX, usize::MAX..usize::MAX, reversed] {
        match pd.export_range(&region, range.clone(), OPEN) {
            Err(RegisterError::Range(error)) => {
                check!(error.to_string().contains("does not fit into 64 bytes"), "{error}");
            }
            outcome => return Err(format!("{range:?}: {outcome:?}").into()),
        }
    }
    check!(matches!(pd.export_range(&region, 64..64, OPEN), Err(RegisterError::ZeroLength)));
    check!(matches!(
        pd.export_range(&region, 0..8, Access::REMOTE_WRITE),
        Err(RegisterError::NeedsLocalWrite)
    ));
    check!(matches!(other.export_range(&region, 0..8, OPEN), Err(RegisterError::ForeignDomain)));
    check_eq!(pd.export_pins(), !lab.context.is_soft());
    pd.export_range(&region, 63..64, OPEN)?;
    Ok(())
}

/// A key that a case has made, or `None` on a device that makes none of its kind.
type Lent = Result<Option<Exported>, Box<dyn std::error::Error + Send + Sync>>;

/// A key for ranges of a region; `None` on a device whose keys have one range each, after a check that it says so.
fn ranges(right: &End, region: &Region, of: &[Range<usize>]) -> Lent {
    match right.pd.export_ranges(region, of.iter().cloned(), OPEN) {
        Err(RegisterError::SeveralRanges) if right.pd.export_pins() => Ok(None),
        lent => Ok(Some(lent?)),
    }
}

fn a_key_of_ranges_reaches_each_of_them_and_no_other_byte(lab: &Lab) -> CaseResult {
    // Two that meet are one, in whatever order they come.
    let of = [9000..9010, 100..200, 200..300, 4000..8200];
    let whole = 100..9010;
    let (mut left, right) = lab.pair()?;
    let region = right.pd.alloc_region(LEN, OPEN)?;
    let Some(lent) = ranges(&right, &region, &of)? else { return Ok(()) };
    let told = lent.remote();
    check_eq!((told.addr, told.len), (region.remote().addr + 100, whole.len() as u64));
    let mut expected = vec![0; LEN];
    for part in [100..300, 4000..8200, 9000..9010] {
        let bytes = pattern(part.start as u64, part.len());
        write(lab, &mut left, &bytes, told.slice(part.start as u64 - 100..part.end as u64 - 100)?)?;
        expected[part].copy_from_slice(&bytes);
    }
    check!(bytes_of(&region)? == expected);
    let counted = lab.context.refused_requests()?;
    let beyond = [99..101, 299..301, 300..4000, 3999..4001, 100..4100, 8200..8201, 8999..9000, 9009..9011];
    for (round, part) in (1..).zip(beyond) {
        let (mut left, right) = lab.pair()?;
        let other = right.pd.alloc_region(LEN, OPEN)?;
        let Some(lent) = ranges(&right, &other, &of)? else { return Ok(()) };
        let of_region = RemoteMemory { rkey: lent.remote().rkey, ..other.remote() };
        refused_write(lab, &mut left, of_region.slice(part.start..part.end)?)?;
        check!(bytes_of(&other)? == [0; LEN], "part of a refused write landed");
        check_eq!(lab.context.refused_requests()?, counted.map(|counted| counted + round));
    }
    check!(bytes_of(&region)? == expected);
    check!(matches!(right.pd.export_ranges(&region, [], OPEN), Err(RegisterError::ZeroLength)));
    check!(matches!(right.pd.export_ranges(&region, [0..8, 9..9], OPEN), Err(RegisterError::ZeroLength)));
    check!(matches!(right.pd.export_ranges(&region, [0..8, 9..LEN + 1], OPEN), Err(RegisterError::Range(_))));
    Ok(())
}

fn no_write_lands_after_a_key_of_ranges_has_ended(lab: &Lab) -> CaseResult {
    no_write_lands_after(lab, |right, region| ranges(right, region, &[0..100, (16 << 10) + 100..80 << 10]))
}

fn no_write_lands_after_a_key_has_ended(lab: &Lab) -> CaseResult {
    let last = (16 << 10) + 100..80 << 10;
    no_write_lands_after(lab, |right, region| Ok(Some(right.pd.export_range(region, last.clone(), OPEN)?)))
}

/// A peer writes as fast as it can. After the end of its key no byte may change any more, although the region stays.
fn no_write_lands_after(lab: &Lab, lend: impl Fn(&End, &Region) -> Lent) -> CaseResult {
    for _ in 0..20 {
        let (left, right) = lab.pair()?;
        let region = right.pd.alloc_region(80 << 10, OPEN)?;
        // The attacker's last byte is the region's.
        let Some(lent) = lend(&right, &region)? else { return Ok(()) };
        let (to, deadline) =
            (lent.remote().slice(lent.remote().len - (63 << 10)..lent.remote().len)?, lab.soon());
        let attacker = std::thread::spawn(move || attack(left, to, deadline));
        wait_for_a_write(&region, deadline)?;
        lent.revoke(deadline)?;
        region.copy_in(0, &vec![UNTOUCHED; region.len()])?;
        for _ in 0..20 {
            std::thread::sleep(std::time::Duration::from_micros(500));
            let bytes = bytes_of(&region)?;
            check!(bytes.iter().all(|byte| *byte == UNTOUCHED), "a write landed after the key had ended");
        }
        attacker.join().map_err(|_| "the attacker panicked")??;
    }
    Ok(())
}
