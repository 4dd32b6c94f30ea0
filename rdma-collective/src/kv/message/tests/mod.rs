//! Round trips of every message, and pieces of messages.

use super::*;

fn written(write: impl FnOnce(&mut Writer<'_>) -> Result<(), NoRoom>) -> Vec<u8> {
    let mut bytes = vec![0; 200];
    let mut writer = Writer::new(&mut bytes);
    write(&mut writer).unwrap();
    let len = writer.len();
    bytes.truncate(len);
    bytes
}

#[test]
fn messages_come_back_and_their_pieces_do_not() {
    let grant = Grant {
        grant: 1,
        request: RequestId::new([b'r'; 64]).unwrap(),
        time_to_live_ms: 3,
        transfer: 255,
        checksums: true,
        partial: true,
        tokens: false,
        note: false,
        blocks: 2,
    };
    let bytes = written(|writer| grant.write(writer, &[7, 8, 9], 1, 10));
    assert!(bytes.len() - 2 * 4 <= LIST_AT_MOST);
    let (back, piece) = Grant::read(&bytes).unwrap();
    assert_eq!((back, piece.total, piece.first), (grant, 3, 1));
    assert!(piece.numbers().eq([8, 9]));
    assert!((0..94).chain([95, 96, 97]).all(|len| Grant::read(&bytes[..len]).is_err()));

    let begin = Begin {
        grant: 1,
        lease: 2,
        writes: 3,
        write_bytes_max: 4,
        pack_bytes: 5,
        slots: 6,
        by_layer: true,
        tokens: false,
        note: false,
    };
    let bytes = written(|writer| begin.write(writer, &[5; 20], 18, 10));
    let (back, piece) = Begin::read(&bytes).unwrap();
    assert_eq!((back, piece.numbers().len()), (begin, 2));

    let bytes = written(|writer| write_checksums(writer, 9, 10, 8, &[1, 2]));
    let (grant, piece) = read_checksums(&bytes).unwrap();
    assert_eq!((grant, piece.first, piece.numbers().len()), (9, 8, 2));
    let beyond = written(|writer| write_checksums(writer, 9, 10, 9, &[1, 2]));
    assert_eq!(read_checksums(&beyond), Err(Ended));

    let note = NotePiece { id: 1, total: 9, first: 4, bytes: b"token" };
    let bytes = written(|writer| note.write(writer));
    assert_eq!((NotePiece::read(&bytes), NotePiece::read(&bytes[..15])), (Ok(note), Err(Ended)));

    let done = Done { grant: 1, lease: 2, missing: 0, corrupt: 3 };
    let bytes = written(|writer| done.write(writer));
    assert_eq!((Done::read(&bytes), Done::read(&bytes[1..])), (Ok(done), Err(Ended)));
    let (staging, unpacked) = (StagingAt { addr: 1, rkey: 2 }, Unpacked { grant: 3, writes: 4 });
    assert_eq!(StagingAt::read(&written(|writer| staging.write(writer))), Ok(staging));
    assert_eq!(Unpacked::read(&written(|writer| unpacked.write(writer))), Ok(unpacked));
    let refuse = Refuse { grant: 1, blocks: 2, refusal: Refusal::Expired };
    let bytes = written(|writer| refuse.write(writer));
    assert_eq!((Refuse::read(&bytes), Refuse::read(&[&bytes[..], &[0]].concat())), (Ok(refuse), Err(Ended)));
}
