//! Tokens as text, derived tokens and random ones.

use super::*;

#[test]
fn hex_parses_back_and_nothing_else_does() {
    let token = JobToken::from_bytes([0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 0xa, 0xb, 0xc, 0xd, 0xe, 0xff]);
    assert_eq!(token.to_hex(), "000102030405060708090a0b0c0d0eff");
    assert_eq!(token.to_hex().to_uppercase().parse::<JobToken>().unwrap(), token);
    for bad in
        ["", "00", "+00102030405060708090a0b0c0d0eff", "000102030405060708090a0b0c0d0efg", &"0".repeat(33)]
    {
        assert!(
            matches!(bad.parse::<JobToken>(), Err(BootstrapError::NotAToken { len }) if len == bad.len())
        );
    }
}

#[test]
fn derived_tokens_are_those_of_their_parts() {
    let tokens = [&["job", "1"][..], &["job1", ""], &["job", ""], &["", "job"], &[]].map(JobToken::derived);
    for (at, token) in tokens.iter().enumerate() {
        assert!(tokens.iter().skip(at + 1).all(|other| other != token));
    }
    assert_eq!(tokens[0], JobToken::derived(&["job", "1"]));
}

#[test]
fn random_tokens_differ_and_do_not_print_themselves() {
    let (one, other) = (JobToken::random().unwrap(), JobToken::random().unwrap());
    assert_ne!(one, other);
    let shown = format!("{one} {one:?}");
    assert!(!shown.contains(&one.to_hex()[..16]) && shown.contains(&format!("{:08x}", one.fingerprint())));
}
