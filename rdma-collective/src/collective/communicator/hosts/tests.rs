//! Ranks on one host and on several, and the text about ranks that are held apart.

use super::*;

#[test]
fn several_hosts_are_such_where_some_ranks_are_together() {
    for (names, spread) in [
        (&["a"][..], Spread::OneLevel),
        (&["a", "a", "a"], Spread::OneLevel),
        (&["b", "a"], Spread::OneLevel),
        (&["b", "a", "b", "a"], Spread::Hosts),
        (&["b", "b", "a", "a"], Spread::Blocks),
        (&["a", "b", "b", "a"], Spread::Hosts),
        (&["a", "a", "a", "b"], Spread::Hosts),
        (&["a", "a", "b"], Spread::Hosts),
        (&["", "", "b", "b", "c", "c"], Spread::Hosts),
        (&["a", "b", "a", "b", "a", "b", "b", "a"], Spread::Hosts),
        (&["a", "a", "a", "a", "a", "b", "b", "b", "b"], Spread::Hosts),
        (&["a", "a", "a", "a"], Spread::OneLevel),
    ] {
        let hosts = Hosts::new(names.iter().map(|name| (*name, false)));
        assert_eq!(hosts.spread(), spread, "{names:?}");
    }
}

#[test]
fn ranks_are_held_apart_where_one_of_them_has_a_host_that_somebody_named() {
    let apart = |named: [bool; 3]| {
        let hosts = Hosts::new(["x", "y", "x"].into_iter().zip(named));
        [[0, 1], [1, 2], [2, 0]].map(|ranks| hosts.connect_overrides(ranks).apart)
    };
    assert_eq!(apart([true; 3]), [true, true, false]);
    assert_eq!(apart([true, false, false]), [true, false, false]);
    assert_eq!(apart([false; 3]), [false; 3]);
}

#[test]
fn what_is_said_of_ranks_that_are_apart_has_every_host_and_an_end() {
    let said = |names: &[&str], named: bool| {
        let said = Hosts::new(names.iter().map(|name| (*name, named))).describe_named(names)?;
        assert!(said.contains("host_id") && said.contains("unless Wire::Mapped"), "{said}");
        said.strip_prefix(&format!("{BY_NAME}: ")).map(str::to_owned)
    };
    assert_eq!(said(&["a", "b", "a"], false), None);
    assert_eq!(said(&["a", "a", "a"], true), None);
    assert_eq!(said(&["a", "b", "a"], true).unwrap(), r#""a" has ranks 0 and 2, "b" has rank 1"#);
    let names: Vec<String> = (0..1000).map(|rank| (rank % 500).to_string()).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let many = said(&names, true).unwrap();
    assert!(many.ends_with(r#""15" has ranks 15 and 515, and there are 484 more"#), "{many}");
    assert!(said(&["x\ny", ""], true).unwrap().starts_with(r#""x\ny" has rank 0"#), "on one line");
}
