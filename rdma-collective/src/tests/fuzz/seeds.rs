//! The inputs that fuzzing begins with, under `fuzz/corpus`: held to what the code writes, so that a new version of a
//! format does not leave them at its first bytes. `BLESS=1` writes them again.

use std::path::Path;

use super::*;
use crate::collective::AbortReason;
use crate::collective::operation::{ABORT, OPERATION};
use crate::collective::tuning::Tuning;
use crate::kv::layout::{Group, HeadOrder, Layout, Model, Order, Shape, Tensors};
use crate::link::codec::Writer;
use crate::link::control::Kind;

type Target = (&'static str, fn(&[u8]), Vec<(&'static str, Vec<u8>)>);

fn encoded_blob(kind: LinkKind, payload: &[u8]) -> Vec<u8> {
    let endpoint =
        Endpoint { qp_num: QpNum(17), psn: Psn::new(5), lid: Lid(0), gid: Gid([4; 16]), mtu: Mtu::MTU_1024 };
    let region = RemoteMemory { addr: 1 << 40, len: 1 << 20, rkey: RemoteKey(77) };
    let blob = Blob {
        kind,
        job: 7,
        epoch: 1,
        soft: true,
        beats: true,
        endpoint,
        credits: 8,
        control_bytes_max: 4096,
        process: Process::default(),
        regions: vec![region; if kind == LinkKind::MESH { 1 } else { 2 }],
        payload: payload.to_vec(),
    };
    let bytes = blob.encode().unwrap();
    assert!(Blob::decode(&bytes, kind, 7).is_ok_and(|(read, rest)| read == blob && rest.is_empty()));
    bytes
}

/// A control message. The fuzz target also takes its first word for an immediate.
fn message(kind: Kind, body: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; 256];
    let len = control::encode(&mut bytes, 0, kind, |writer| writer.put(body)).unwrap();
    bytes.truncate(len);
    assert!(control::decode(&bytes, 0).is_ok_and(|read| read.kind == kind && read.body == body));
    bytes
}

fn operations() -> Vec<(&'static str, Vec<u8>)> {
    let mut header = [0; 28];
    let written =
        Header { rank: 1, sequence: 3, count: 1 << 20, collective: 5, data_type: 1, reduction: 1, root: 2 };
    written.write(&mut Writer::new(&mut header)).unwrap();
    let mut abort = [0; 20];
    let written = Abort { sequence: 3, culprit: 1, reporter: 2, reason: AbortReason::Mismatch };
    written.write(&mut Writer::new(&mut abort)).unwrap();
    let mut barrier = [0; 28];
    let written =
        Header { rank: 0, sequence: 4, count: 0, collective: 6, data_type: 9, reduction: 0, root: 0 };
    written.write(&mut Writer::new(&mut barrier)).unwrap();
    vec![
        ("operation", message(OPERATION, &header)),
        ("barrier", message(OPERATION, &barrier)),
        ("abort", message(ABORT, &abort)),
    ]
}

/// The payload by which a link describes a pool.
fn pool() -> Vec<u8> {
    [&[1, 0, 0, 0][..], &layout(HeadOrder::Nhd)].concat()
}

/// The word by which a rank describes its links to three others.
fn word() -> Vec<u8> {
    let blob = encoded_blob(LinkKind::MESH, &[]);
    let places = (1_u32..4).flat_map(|rank| {
        let mut place = [&rank.to_le_bytes()[..], &blob].concat();
        place.resize(128, 0);
        place
    });
    let word: Vec<u8> = std::iter::once(1).chain(places).collect();
    assert!((0..3).all(|rank| matches!(fuzz_word(&word, 7, (5, rank), 1), Ok(Some(_)))));
    assert!(matches!(fuzz_word(&word, 7, (5, 3), 1), Ok(None)));
    word
}

fn layout(head_order: HeadOrder) -> Vec<u8> {
    let shape = Model::LLAMA_3_1_8B.shape(16, 16, Order::BlockLayerPart);
    Layout::new(Shape { head_order, layers: 2, ..shape }).unwrap().encode()
}

/// Two groups that share the memory of a tensor a layer.
fn shared() -> Vec<u8> {
    let shape = Model::LLAMA_3_1_8B.shape(16, 16, Order::LayerBlockPart);
    let group = |layers: [u32; 2]| {
        Group::new(Shape { layers: 2, ..shape }).of_layers(layers).in_tensors(Tensors::PerLayer)
    };
    Layout::of([group([0, 2]), group([1, 3]).sharing_with(0)]).unwrap().encode()
}

/// Two layouts, four options, and blocks in pairs.
fn plan(source: &[u8], destination: &[u8]) -> Vec<u8> {
    let lengths = [source.len() as u8, destination.len() as u8];
    let pairs: Vec<u8> = (0..8_u64).flat_map(|block| (block << 32 | (15 - block)).to_le_bytes()).collect();
    [&lengths[..], source, destination, &[0, 64, 0, 0], &pairs].concat()
}

fn targets() -> [Target; 7] {
    let launched = b"RANK=1\nWORLD_SIZE=4\nMASTER_ADDR=10.0.0.1\nMASTER_PORT=29500\nNCCL_IB_HCA=^mlx5_3:1\n";
    // Three ranks join, ask, wait and leave.
    let events = [[0, 0, 0], [0, 1, 0], [1, 2, 0], [2, 0, 7], [3, 1, 7], [4, 2, 7], [6, 200, 0], [7, 1, 0]];
    [
        (
            "blob",
            blob,
            vec![
                ("collective", encoded_blob(LinkKind::COLLECTIVE, &[])),
                ("kv", encoded_blob(LinkKind::KV, &pool())),
                ("word", word()),
            ],
        ),
        ("control_message", control_message, operations()),
        ("environment", environment, vec![("torchrun", launched.to_vec())]),
        ("frame", frame, vec![("requests", fuzz::frames())]),
        (
            "kv_plan",
            kv_plan,
            vec![
                ("blocks", plan(&layout(HeadOrder::Nhd), &layout(HeadOrder::Hnd))),
                ("shared", plan(&shared(), &shared())),
            ],
        ),
        ("store", store, vec![("three_ranks", events.concat())]),
        ("tuning", tuning, vec![("built_in", Tuning::default().to_string().into_bytes())]),
    ]
}

#[test]
fn checked_in_inputs_are_what_the_code_writes() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus");
    for (target, run, seeds) in targets() {
        for (name, bytes) in seeds {
            run(&bytes);
            let path = corpus.join(target).join(name);
            if std::env::var_os("BLESS").is_some() {
                std::fs::create_dir_all(corpus.join(target)).unwrap();
                std::fs::write(&path, &bytes).unwrap();
            }
            let there = std::fs::read(&path).unwrap_or_default();
            assert!(there == bytes, "{} is not what the code writes; BLESS=1 writes it", path.display());
        }
    }
}
