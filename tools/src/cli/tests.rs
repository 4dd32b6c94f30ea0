//! Names and numbers of the C tools.

use super::*;
use clap::CommandFactory;

fn parsed(line: &str) -> Result<Cli, clap::Error> {
    Cli::try_parse_from(spelled_out(line.split_whitespace().map(OsString::from)))
}

#[test]
fn the_flags_are_sound() {
    Cli::command().debug_assert();
}

#[test]
fn the_name_of_a_c_tool_is_its_subcommand() {
    for (twin, subcommand) in TWINS {
        let cli = parsed(&format!("/usr/bin/{twin}")).expect(twin);
        assert_eq!(cli.command.name(), *subcommand);
    }
    assert_eq!(parsed("rdma-tools devices --soft").expect("devices").command.name(), "devices");
    assert!(parsed("rdma-tools").is_err());
}

#[test]
fn the_software_device_has_an_address_without_being_given_one() {
    let soft = |line: &str| match parsed(line).expect(line).command {
        Command::Devices(flags) => flags.soft.address,
        _ => None,
    };
    assert_eq!(soft("ibv_devices"), None);
    assert_eq!(soft("ibv_devices --soft"), LOCALHOST.parse().ok());
    assert_eq!(soft("ibv_devices --soft=10.0.0.5"), "10.0.0.5".parse().ok());
}

#[test]
fn numbers_are_read_as_the_c_tools_read_them() {
    assert_eq!(number::<u16>("18515"), Ok(18515));
    assert_eq!(number::<u32>("0x1000"), Ok(4096));
    for wrong in ["", "x", "-1", "70000", "0x", "1 "] {
        assert!(number::<u16>(wrong).is_err(), "{wrong}");
    }
}
