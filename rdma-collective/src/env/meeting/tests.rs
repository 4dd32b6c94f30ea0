//! Endpoints that are a host and a port, and others.

use super::*;

#[test]
fn endpoints_are_a_host_and_a_port() {
    let parse =
        |value: &str| Endpoint::parse(Setting { name: "NCCL_COMM_ID".to_owned(), value: value.to_owned() });
    for (text, host, port) in [
        ("10.0.0.1:4791", "10.0.0.1", 4791),
        ("[fe80::1]:1", "fe80::1", 1),
        ("head-0.svc:65535", "head-0.svc", 65535),
    ] {
        let endpoint = parse(text).unwrap();
        assert_eq!(
            (endpoint.host.as_str(), endpoint.port, endpoint.by.as_str()),
            (host, port, "NCCL_COMM_ID")
        );
        assert_eq!(endpoint.to_string(), text);
    }
    for text in ["", ":", "host", "host:", ":1", "host:0", "host:65536", "fe80::1:1", "[fe80::1:1", "h:+1"] {
        assert!(parse(text).is_err(), "{text}");
    }
}
