//! A stream to pipes that are read, or not, and to a full disk.

use super::*;
use std::fs::OpenOptions;
use std::io::Read;

/// Long enough for a loaded machine.
fn long() -> Instant {
    Instant::now() + Duration::from_secs(60)
}

/// A stream that is never freed, as those of the programs, to the end of a pipe that the test reads.
macro_rules! piped {
    () => {{
        static ENDS: Mutex<Option<OwnedFd>> = Mutex::new(None);
        static STREAM: Stream = Stream::new(|| Ok(ENDS.lock().unwrap().take().unwrap()));
        let (reader, writer) = std::io::pipe().unwrap();
        *ENDS.lock().unwrap() = Some(writer.into());
        (reader, &STREAM)
    }};
}

#[test]
fn what_is_put_comes_whole_and_in_order() {
    let (mut reader, stream) = piped!();
    let lines: Vec<String> = (0..20_000).map(|number| format!("line {number}\n")).collect();
    lines.iter().for_each(|line| stream.put(line.as_bytes()).unwrap());
    let all = lines.concat();
    let mut read = vec![0; all.len()];
    reader.read_exact(&mut read).unwrap();
    assert_eq!(String::from_utf8(read).unwrap(), all);
    assert_eq!(stream.written(long()).unwrap(), 0);
}

#[test]
fn nobody_waits_for_a_reader_that_takes_nothing_and_room_is_bounded() {
    let (_reader, stream) = piped!();
    let kib = [b'x'; 1024];
    let put = (0..ROOM).take_while(|_| stream.put(&kib).is_ok()).count();
    // The pipe holds some, 64 KiB mostly.
    assert!((ROOM / 1024..2 * ROOM / 1024).contains(&put), "{put}");
    assert!(stream.put(&kib).unwrap_err().to_string().contains("nobody reads"));
    let left = stream.written(Instant::now() + Duration::from_millis(50)).unwrap();
    assert!((ROOM / 2..=ROOM + kib.len()).contains(&left), "{left}");
    // A reader that was late once costs nothing more.
    std::thread::sleep(PROMPT);
    let begin = Instant::now();
    (0..1000).for_each(|_| stream.prompt().unwrap());
    assert!(begin.elapsed() < 100 * PROMPT, "{:?}", begin.elapsed());
}

#[test]
fn a_reader_that_left_is_an_error_at_once() {
    let (reader, stream) = piped!();
    drop(reader);
    stream.put(b"row\n").unwrap();
    assert_eq!(stream.written(long()).unwrap_err().kind(), ErrorKind::BrokenPipe);
}

#[test]
fn a_full_disk_is_an_error_that_later_text_does_not_hide() {
    static FULL: Stream = Stream::new(|| Ok(OpenOptions::new().write(true).open("/dev/full")?.into()));
    for _ in 0..3 {
        FULL.put(b"row\n").unwrap();
        assert_eq!(FULL.written(long()).unwrap_err().kind(), ErrorKind::StorageFull);
    }
}

#[test]
fn a_piece_ends_with_a_line_where_it_can() {
    let piece = |text: &str| String::from_utf8(piece(&text.bytes().collect())).unwrap();
    assert_eq!(piece("one\ntwo\nthr"), "one\ntwo\n");
    assert_eq!(piece("no end"), "no end");
    assert_eq!(piece(&"x".repeat(PIECE + 1)), "x".repeat(PIECE));
}
