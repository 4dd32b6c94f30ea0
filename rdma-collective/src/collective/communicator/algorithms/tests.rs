//! Lists of algorithms as `NCCL_ALGO` has them, those that are refused included.

use super::*;

#[test]
fn lists_are_read_in_any_case_and_come_back() {
    for (text, expected) in [
        ("ring", "ring"),
        ("Tree,RING", "ring,tree"),
        ("flat,flat", "flat"),
        ("^Pieces", "ring,tree,flat,direct,pairs,bruck,hierarchical"),
    ] {
        let read: Algorithms = text.parse().unwrap();
        assert_eq!(read.to_string(), expected);
        assert_eq!(Algorithms::from_bits(read.bits()), read);
    }
    assert_eq!(Algorithms::default().to_string(), "ring,tree,flat,pieces,direct,pairs,bruck,hierarchical");
}

#[test]
fn a_collective_may_have_a_list_of_its_own() {
    for (text, expected) in [
        (
            "ring;allreduce:tree,ring;Broadcast:^ring",
            "ring;all-reduce:ring,tree;broadcast:tree,flat,pieces,direct,pairs,bruck,hierarchical",
        ),
        (
            "all-reduce:^tree",
            "ring,tree,flat,pieces,direct,pairs,bruck,hierarchical;all-reduce:ring,flat,pieces,direct,pairs,bruck,hierarchical",
        ),
        ("AllToAll:bruck", "ring,tree,flat,pieces,direct,pairs,bruck,hierarchical;all-to-all:bruck"),
    ] {
        let read: Algorithms = text.parse().unwrap();
        assert!(read.to_string().starts_with(expected), "{read}");
        assert_eq!(read.to_string().parse::<Algorithms>().unwrap(), read);
    }
}

#[test]
fn names_of_others_are_left_out_and_what_is_left_empty_is_as_without() {
    let read = |text| {
        Algorithms::read(text, &["NVLS", "PAT", "SendRecv"])
            .map(|(read, out)| (read.to_string(), out.join(" ")))
    };
    let all = || Algorithms::default().to_string();
    for (text, expected, out) in [
        ("nvls", all(), "nvls"),
        ("NVLS,PAT", all(), "NVLS PAT"),
        ("^nvls", all(), "nvls"),
        ("ring,nvls", "ring".to_owned(), "nvls"),
        ("^tree,pat", "^tree".parse::<Algorithms>().unwrap().to_string(), "pat"),
        ("ring;allreduce:nvls;sendrecv:garbage", "ring".to_owned(), "nvls sendrecv"),
    ] {
        assert_eq!(read(text).unwrap(), (expected, out.to_owned()), "{text}");
    }
    assert_eq!(read("nvls,rind").unwrap_err().name, "rind");
}

#[test]
fn an_unknown_algorithm_is_quoted_beside_those_there_are() {
    for (text, name) in [
        ("nvls", "nvls"),
        ("ring,,tree", ""),
        ("", ""),
        ("^", ""),
        ("ring tree", "ring tree"),
        ("ring;tree", "tree"),
        ("ring;", ""),
        ("allscatter:ring", "allscatter"),
        ("ring;all-reduce:", ""),
    ] {
        let error = text.parse::<Algorithms>().unwrap_err();
        assert_eq!(error.name, name);
        assert!(error.to_string().contains("ring, tree, flat, pieces, direct"), "{error}");
    }
}
