//! NCCL's names that this library has, those that only NCCL has, and those of nobody.

use super::*;

fn apply(value: &str) -> Result<Algorithms, TuningError> {
    let nccl = NcclOptions::read(&[("NCCL_ALGO", value)].into_iter().collect()).unwrap();
    let mut options = CommunicatorOptions::default();
    nccl.apply_to_communicator(&mut options).map(|()| options.algorithms)
}

#[test]
fn names_that_only_nccl_has_leave_the_rest_of_its_list() {
    for (value, expected) in [
        ("NVLS", ""),
        ("nvlstree,CollnetDirect,CollnetChain,PAT", ""),
        ("^NVLS,NVLSTree", ""),
        ("Tree,NVLS", "tree"),
        ("allreduce:tree;broadcast:nvls;sendrecv:ring", "all-reduce:tree"),
    ] {
        let expected = if expected.is_empty() { Algorithms::default() } else { expected.parse().unwrap() };
        assert_eq!(apply(value), Ok(expected), "{value}");
    }
}

#[test]
fn a_name_that_is_no_algorithm_is_refused_with_the_value() {
    let error = apply("ring,bogus").unwrap_err().to_string();
    assert!(error.starts_with("NCCL_ALGO is \"ring,bogus\": \"bogus\" is no algorithm"), "{error}");
}
