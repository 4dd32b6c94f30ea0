//! Requests, answers and notes come back, and nothing else does.

use std::time::{Duration, SystemTime};

use proptest::prelude::*;

use super::*;
use crate::kv::PoolUse;
use crate::kv::layout::{Layout, Model, Order};
use crate::liveness::Process;

#[test]
fn answers_and_notes_come_back_and_nothing_else_is_one() {
    for answer in REASONS.map(Answer::Refused).into_iter().chain([Answer::Welcome(vec![1, 2, 3])]) {
        let bytes = answer.encode().unwrap();
        assert_eq!(Answer::decode(&bytes).unwrap(), answer);
        assert!(Answer::decode(&bytes[..bytes.len() - 1]).is_err());
    }
    let unknown = seal(LinkKind::ANSWER, |body| body.u8(8)).unwrap();
    assert!(Answer::decode(&unknown).is_err());
    let (want, failed) = (Note::Want { way: Way::Out, last: 7 }, Note::Failed { way: Way::In, number: 3 });
    for note in [want, failed] {
        assert_eq!(Note::decode(note.encode()), Some(note));
    }
    for bytes in [[0; 6], [3, 0, 0, 0, 0, 0], [1, 2, 0, 0, 0, 0]] {
        assert_eq!(Note::decode(bytes), None);
    }
}

fn node(name: &str) -> NodeBlob {
    let shape = Model::DEEPSEEK_V3.shape(16, 8, Order::LayerBlockPart);
    let layout = Layout::new(shape).unwrap();
    NodeBlob {
        job: 7,
        name: NodeName::new(name).unwrap(),
        incarnation: 3,
        process: Process::default(),
        expires: 9,
        soft: true,
        addresses: vec!["10.0.0.1:80".parse().unwrap(), "[2001:db8::1]:81".parse().unwrap()],
        source: Some((PoolUse::SourceToPull, layout.clone())),
        destination: Some(layout),
    }
}

#[test]
fn requests_and_blobs_come_back() {
    for source in [true, false] {
        let mut from = node("a");
        from.source = from.source.filter(|_| source);
        assert_eq!(NodeBlob::decode(&from.encode().unwrap(), 7).unwrap(), from);
        let wish = Wish {
            to: 1,
            from: from.name.clone(),
            incarnation: 2,
            way: Way::Out,
            number: 4,
            blob: b"the blob".to_vec(),
        };
        for request in [Request::Introduction { to: 5, from }, Request::Wish(wish)] {
            let bytes = request.encode().unwrap();
            assert_eq!(Request::decode(&bytes, 7).unwrap(), request);
            assert!(Request::decode(&bytes[..bytes.len() - 1], 7).is_err());
        }
    }
    let other = Request::Introduction { to: 5, from: node("a") }.encode().unwrap();
    assert!(matches!(Request::decode(&other, 8), Err(NodeError::Blob(BlobError::OtherJob))));
}

#[test]
fn a_blob_expires_at_its_time() {
    let at = |seconds| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
    let blob = node("a");
    assert_eq!((blob.expired(at(8)), blob.expired(at(11))), (None, Some(Duration::from_secs(2))));
    assert_eq!(NodeBlob { expires: 0, ..blob }.expired(at(11)), None);
}

proptest! {
    #[test]
    fn any_bytes_can_be_heard(mut bytes in prop::collection::vec(any::<u8>(), 0..200), at in 0_usize..400) {
        fuzz(&bytes);
        bytes = node("a").encode().unwrap()[12..].to_vec();
        bytes.truncate(bytes.len() - 4);
        fuzz(&bytes);
        if let Some(byte) = bytes.get_mut(at) {
            *byte ^= 0x41;
        }
        fuzz(&bytes);
    }
}
