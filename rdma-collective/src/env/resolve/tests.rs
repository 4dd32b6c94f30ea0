//! Names of this host, and a host that nobody knows.

use super::*;

#[test]
fn a_name_of_this_host_is_served_to_others_too() {
    let ip = |text: &str| text.parse::<IpAddr>().unwrap();
    for (host, resolved, several, listen) in [
        ("127.0.0.1", "127.0.0.1", Some(false), "127.0.0.1"),
        ("127.0.0.1", "127.0.0.1", None, "127.0.0.1"),
        ("localhost", "127.0.0.1", Some(false), "127.0.0.1"),
        ("::1", "::1", Some(false), "::1"),
        ("localhost", "127.0.0.1", Some(true), "0.0.0.0"),
        ("localhost", "127.0.0.1", None, "0.0.0.0"),
        ("node0", "127.0.1.1", Some(false), "0.0.0.0"),
        ("node0", "::1", Some(true), "::"),
        ("node0", "10.0.0.7", Some(true), "10.0.0.7"),
    ] {
        assert_eq!(to_listen(host, ip(resolved), several), ip(listen), "{host} {several:?}");
    }
}

#[test]
fn an_unknown_host_is_named_at_the_deadline() {
    let endpoint = Endpoint { host: "no such host".to_owned(), port: 1, by: "MASTER_ADDR".to_owned() };
    let error = resolve(&endpoint, Deadline::after(Duration::from_millis(300))).unwrap_err();
    assert!(matches!(&error, BootstrapError::UnknownHost { host, .. } if host == "no such host"), "{error}");
    let endpoint = Endpoint { host: "localhost".to_owned(), ..endpoint };
    assert!(resolve(&endpoint, Deadline::after(Duration::from_secs(60))).unwrap().is_loopback());
}
