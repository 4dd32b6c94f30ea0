//! Values: those that cannot be read, the secret one, NCCL's, and the page that lists all.

use rdma_core::doctor::{FindingId, Machine, Wants};

use super::*;

#[test]
fn values_that_are_none_are_quoted_with_what_is_expected() {
    let cases = [
        ("RANK", "one", "a number from 0 to 65535"),
        ("RANK", "-1", "a number from 0 to 65535"),
        ("WORLD_SIZE", "0", "a number from 1 to 65536"),
        ("WORLD_SIZE", "65537", "a number from 1 to 65536"),
        ("MASTER_PORT", "65536", "a port from 1 to 65535"),
        ("LOCAL_RANK", "1 ", "a number from 0 to 65535"),
        ("NCCL_IB_HCA", "mlx5_0:x", "a list such as"),
        ("NCCL_IB_GID_INDEX", "three", "a number from 0 to 255"),
        ("NCCL_IB_ROCE_VERSION_NUM", "3", "1 or 2"),
        ("NCCL_IB_ADDR_FAMILY", "ipv4", "AF_INET or AF_INET6"),
        ("NCCL_IB_DISABLE", "yes", "0 or 1"),
        ("NCCL_IB_TIMEOUT", "32", "a number from 1 to 31"),
        ("NCCL_IB_TIMEOUT", "0", "a number from 1 to 31"),
        ("NCCL_IB_RETRY_CNT", "8", "a number from 0 to 7"),
        ("NCCL_IB_TC", "256", "a number from 0 to 255"),
        ("NCCL_IB_SL", "16", "a number from 0 to 15"),
        ("NCCL_IB_QPS_PER_CONNECTION", "0", "a number from 1 to 128"),
        ("NCCL_IB_QPS_PER_CONNECTION", "129", "a number from 1 to 128"),
        ("NCCL_IB_QPS_PER_CONNECTION", "two", "a number from 1 to 128"),
        ("NCCL_SOCKET_IFNAME", "^", "a list such as"),
        ("RDMA_PEER_TIMEOUT", "0", "a number from 1 to 3600"),
        ("RDMA_PEER_TIMEOUT", "3.5", "a number from 1 to 3600"),
        ("NCCL_DEBUG", "LOUD", "NONE, VERSION, WARN, INFO"),
        ("NCCL_COMM_ID", "10.0.0.1", "host:port"),
    ];
    let torch = [("RANK", "0"), ("WORLD_SIZE", "1"), ("MASTER_ADDR", "a"), ("MASTER_PORT", "1")];
    for (name, value, expected) in cases {
        let mut variables = torch.to_vec();
        variables.retain(|(known, _)| *known != name);
        variables.push((name, value));
        let told = error(&variables);
        assert!(told.starts_with(&format!("{name} is {value:?}: set it to {expected}")), "{told}");
    }
    let told = error(&[&torch[1..], &[("RANK", "1")]].concat());
    assert!(told.starts_with("RANK=1 is not one of WORLD_SIZE=1"), "{told}");
    let told = error(&[("PET_NNODES", "2"), ("PET_NODE_RANK", "0"), ("PET_NPROC_PER_NODE", "8")]);
    assert!(told.contains("PET_NPROC_PER_NODE=8") && told.contains("torchrun"), "{told}");
    assert!(error(&[("PET_NNODES", "1:4"), ("PET_NODE_RANK", "0")]).contains("PET_NNODES is \"1:4\""));
}

#[test]
fn an_error_neither_obeys_nor_repeats_at_length_what_a_variable_has() {
    let torch = [("RANK", "0"), ("WORLD_SIZE", "2"), ("MASTER_ADDR", "a"), ("MASTER_PORT", "1")];
    let hostile = format!("1{}\u{1b}[2J\r", "x".repeat(100_000));
    let mut errors = 0;
    for variable in table::VARIABLES {
        let mut variables: Vec<_> = torch
            .into_iter()
            .filter(|(name, _)| *name != variable.name)
            .map(|(n, v)| (n, v.to_owned()))
            .collect();
        variables.push((variable.name, hostile.clone()));
        let Err(error) = Environment::read(&variables.into_iter().collect()) else { continue };
        errors += 1;
        let told = error.to_string();
        assert!(told.len() < 1000 && !told.chars().any(char::is_control), "{}: {told:.2000?}", variable.name);
    }
    assert!(errors > 20, "{errors} variables were refused");
}

#[test]
fn an_ipv6_address_may_stand_in_brackets() {
    for (host, is) in [("[::1]", "::1"), ("[fe80::1%eth0]", "[fe80::1%eth0]"), ("[node0]", "[node0]")] {
        let variables = [("RANK", "0"), ("WORLD_SIZE", "2"), ("MASTER_ADDR", host), ("MASTER_PORT", "7")];
        let meeting = launch(&variables).unwrap().unwrap().meeting;
        assert_eq!(meeting, Meeting::Address(at("MASTER_ADDR", is, 7)));
    }
}

#[test]
fn what_is_no_text_is_an_error() {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;
    for name in ["RANK", "NCCL_DEBUG", "NCCL_IB_HCA", "SLURM_PROCID"] {
        let told =
            Environment::read(&Variables::from_iter([(name, OsStr::from_bytes(b"\xff1"))])).unwrap_err();
        assert!(
            told.to_string().starts_with(&format!("{name} is \"\u{fffd}1\", which is not text")),
            "{told}"
        );
    }
    let strange = [(OsStr::from_bytes(b"VC_\xff_HOSTS"), OsStr::from_bytes(b"\xff"))];
    assert_eq!(Environment::read(&Variables::from_iter(strange)).unwrap(), read(&[]).unwrap());
}

#[test]
fn the_token_is_no_part_of_what_is_said() {
    let bad = error(&[("RDMA_JOB_TOKEN", "sesame")]);
    assert!(
        bad.contains("RDMA_JOB_TOKEN") && bad.contains("32 hexadecimal") && !bad.contains("sesame"),
        "{bad}"
    );
    let secret = "00112233445566778899aabbccddeeff";
    let environment = read(&[SRUN, &[("RDMA_JOB_TOKEN", secret)]].concat()).unwrap();
    assert!(environment.launch.as_ref().unwrap().token == Some(secret.parse().unwrap()));
    let said = format!("{environment:?} {:?}", environment.report());
    assert!(!said.contains(&secret[..16]) && said.contains("RDMA_JOB_TOKEN set by environment"), "{said}");
}

#[test]
fn nccls_variables_reach_the_engine_and_the_choice_of_a_gid() {
    use crate::engine::EngineOptions;
    use rdma_core::{AckTimeout, GidType, LinkLayer, RetryOptions, RnrRetry, gid::AddressFamily};
    let suiting = RetryOptions { rnr_retry: RnrRetry::Times(3), ..RetryOptions::default() };
    let nccl = read(&[
        ("NCCL_IB_GID_INDEX", "3"),
        ("NCCL_IB_ROCE_VERSION_NUM", "1"),
        ("NCCL_IB_ADDR_FAMILY", "AF_INET6"),
        ("NCCL_IB_DISABLE", "1"),
        ("NCCL_IB_TIMEOUT", "22"),
        ("NCCL_IB_RETRY_CNT", "5"),
        ("NCCL_IB_TC", "0x6a"),
        ("NCCL_IB_SL", "3"),
        ("NCCL_DEBUG", "info"),
    ]);
    let nccl = nccl.unwrap().nccl;
    let mut options = EngineOptions::default();
    nccl.apply_to(&mut options, false, suiting.clone());
    assert_eq!(options.gid_index, Some(3));
    assert_eq!(options.roce_version, Some(GidType::ROCE_V1));
    assert_eq!(options.address_family, Some(AddressFamily::V6));
    assert_eq!((options.path.traffic_class, options.path.service_level), (106, 3));
    let asked = RetryOptions { ack_timeout: AckTimeout::new(22), retry_cnt: 5, ..suiting.clone() };
    assert_eq!(options.retry, Some(asked));
    let mut soft = EngineOptions::default();
    nccl.apply_to(&mut soft, true, suiting.clone());
    assert_eq!((soft.gid_index, soft.roce_version, soft.address_family), (None, None, None));
    assert_eq!(soft.retry, options.retry);
    assert!(nccl.ib_disable && nccl.debug == DebugLevel::Info);
    let preference = nccl.gid_preference(LinkLayer::ETHERNET);
    assert_eq!((preference.kind, preference.family), (Some(GidType::ROCE_V1), Some(AddressFamily::V6)));
    assert_eq!(nccl.gid_preference(LinkLayer::INFINIBAND).kind, None);
    let unset = read(&[("NCCL_IB_GID_INDEX", "-1"), ("NCCL_IB_TC", "-1")]).unwrap().nccl;
    assert_eq!(unset.report().len(), 2);
    let mut options = EngineOptions::default();
    unset.apply_to(&mut options, false, suiting);
    assert_eq!(options, EngineOptions::default());
}

#[test]
fn tries_that_are_fewer_outlast_the_patience_with_a_peer_all_the_same() {
    use crate::engine::EngineOptions;
    let device = rdma_core::Device::soft(rdma_core::SoftOptions::default()).open().unwrap();
    let peer_timeout = std::time::Duration::from_secs(30);
    let of_caller = EngineOptions { peer_timeout, ..EngineOptions::default() };
    let (tries, patience) = (("NCCL_IB_RETRY_CNT", "3"), ("RDMA_PEER_TIMEOUT", "30"));
    for (variables, mut options) in
        [(vec![tries], of_caller), (vec![tries, patience], EngineOptions::default())]
    {
        read(&variables).unwrap().nccl.apply(&mut options, &device);
        assert_eq!(options.peer_timeout, peer_timeout);
        let retry = options.retry.unwrap();
        assert_eq!(retry.retry_cnt, 3);
        assert!(retry.ack_timeout.duration() * 4 >= peer_timeout, "{retry:?}");
    }
}

#[test]
fn nccls_variables_that_are_not_read_are_named() {
    let variables = [
        ("NCCL_IB_TC", "106"),
        ("NCCL_ALGO", "Ring"),
        ("NCCL_IB_QPS_PER_CONNECTION", "4"),
        ("NCCL_IB_SPLIT_DATA_ON_QPS", "1"),
        ("NCCL_PROTO", ""),
    ];
    let report = NcclOptions::read(&variables.into_iter().collect()).unwrap().report();
    assert_eq!(
        report,
        [
            "NCCL_IB_TC set by environment to 106",
            "NCCL_IB_QPS_PER_CONNECTION set by environment to 4",
            "NCCL_ALGO set by environment to Ring",
            "not read here, though set: NCCL_IB_SPLIT_DATA_ON_QPS"
        ]
    );
}

#[test]
fn queue_pairs_of_a_connection_are_a_number_or_nobodys() {
    let asked = |value| read(&[("NCCL_IB_QPS_PER_CONNECTION", value)]).unwrap().nccl.qps_per_connection;
    assert_eq!(["1", "8", "0x2", "-1", ""].map(asked), [Some(1), Some(8), Some(2), None, None]);
}

#[test]
fn the_page_has_the_table_of_the_code() {
    const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/environment.md");
    const FENCES: [&str; 2] = ["<!-- table -->\n\n", "\n<!-- end -->"];
    let page = std::fs::read_to_string(PAGE).unwrap();
    let (before, rest) = page.split_once(FENCES[0]).expect("the page has no table");
    let (found, after) = rest.split_once(FENCES[1]).expect("the page's table does not end");
    if std::env::var_os("BLESS").is_some_and(|bless| !bless.is_empty()) {
        let page = [before, FENCES[0], &variables_table(), FENCES[1], after].concat();
        return std::fs::write(PAGE, page).unwrap();
    }
    let mend = "run `BLESS=1 cargo test -p rdma-collective the_page_has_the_table_of_the_code`";
    assert!(found == variables_table(), "docs/environment.md is behind the code: {mend}");
}

/// The doctor names each value that ends a program, and no other one.
#[test]
fn the_doctor_refuses_what_the_reader_refuses() {
    let machine = Machine::read("/not/there");
    let names =
        table::VARIABLES.iter().map(|variable| variable.name).filter(|name| name.starts_with("NCCL_IB_"));
    let values = [
        "-1", "0", "1", "2", "3", "7", "8", "15", "16", "31", "32", "128", "129", "255", "256", "0x3", "0xg",
        "-2", "+1", "one", "AF_INET", "AF_INET6", "ipv4",
    ];
    let mut compared = 0;
    for (name, value) in names.flat_map(|name| values.map(|value| (name, value))) {
        if name == "NCCL_IB_HCA" {
            continue; // a list of names, which both read by `NameFilter`
        }
        let read = NcclOptions::read(&Variables::from_iter([(name, value)]));
        let mut wants = Wants::default();
        wants.variables.insert(name.to_owned(), value.to_owned());
        let told = machine.findings(&wants).iter().any(|finding| finding.id == FindingId::NcclInvalid);
        assert_eq!(told, read.is_err(), "{name}={value}: {read:?}");
        compared += 1;
    }
    assert_eq!(compared, 9 * values.len());
}
