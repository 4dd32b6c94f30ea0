//! Tests that blobs come back whole, and that bytes are refused for every reason for which they can be no blob.

use super::*;
use proptest::prelude::*;

const JOB: u32 = 0x00c0_ffee;

fn blob() -> Blob {
    Blob {
        kind: LinkKind::COLLECTIVE,
        job: JOB,
        epoch: 3,
        soft: true,
        beats: true,
        endpoint: Endpoint {
            qp_num: QpNum(0x12_3456),
            psn: Psn::new(0xab_cdef),
            lid: Lid(9),
            gid: Gid::from(std::net::Ipv4Addr::LOCALHOST),
            mtu: Mtu::MTU_4096,
        },
        credits: 64,
        control_bytes_max: 1024,
        process: Process { boot: [5; 16], pid_namespace: 1 << 40, start: 3, pid: 77 },
        regions: vec![RemoteMemory { addr: 0x1000, len: 4096, rkey: RemoteKey(7) }],
        payload: b"what the users of the link say".to_vec(),
    }
}

fn decode(bytes: &[u8]) -> Result<Blob, BlobError> {
    Blob::decode(bytes, LinkKind::COLLECTIVE, JOB).map(|(blob, rest)| {
        assert!(rest.is_empty());
        blob
    })
}

/// Corrects the checksum of an altered blob.
fn sealed(mut bytes: Vec<u8>) -> Vec<u8> {
    let end = bytes.len() - CHECKSUM_BYTES;
    let checksum = crc32c::crc32c(&bytes[..end]).to_le_bytes();
    bytes[end..].copy_from_slice(&checksum);
    bytes
}

#[test]
fn a_blob_comes_back_and_ends_where_it_says() {
    let bytes = blob().encode().unwrap();
    assert_eq!(decode(&bytes), Ok(blob()));
    let more = [&bytes[..], b"what follows"].concat();
    assert_eq!(Blob::decode(&more, LinkKind::COLLECTIVE, JOB), Ok((blob(), &b"what follows"[..])));
}

#[test]
fn a_truncated_blob_is_refused_at_every_length() {
    let bytes = blob().encode().unwrap();
    for len in 0..bytes.len() {
        assert_eq!(decode(&bytes[..len]), Err(BlobError::Truncated { len }));
    }
    assert_eq!(decode(&bytes), Ok(blob()), "the whole one still is one");
}

#[test]
fn a_blob_altered_in_any_byte_is_refused() {
    let bytes = blob().encode().unwrap();
    for at in 0..bytes.len() {
        let mut altered = bytes.clone();
        altered[at] ^= 0x40;
        let error = decode(&altered).unwrap_err();
        match at {
            0..4 => assert_eq!(error, BlobError::NotABlob),
            4..6 => assert!(matches!(error, BlobError::OtherVersion { .. }), "{at}: {error}"),
            8..12 => {
                assert!(matches!(error, BlobError::Altered | BlobError::Truncated { .. }), "{at}: {error}")
            }
            _ => assert_eq!(error, BlobError::Altered, "{at}"),
        }
    }
}

#[test]
fn a_blob_of_another_version_job_or_kind_is_refused_by_name() {
    let mut other = blob().encode().unwrap();
    other[4] = 3;
    assert_eq!(decode(&other), Err(BlobError::OtherVersion { ours: 2, theirs: 3 }));
    let other = Blob { job: JOB + 1, ..blob() }.encode().unwrap();
    assert_eq!(decode(&other), Err(BlobError::OtherJob));
    let other = Blob { kind: LinkKind::KV, ..blob() }.encode().unwrap();
    assert_eq!(decode(&other), Err(BlobError::OtherKind { ours: 1, theirs: 2 }));
    assert_eq!(decode(b"GET / HTTP/1.1\r\n"), Err(BlobError::NotABlob));
}

#[test]
fn fields_that_cannot_be_are_refused_though_the_checksum_holds() {
    let cases: [(usize, &[u8], &str); 5] = [
        (HEADER_BYTES + 8, &[4], "flags"),
        (HEADER_BYTES + 9, &[9], "MTU"),
        (HEADER_BYTES + 36, &[0; 4], "limits"),
        (HEADER_BYTES + 80, &[17, 0], "limits"),
        (HEADER_BYTES + 82, &[29, 0], "end"),
    ];
    for (at, value, field) in cases {
        let mut bytes = blob().encode().unwrap();
        bytes[at..at + value.len()].copy_from_slice(value);
        assert_eq!(decode(&sealed(bytes)), Err(BlobError::Malformed { field }));
    }
}

#[test]
fn what_does_not_fit_is_not_encoded() {
    let too_long = Err(BlobError::TooLong { limit: BLOB_BYTES_MAX });
    assert_eq!(Blob { payload: vec![0; PAYLOAD_BYTES_MAX + 1], ..blob() }.encode(), too_long);
    assert_eq!(Blob { regions: vec![blob().regions[0]; REGIONS_MAX + 1], ..blob() }.encode(), too_long);
    let largest =
        Blob { payload: vec![1; PAYLOAD_BYTES_MAX], regions: vec![blob().regions[0]; REGIONS_MAX], ..blob() };
    assert_eq!(decode(&largest.encode().unwrap()), Ok(largest));
}

proptest! {
    #[test]
    fn bytes_that_are_no_blob_are_refused_and_never_panic(mut bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        prop_assert!(decode(&bytes).is_err());
        let begin = blob().encode().unwrap();
        let len = bytes.len().min(8);
        bytes[..len].copy_from_slice(&begin[..len]);
        prop_assert!(decode(&bytes).is_err());
    }
}
