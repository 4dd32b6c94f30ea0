//! Options of a server that cannot be.

use servers::directory::Role;
use servers::serve::{Options, Server};
use tokio::net::TcpListener;

use super::support::options;

async fn refused(role: Role, options: Options) -> String {
    format!("{:#}", Server::new(role, &options).await.err().expect("an error"))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_port_that_is_taken_is_an_error_that_names_it() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let taken = listener.local_addr().unwrap();
    let http = refused(Role::Router, Options { listen: taken, ..options("router", "own") }).await;
    assert!(http.contains(&taken.to_string()) && http.contains("in use"), "{http}");
    let node = refused(Role::Decode, Options { kv_listen: taken, ..options("decode", "own") }).await;
    assert!(node.contains(&taken.to_string()) && node.contains("in use"), "{node}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_listens_on_every_address_must_name_one_if_others_ask_it() {
    let every = |name: &str| Options { listen: "0.0.0.0:0".parse().unwrap(), ..options(name, "own") };
    let error = refused(Role::Decode, every("decode")).await;
    assert!(error.contains("give theirs with --address HOST:PORT"), "{error}");
    let named = Options { address: Some("10.0.0.2:8000".to_owned()), ..every("decode") };
    assert_eq!(Server::new(Role::Decode, &named).await.unwrap().entry.http, "10.0.0.2:8000");
    Server::new(Role::Single, &every("single")).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_directory_that_cannot_be_is_an_error_that_names_what_can() {
    let named = async |directory: &str| refused(Role::Router, options("router", directory)).await;
    assert!(
        named("zookeeper:127.0.0.1:1").await.contains("there is no directory zookeeper: own, http:HOST:PORT")
    );
    assert!(named("etcd:").await.contains("etcd:HOST:PORT[,HOST:PORT]"));
    assert!(named("etcd: ,").await.contains("etcd:HOST:PORT[,HOST:PORT]"));
    assert!(named("file:/no/such/file").await.contains("/no/such/file"));
    assert!(named("store:127.0.0.1:1").await.contains("store:HOST:PORT,RANK,WORLD has no rank"));
    assert!(named("store:nowhere").await.contains("the address of the store"));
}
