//! Directories that are away, slow, lie or say garbage cost servers nothing but the servers that they do not name.

mod support;

use std::net::SocketAddr;
use std::time::Duration;

use servers::directory::{Directory, Entry, File, Http, LASTS, Role, Table};
use servers::members::Members;
use support::{LONG, ask, ask_soon, body, start};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

fn token() -> rdma_collective::bootstrap::JobToken {
    "000102030405060708090a0b0c0d0e0f".parse().unwrap()
}

fn entry(name: &str, role: Role) -> Entry {
    Entry { name: name.to_owned(), role, http: "127.0.0.1:9".to_owned(), blob: String::new(), until: 0 }
}

/// Something that answers every request with these bytes, or with none.
async fn answers(bytes: &'static [u8]) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let mut silent = Vec::new();
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            if bytes.is_empty() {
                silent.push(stream);
                continue;
            }
            tokio::spawn(async move {
                let mut request = [0; 4096];
                _ = stream.read(&mut request).await;
                _ = stream.write_all(bytes).await;
            });
        }
    });
    address
}

#[tokio::test(flavor = "multi_thread")]
async fn directories_that_say_garbage_or_nothing_are_errors_in_time() {
    let nobody = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    for address in [
        nobody,
        answers(b"").await,
        answers(b"\xff\xff garbage").await,
        answers(b"HTTP/1.1 500 No\r\ncontent-length: 0\r\n\r\n").await,
        answers(b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\n[[[").await,
        answers(b"HTTP/1.1 200 OK\r\ncontent-length: 9999\r\n\r\n[").await,
    ] {
        let directory = Http::new(address.to_string()).unwrap();
        let asked = tokio::time::timeout(LONG, directory.entries()).await.expect("an error in time");
        assert!(asked.is_err());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn entries_that_lie_are_left_out_and_those_of_the_dead_end() {
    let table = Table::default();
    let sealed = |name, role| entry(name, role).seal(&token(), LASTS).unwrap();
    table.announce(&sealed("decode-0", Role::Decode)).await.unwrap();
    let stranger = rdma_collective::bootstrap::JobToken::random().unwrap();
    table.announce(&entry("decode-1", Role::Decode).seal(&stranger, LASTS).unwrap()).await.unwrap();
    let mut renamed = sealed("prefill-0", Role::Prefill);
    renamed.name = "decode-2".to_owned();
    table.announce(&renamed).await.unwrap();
    let members = Members::new(token(), Box::new(table.clone()));
    tokio::spawn(members.clone().keep(entry("router", Role::Router), None, Role::Decode));
    let names = |role| -> Vec<String> { members.all(role).into_iter().map(|entry| entry.name).collect() };
    let until = |expected: usize| {
        let names = &names;
        async move {
            while names(Role::Decode).len() != expected {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
    };
    tokio::time::timeout(LONG, until(1)).await.expect("the true one is known");
    assert_eq!(names(Role::Decode), ["decode-0"]);
    assert!(names(Role::Prefill).is_empty());
    // Nobody announces it again.
    tokio::time::timeout(LONG, until(0)).await.expect("an entry ends");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_names_servers_and_is_read_again_when_it_changes() {
    let folder = std::env::temp_dir().join(format!("servers-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let path = folder.join("directory");
    assert!(File::new(path.clone()).is_err());
    std::fs::write(&path, "# nobody yet\n").unwrap();
    let directory = format!("file:{}", path.display());
    let client = reqwest::Client::new();
    let router = start(Role::Router, "router", &directory).await;
    let prefill = start(Role::Prefill, "prefill-0", &directory).await;
    let decode = start(Role::Decode, "decode-0", &directory).await;
    let away = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    std::fs::write(&path, format!("{prefill} # computes prompts\n{decode}\n{away}\nno address\n")).unwrap();
    let body = body("a prompt that is longer than a block of the cache", 3, 8);
    let tokens = ask_soon(&client, router, &body).await;
    assert_eq!(tokens.len(), 8);
    // A file that cannot be read changes nothing.
    std::fs::remove_file(&path).unwrap();
    assert_eq!(ask(&client, router, &body).await.unwrap(), tokens);
    std::fs::remove_dir_all(&folder).unwrap();
}
