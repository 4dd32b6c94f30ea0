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
fn a_c_tool_has_a_page_under_its_name_with_the_flags_of_its_subcommand() {
    for (twin, subcommand) in TWINS {
        let command = command_of(Some(&format!("/usr/bin/{twin}").into()));
        let page = manual::generate(&command, &[], "man").expect(twin);
        assert!(page.contains(&format!(".TH {twin} 1")), "{page}");
        let program = command_of(None);
        for arg in program.find_subcommand(subcommand).expect(twin).get_arguments() {
            let flag = arg.get_long().map(|long| format!("--{long}").replace('-', "\\-"));
            assert!(flag.is_none_or(|flag| page.contains(&flag)), "{twin} lacks {}", arg.get_id());
        }
    }
}

#[test]
fn the_software_device_has_an_address_without_being_given_one() {
    let soft = |line: &str| match parsed(line).expect(line).command {
        Command::Devices(flags) => flags.common.soft.address,
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
