//! Functions behind the fuzz targets: each takes any bytes and panics when an invariant does not hold.
//!
//! Outside of fuzzing the same functions run under property tests, so that they do not rot.

use rdma_core::{Endpoint, Gid, Lid, Mtu, Psn, QpNum, RemoteKey, RemoteMemory};

use crate::bootstrap::fuzz;
use crate::collective::communicator::{find_blobs as fuzz_word, tuning::fuzz as fuzz_tuning};
use crate::collective::operation::{Abort, Header};
use crate::env::fuzz as env_fuzz;
use crate::kv::layout::Layout;
use crate::kv::plan::fuzz as fuzz_parts;
use crate::kv::plan::{PlanOptions, Tokens};
use crate::kv::{fuzz as kv_fuzz, fuzz_node, fuzz_payload};
use crate::link::imm::Imm;
use crate::link::{Blob, LinkKind, control};
use crate::liveness::Process;

/// The store's frames and messages, in pieces.
pub fn frame(data: &[u8]) {
    fuzz::frame(data);
}

/// The store's decisions, held against a model.
pub fn store(data: &[u8]) {
    fuzz::store(data);
}

/// Variables as a launcher, a person or a broken script sets them: lines of names and values, of any bytes.
///
/// A line whose first byte is small sets the variable of that number in the library's own table.
pub fn environment(data: &[u8]) {
    env_fuzz(data);
}

/// A tuning table, as a person, a program or a full disk leaves it.
pub fn tuning(data: &[u8]) {
    fuzz_tuning(data);
}

/// A blob from a peer, as it comes, and its description of a pool; and one of ours, with one byte altered.
pub fn blob(data: &[u8]) {
    for kind in [LinkKind::COLLECTIVE, LinkKind::KV, LinkKind::MESH] {
        if let Ok((blob, rest)) = Blob::decode(data, kind, 7) {
            assert_eq!(blob.encode().as_deref(), Ok(&data[..data.len() - rest.len()]));
            fuzz_payload(&blob.payload);
        }
    }
    fuzz_payload(data);
    fuzz_node(data);
    for lanes in [1, 2, 8] {
        if let Ok(Some(blobs)) = fuzz_word(data, 7, (1, 0), lanes) {
            assert!(blobs.len() == usize::from(lanes) && blobs.iter().all(|blob| blob.regions.len() == 1));
        }
    }
    let Some((place, payload)) = data.split_first_chunk::<2>() else { return };
    let region = |words: &[u8; 20]| RemoteMemory {
        addr: u64::from_le_bytes(*words.first_chunk().unwrap_or(&[0; 8])),
        len: u64::from_le_bytes(*words[8..].first_chunk().unwrap_or(&[0; 8])),
        rkey: RemoteKey(u32::from_le_bytes(*words.last_chunk().unwrap_or(&[0; 4]))),
    };
    let endpoint =
        Endpoint { qp_num: QpNum(1), psn: Psn::new(2), lid: Lid(3), gid: Gid([4; 16]), mtu: Mtu::MTU_1024 };
    let regions = payload.as_chunks().0.iter().map(region).collect();
    let payload = payload.to_vec();
    let (kind, job) = (LinkKind::KV, 7);
    let ours = Blob {
        kind,
        job,
        epoch: 1,
        soft: true,
        beats: false,
        endpoint,
        credits: 8,
        control_bytes_max: 64,
        process: Process::default(),
        regions,
        payload,
    };
    let Ok(mut bytes) = ours.encode() else { return };
    bytes.extend_from_slice(b"behind");
    assert_eq!(Blob::decode(&bytes, kind, job).ok(), Some((ours, &b"behind"[..])));
    let at = usize::from(u16::from_le_bytes(*place)) % (bytes.len() - b"behind".len());
    bytes[at] ^= 1 << (place[0] % 8);
    assert!(Blob::decode(&bytes, kind, job).is_err(), "an altered byte at {at} went unseen");
}

/// Immediates and control messages from a peer.
pub fn control_message(data: &[u8]) {
    if let Some(word) = data.first_chunk() {
        let word = u32::from_le_bytes(*word);
        assert!(Imm::decode(word).is_ok_and(|imm| imm.encode() == word) || Imm::decode(word).is_err());
    }
    if let Ok(message) = control::decode(data, 0) {
        assert!(message.body.len() < data.len());
        let _ = (Header::read(message.body), Abort::read(message.body));
    }
    kv_fuzz(data);
}

/// Layouts of two peers, and plans for blocks that a peer names: all of them, or the parts that it wants.
///
/// The first two bytes are the lengths of the layouts.
pub fn kv_plan(data: &[u8]) {
    let Some((&[here, there], rest)) = data.split_first_chunk() else { return };
    let Some((source, rest)) = rest.split_at_checked(here.into()) else { return };
    let Some((destination, rest)) = rest.split_at_checked(there.into()) else { return };
    let (Ok(source), Ok(destination)) = (Layout::decode(source), Layout::decode(destination)) else { return };
    let Some((&[skips, pack, by_layer, pulls], rest)) = rest.split_first_chunk() else { return };
    let words: Vec<u64> = rest.as_chunks().0.iter().map(|word| u64::from_le_bytes(*word)).take(16).collect();
    let sources: Vec<u32> = words.iter().map(|word| *word as u32).collect();
    let destinations: Vec<u32> = words.iter().map(|word| (*word >> 32) as u32).collect();
    let tokens = Tokens {
        source_skip: (skips & 15).into(),
        destination_skip: (skips >> 4).into(),
        count: (u32::from(by_layer) << 2) + u32::from(pulls),
    };
    // Small, since a write merges one range after the other, and those of a shape may be of 1 byte.
    let options = PlanOptions {
        write_bytes_max: 1 << 12,
        pack_bytes: u32::from(pack) << 3,
        stage_bytes: 1 << 10,
        by_layer: false,
        pulls: pulls & 1 == 1,
        unpacks: pulls & 2 == 0,
        tokens: if skips == 0 { Vec::new() } else { vec![tokens] },
    };
    // A partial grant ends with one bit for each layer of each block, in words of 32 bits.
    let bits = u64::from(destination.layers()) * destinations.len() as u64;
    let wanted = rest.as_rchunks().1.iter().map(|word| u32::from_le_bytes(*word));
    let mut wanted: Vec<u32> = wanted.take(bits.div_ceil(32).min(64) as usize).collect();
    if let Some(last) = wanted.last_mut() {
        *last &= u32::MAX >> (bits.wrapping_neg() % 32);
    }
    fuzz_parts([&source, &destination], [&sources, &destinations], &wanted, &options);
}

#[cfg(test)]
mod seeds;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kv::layout::{Model, Order};
    use crate::link::BlobError;
    use crate::link::blob::VERSION;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn no_bytes_break_the_frames(data in prop::collection::vec(any::<u8>(), 0..300)) {
            frame(&data);
        }

        #[test]
        fn no_sequence_of_events_breaks_the_store(data in prop::collection::vec(any::<u8>(), 0..600)) {
            store(&data);
        }

        #[test]
        fn no_variables_break_the_environment(
            lines in prop::collection::vec((0_u8..80, prop_oneof![
                "[0-9]{1,3}", "[\\PC]{0,12}", "[a-z0-9:,^=()x]{0,16}", Just("0".to_owned()), Just("4".to_owned()),
            ]), 0..20),
            rest in prop::collection::vec(any::<u8>(), 0..60),
        ) {
            let lines = lines.iter().flat_map(|(name, value)| [&[*name][..], value.as_bytes(), b"\n"].concat());
            environment(&lines.chain(rest).collect::<Vec<u8>>());
        }

        #[test]
        fn no_lines_break_a_table_of_ways(
            rows in prop::collection::vec((
                prop_oneof![Just("all-reduce"), Just("gather"), Just("all-to-all"), Just("#"), Just("end")],
                prop_oneof![Just("2"), Just("2-16"), Just("17-"), Just("-"), Just("0")],
                prop_oneof![Just("mapped"), Just("links"), Just("any")],
                prop_oneof!["[0-9]{1,3}[KMG]?", Just("any".to_owned()), "[0-9]{18,22}G?"],
                prop_oneof![Just("ring"), Just("tree"), Just("flat,direct"), Just("pairs,bruck"), Just(",")],
            ), 0..6),
            header: bool,
            rest in prop::collection::vec(any::<u8>(), 0..20),
        ) {
            let mut text = if header { "rdma-collective tuning 1\n".to_owned() } else { String::new() };
            for (collective, ranks, peers, bytes, ways) in rows {
                text.push_str(&format!("{collective} {ranks} {peers} {bytes} {ways}\n"));
            }
            text.push_str("end\n");
            tuning(text.as_bytes());
            tuning(&[text.as_bytes(), &rest].concat());
        }

        #[test]
        fn no_bytes_break_a_blob(data in prop::collection::vec(any::<u8>(), 0..200), sealed: bool) {
            let mut data = data;
            if sealed && data.len() >= 16 {
                // As a peer that means harm would write it.
                let len = data.len();
                data[..4].copy_from_slice(b"RDML");
                data[4..6].copy_from_slice(&VERSION.to_le_bytes());
                data[6..8].copy_from_slice(&LinkKind::COLLECTIVE.0.to_le_bytes());
                data[8..12].copy_from_slice(&(len as u32).to_le_bytes());
                data[12..16].copy_from_slice(&7_u32.to_le_bytes());
                if let Some([flags, mtu]) = data.get_mut(20..22).and_then(|bytes| bytes.as_chunks_mut().0.first_mut()) {
                    (*flags, *mtu) = (*flags & 3, 1 + *mtu % 5);
                }
                let sum = crc32c::crc32c(&data[..len - 4]);
                data[len - 4..].copy_from_slice(&sum.to_le_bytes());
                let read = Blob::decode(&data, LinkKind::COLLECTIVE, 7);
                prop_assert!(matches!(read, Ok(_) | Err(BlobError::Malformed { .. })), "{:?}", read);
            }
            blob(&data);
        }

        #[test]
        fn no_bytes_break_control_messages(mut data in prop::collection::vec(any::<u8>(), 0..100), sealed: bool) {
            if sealed && data.len() >= 12 {
                let body = data.len() as u16 - 12;
                data[0] = 2;
                data[2..4].copy_from_slice(&body.to_le_bytes());
                data[4..8].fill(0);
                let sum = crc32c::crc32c_append(crc32c::crc32c(&data[..8]), &data[12..]);
                data[8..12].copy_from_slice(&sum.to_le_bytes());
                prop_assert!(control::decode(&data, 0).is_ok());
            }
            control_message(&data);
        }

        #[test]
        fn no_bytes_break_a_plan(
            data in prop::collection::vec(any::<u8>(), 0..100),
            ids in prop::collection::vec(0_u64..20, 0..60),
        ) {
            kv_plan(&data);
            let shape = Model::DEEPSEEK_V3.shape(16, 16, Order::BlockLayerPart);
            let layout = Layout::new(shape).unwrap().encode();
            let lengths = [layout.len() as u8; 2];
            let shape = [&lengths[..], &layout, &layout, &[0; 4]].concat();
            let words = ids.iter().flat_map(|id| (id << 32 | (id * 7 % 19)).to_le_bytes());
            kv_plan(&shape.iter().copied().chain(words).collect::<Vec<u8>>());
            // Blocks that are there, once each.
            let words = (0..ids.len() as u64 % 16).flat_map(|id| (id << 32 | (id * 7 % 16)).to_le_bytes());
            kv_plan(&shape.into_iter().chain(words).chain(data).collect::<Vec<u8>>());
        }
    }
}
