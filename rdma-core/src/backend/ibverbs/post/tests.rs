//! Tests of chains without a device: the requests that libibverbs gets, and the reading of its answer.

use super::*;

fn send(wr_id: u64, len: u32) -> RawSend {
    RawSend {
        wr_id,
        opcode: RawOpcode::WriteImm,
        signalled: wr_id.is_multiple_of(2),
        inline: false,
        addr: 0x1000 + wr_id,
        len,
        lkey: 7,
        remote_addr: 0x9000 + wr_id,
        rkey: 9,
        imm: 0x0102_0304,
        hint: crate::memory::CacheHint::Cached,
    }
}

/// The requests from `head` to the null at the end.
fn walk(head: *mut ibv_send_wr) -> Vec<(ibv_send_wr, Option<ibv_sge>)> {
    let mut all = Vec::new();
    let mut at = head;
    while !at.is_null() {
        // SAFETY: `fill` returned a chain that ends in null and that the boxes still hold; a request has a range only
        // where `num_sge` says so.
        let (request, range) = unsafe { (*at, ((*at).num_sge > 0).then(|| *(*at).sg_list)) };
        all.push((request, range));
        at = request.next;
    }
    all
}

#[test]
fn a_chain_is_linked_filled_and_cut() {
    let mut chain = Chain::<ibv_send_wr>::new();
    chain.reserve(4);
    let long: Vec<_> = (0..4).map(|wr_id| send(wr_id, 8)).collect();
    assert_eq!(walk(chain.fill(&long).unwrap()).len(), 4);
    // A shorter chain after a longer one ends where it should, and is linked anew.
    let requests = walk(chain.fill(&[send(10, 8), send(11, 0)]).unwrap());
    assert_eq!(requests.len(), 2);
    let (first, range) = &requests[0];
    assert_eq!((first.wr_id, first.opcode), (10, sys::IBV_WR_RDMA_WRITE_WITH_IMM));
    assert_eq!(first.send_flags, sys::IBV_SEND_SIGNALED);
    assert_eq!(first.imm_data.to_ne_bytes(), [1, 2, 3, 4], "network byte order");
    // SAFETY: the request is a write, so `fill` has set this member of the union.
    assert_eq!(unsafe { (first.wr.rdma.remote_addr, first.wr.rdma.rkey) }, (0x900a, 9));
    let range = range.unwrap();
    assert_eq!((range.addr, range.length, range.lkey), (0x100a, 8, 7));
    let (second, range) = &requests[1];
    assert!(range.is_none(), "no range of length 0 reaches a device");
    assert_eq!(second.send_flags, 0);
    assert_eq!(walk(chain.fill(&long).unwrap()).len(), 4);
}

#[test]
fn inline_is_asked_for_only_with_bytes() {
    let mut chain = Chain::<ibv_send_wr>::new();
    chain.reserve(2);
    let inline = |len| RawSend { inline: true, opcode: RawOpcode::Send, ..send(1, len) };
    let requests = walk(chain.fill(&[inline(8), inline(0)]).unwrap());
    assert_eq!(requests[0].0.send_flags, sys::IBV_SEND_INLINE);
    assert_eq!(requests[1].0.send_flags, 0);
}

#[test]
fn a_chain_longer_than_reserved_is_refused_whole() {
    let mut chain = Chain::<ibv_send_wr>::new();
    chain.reserve(2);
    let error = chain.fill(&[send(0, 1), send(1, 1), send(2, 1)]).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::ENOMEM));
}

#[test]
fn the_posted_count_is_read_from_where_the_driver_stopped() {
    let requests = [ibv_send_wr::zeroed(); 4];
    let head = requests.as_ptr();
    assert_eq!(posted(head, head, 4), 0);
    assert_eq!(posted(head, head.wrapping_add(3), 4), 3);
    // A pointer outside of the chain, or null: all requests may be under way.
    assert_eq!(posted(head, ptr::null(), 4), 4);
    assert_eq!(posted(head, head.wrapping_add(4), 4), 4);
    assert_eq!(posted(head, head.wrapping_byte_add(1), 4), 4);
    assert_eq!(posted(head, head.wrapping_sub(1), 4), 4);
}

#[test]
fn every_opcode_has_its_number() {
    let mut chain = Chain::<ibv_send_wr>::new();
    chain.reserve(5);
    let opcodes =
        [RawOpcode::Send, RawOpcode::SendImm, RawOpcode::Write, RawOpcode::WriteImm, RawOpcode::Read];
    let from = opcodes.map(|opcode| RawSend { opcode, ..send(0, 1) });
    let numbers: Vec<_> =
        walk(chain.fill(&from).unwrap()).iter().map(|(request, _)| request.opcode).collect();
    assert_eq!(
        numbers,
        [
            sys::IBV_WR_SEND,
            sys::IBV_WR_SEND_WITH_IMM,
            sys::IBV_WR_RDMA_WRITE,
            sys::IBV_WR_RDMA_WRITE_WITH_IMM,
            sys::IBV_WR_RDMA_READ
        ]
    );
}
