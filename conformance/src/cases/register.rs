//! Registering memory and giving it up.

use rdma_core::error::{PostError, RegisterError};
use rdma_core::{Access, Memory, Segment, Work};

use super::cases;
use super::helpers::{OPEN, bytes_of, filled, pattern, post, write};
use crate::{CaseResult, Lab, check, check_eq};

cases!("register":
    #[exact] zero_bytes_are_refused,
    #[exact] remote_write_needs_local_write,
    #[exact] more_than_the_address_space_is_refused,
    unaligned_lengths_work_to_the_last_byte,
    keys_differ,
    many_at_once,
    memory_comes_back_with_its_bytes,
    memory_of_the_callers_is_written_and_given_back,
    #[exact] an_attached_region_is_not_deregistered,
    #[exact] memory_of_another_domain_is_refused_at_the_post,
    memory_of_two_domains_is_used_in_both,
    #[exact] memory_in_use_gets_no_further_domain,
    copies_beyond_the_end_are_refused,
    buffers_split_and_keep_their_registration,
);

fn zero_bytes_are_refused(lab: &Lab) -> CaseResult {
    let pd = lab.context.alloc_pd()?;
    check!(matches!(pd.alloc_local(0), Err(RegisterError::ZeroLength)));
    check!(matches!(pd.alloc_region(0, OPEN), Err(RegisterError::ZeroLength)));
    pd.alloc_local(1)?;
    Ok(())
}

fn remote_write_needs_local_write(lab: &Lab) -> CaseResult {
    let pd = lab.context.alloc_pd()?;
    let refused = match pd.register(Memory::allocate(64)?, Access::REMOTE_WRITE) {
        Err(refused) => refused,
        Ok(_) => return Err("REMOTE_WRITE without LOCAL_WRITE was accepted".into()),
    };
    check!(matches!(refused.error, RegisterError::NeedsLocalWrite), "{}", refused.error);
    pd.register(refused.object, OPEN)?;
    Ok(())
}

fn more_than_the_address_space_is_refused(lab: &Lab) -> CaseResult {
    let pd = lab.context.alloc_pd()?;
    for len in [usize::MAX, isize::MAX as usize] {
        match pd.alloc_local(len) {
            Err(RegisterError::TooLong { .. } | RegisterError::Allocate { .. }) => {}
            other => return Err(format!("{len} bytes: {other:?}").into()),
        }
    }
    pd.alloc_local(64)?;
    Ok(())
}

fn unaligned_lengths_work_to_the_last_byte(lab: &Lab) -> CaseResult {
    let (mut left, right) = lab.pair()?;
    for len in [1, 7, 4095, 4097, 65_537] {
        let target = right.pd.alloc_region(len, OPEN)?;
        let bytes = pattern(len as u64, len);
        write(lab, &mut left, &bytes, target.remote())?;
        check!(bytes_of(&target)? == bytes, "{len} bytes arrived wrong");
    }
    Ok(())
}

fn keys_differ(lab: &Lab) -> CaseResult {
    let pd = lab.context.alloc_pd()?;
    let regions = (0..32).map(|_| pd.alloc_region(64, OPEN)).collect::<Result<Vec<_>, _>>()?;
    let mut keys: Vec<_> = regions.iter().map(|region| region.rkey().0).collect();
    keys.sort_unstable();
    keys.dedup();
    check_eq!(keys.len(), regions.len());
    Ok(())
}

fn many_at_once(lab: &Lab) -> CaseResult {
    let pd = lab.context.alloc_pd()?;
    for _ in 0..4 {
        let regions = (0..256).map(|_| pd.alloc_region(4096, OPEN)).collect::<Result<Vec<_>, _>>()?;
        for region in regions {
            region.deregister()?;
        }
    }
    Ok(())
}

fn memory_comes_back_with_its_bytes(lab: &Lab) -> CaseResult {
    let (mut left, right) = lab.pair()?;
    let target = right.pd.alloc_region(100, OPEN)?;
    let bytes = pattern(1, 100);
    write(lab, &mut left, &bytes, target.remote())?;
    let memory = target.deregister()?;
    check!(memory[..] == bytes[..]);
    let again = right.pd.register(memory, OPEN)?;
    check!(bytes_of(&again)? == bytes);
    Ok(())
}

fn memory_of_the_callers_is_written_and_given_back(lab: &Lab) -> CaseResult {
    let (mut left, right) = lab.pair()?;
    for len in [1, 5000, 1 << 20] {
        let target = right.pd.register(Memory::adopt(vec![0; len]), OPEN)?;
        let bytes = pattern(len as u64, len);
        write(lab, &mut left, &bytes, target.remote())?;
        let owned: Vec<u8> = target.deregister()?.into_owner().map_err(|_| "it was a Vec")?;
        check!(owned == bytes, "{len} bytes arrived wrong");
    }
    let refused = match right.pd.register(Memory::adopt(Vec::new()), OPEN) {
        Err(refused) => refused,
        Ok(_) => return Err("no bytes were registered".into()),
    };
    check!(matches!(refused.error, RegisterError::ZeroLength), "{}", refused.error);
    Ok(())
}

fn an_attached_region_is_not_deregistered(lab: &Lab) -> CaseResult {
    let (mut left, _right) = lab.pair()?;
    let region = left.pd.alloc_region(64, OPEN)?;
    let attached = left.worker.attach(&region);
    let refused = match region.deregister() {
        Err(refused) => refused,
        Ok(_) => return Err("an attached region was deregistered".into()),
    };
    check_eq!(refused.error.source.kind(), std::io::ErrorKind::ResourceBusy);
    drop(left.worker.detach(attached)?);
    refused.object.deregister()?;
    Ok(())
}

fn memory_of_another_domain_is_refused_at_the_post(lab: &Lab) -> CaseResult {
    let (mut left, right) = lab.pair()?;
    let target = right.pd.alloc_region(8, OPEN)?;
    let foreign = lab.context.alloc_pd()?.alloc_local(8)?;
    let refused = match left.worker.post(&left.qp, Work::write(foreign, target.remote())) {
        Err(refused) => refused,
        Ok(_) => return Err("memory of another domain was accepted".into()),
    };
    check!(matches!(refused.error, PostError::ForeignProtectionDomain), "{}", refused.error);
    check!(matches!(refused.work.into_segment(), Segment::Owned(_)), "the buffer is lost");
    write(lab, &mut left, &pattern(2, 8), target.remote())
}

fn memory_of_two_domains_is_used_in_both(lab: &Lab) -> CaseResult {
    let [(mut one, one_right), (mut two, two_right)] = [lab.pair()?, lab.pair()?];
    let mut target = one_right.pd.alloc_region(64, OPEN)?;
    check!(two_right.pd.remote(&target).is_none() && !two_right.pd.owns(&target));
    two_right.pd.add(&mut target)?;
    let keys = two_right.pd.remote(&target);
    // Once more, which changes nothing.
    two_right.pd.add(&mut target)?;
    check!(keys.is_some() && two_right.pd.remote(&target) == keys && two_right.pd.owns(&target));
    check_eq!(one_right.pd.remote(&target), Some(target.remote()));
    let mut buffer = one.pd.alloc_local(64)?;
    two.pd.add_local(&mut buffer)?;
    let mut parts = Vec::new();
    for (seed, (end, right)) in (1..).zip([(&mut two, &two_right), (&mut one, &one_right)]) {
        let to = right.pd.remote(&target).ok_or("it is registered there")?;
        buffer.copy_from_slice(&pattern(seed, 64));
        post(end, Work::write(buffer, to))?;
        buffer = end.wait(lab)?.buffer.ok_or("the buffer comes back")?;
        check!(bytes_of(&target)? == pattern(seed, 64), "the bytes of write {seed} arrived wrong");
        // Attached, the same memory is named by its range.
        let region = buffer.into_region().map_err(|_| "it is whole")?;
        let attached = end.worker.attach(&region);
        region.copy_in(0, &pattern(seed + 2, 64))?;
        post(end, Work::write(attached.range(0, 64), to))?;
        end.done(lab)?;
        check!(bytes_of(&target)? == pattern(seed + 2, 64), "the bytes of range {seed} arrived wrong");
        drop(end.worker.detach(attached)?);
        buffer = region.into_local().map_err(|_| "it is the only handle")?;
    }
    // Parts keep both registrations.
    let (front, back) = buffer.split_at(32)?;
    parts.extend([(&mut one, &one_right, front), (&mut two, &two_right, back)]);
    for (end, right, part) in parts {
        let to = right.pd.remote(&target).ok_or("it is registered there")?.slice(0..32)?;
        post(end, Work::write(part, to))?;
        end.done(lab)?;
    }
    target.deregister()?;
    Ok(())
}

fn memory_in_use_gets_no_further_domain(lab: &Lab) -> CaseResult {
    let (one, two) = (lab.context.alloc_pd()?, lab.context.alloc_pd()?);
    let mut region = one.alloc_region(64, OPEN)?;
    let other = region.clone();
    check!(matches!(two.add(&mut region), Err(RegisterError::InUse)));
    drop(other);
    two.add(&mut region)?;
    let (mut front, back) = one.alloc_local(64)?.split_at(32)?;
    check!(matches!(two.add_local(&mut front), Err(RegisterError::InUse)));
    drop((front, back));
    // An export is of the domain that makes it, also where another one has one to renew.
    for pd in [&one, &two, &one] {
        let exported = pd.export(&region, OPEN)?;
        check!(exported.remote().rkey != region.rkey());
        exported.revoke(lab.soon())?;
    }
    Ok(())
}

fn copies_beyond_the_end_are_refused(lab: &Lab) -> CaseResult {
    let region = lab.context.alloc_pd()?.alloc_region(64, OPEN)?;
    region.copy_in(0, &[7; 64])?;
    for (offset, len) in [(0, 65), (64, 1), (65, 0), (usize::MAX, 2)] {
        let (mut out, bytes) = (vec![0; len], vec![1; len]);
        check!(
            region.copy_out(offset, &mut out).is_err() && region.copy_in(offset, &bytes).is_err(),
            "{offset}+{len}"
        );
    }
    check!(bytes_of(&region)? == [7; 64]);
    Ok(())
}

fn buffers_split_and_keep_their_registration(lab: &Lab) -> CaseResult {
    let (mut left, right) = lab.pair()?;
    let target = right.pd.alloc_region(64, OPEN)?;
    let (first, second) = filled(&left, &pattern(3, 64))?.split_at(20)?;
    post(&mut left, Work::write(second, target.remote().slice(20..64)?))?;
    left.done(lab)?;
    post(&mut left, Work::write(first, target.remote().slice(0..20)?))?;
    left.done(lab)?;
    check!(bytes_of(&target)? == pattern(3, 64));
    Ok(())
}
