//! Files of addresses.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use servers::directory::{Directory, File, Role};
use tokio::net::TcpListener;

use super::support::{ask, ask_soon, body, start};

/// A folder of a test's own, empty.
fn folder(name: &str) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("directory-{name}"));
    _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_changes_has_bad_lines_is_replaced_or_vanishes_loses_no_request() {
    let folder = folder("changes");
    let (path, next) = (folder.join("servers"), folder.join("next"));
    std::fs::write(&path, "# nobody yet\n").unwrap();
    let directory = format!("file:{}", path.display());
    let client = reqwest::Client::new();
    let router = start(Role::Router, "router", &directory).await;
    let prefill = start(Role::Prefill, "prefill-0", &directory).await;
    let decode = start(Role::Decode, "decode-0", &directory).await;
    let away = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let text = format!(
        "{prefill} # computes prompts\n{decode}\n\n{away}\nno address\n http://x y\u{0}z\n[::\n{decode}\n"
    );
    std::fs::write(&path, &text).unwrap();
    let body = body("a prompt that is longer than a block of the cache", 3, 8);
    let tokens = ask_soon(&client, router, &body).await;
    assert_eq!(tokens.len(), 8);
    // The file is replaced, and written anew in its place, while it is read.
    let ended = Arc::new(AtomicBool::new(false));
    let (writer_path, writer_ended) = (path.clone(), Arc::clone(&ended));
    let writer = std::thread::spawn(move || {
        while !writer_ended.load(Ordering::Relaxed) {
            std::fs::write(&writer_path, &text).unwrap();
            std::fs::write(&next, &text).unwrap();
            std::fs::rename(&next, &writer_path).unwrap();
        }
    });
    for _ in 0..20 {
        assert_eq!(ask(&client, router, &body).await.unwrap(), tokens);
    }
    ended.store(true, Ordering::Relaxed);
    writer.join().unwrap();
    // A file that cannot be read, or names nobody, changes nothing as long as the servers can be reached.
    for bytes in [b"".as_slice(), b"\xff\xfe", b"# nobody\n"] {
        std::fs::write(&path, bytes).unwrap();
        assert_eq!(ask(&client, router, &body).await.unwrap(), tokens);
    }
    std::fs::remove_file(&path).unwrap();
    assert_eq!(ask(&client, router, &body).await.unwrap(), tokens);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_is_none_is_an_error_that_names_it() {
    let folder = folder("none");
    let refused = |path: PathBuf| {
        let error = File::new(path.clone()).err().expect("an error");
        let error = format!("{error:#}");
        assert!(error.contains(&path.display().to_string()), "{error}");
        error
    };
    assert!(refused(folder.join("missing")).contains("No such file"));
    assert!(refused(folder.clone()).contains("it is no file"));
    let pipe = folder.join("pipe");
    let made = std::process::Command::new("mkfifo").arg(&pipe).status().unwrap();
    assert!(made.success());
    assert!(refused(pipe).contains("it is no file"));
    let write = |name: &str, bytes: &[u8]| {
        let path = folder.join(name);
        std::fs::write(&path, bytes).unwrap();
        path
    };
    assert!(refused(write("large", &vec![b'#'; 2 << 20])).contains("more than 1048576 bytes"));
    assert!(refused(write("many", "a\n".repeat(5000).as_bytes())).contains("5000 addresses, more than 4096"));
    assert!(refused(write("binary", b"\xff\xfe")).contains("UTF-8"));
    let vanishes = write("vanishes", b"\n");
    let directory = File::new(vanishes.clone()).unwrap();
    assert!(directory.entries().await.unwrap().is_empty());
    std::fs::remove_file(vanishes).unwrap();
    assert!(directory.entries().await.is_err());
}
