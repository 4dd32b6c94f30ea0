//! Pages and scripts of a small program.

use super::*;
use clap::{Arg, arg};

fn program() -> Command {
    let soft = arg!(--soft "The software device");
    let device = |id| Arg::new(id).short('d').long("ib-dev").value_name("DEV").help("The device");
    let ping =
        Command::new("ping").about("Pings").arg(device("device").conflicts_with("soft")).arg(soft.clone());
    let list = Command::new("list").about("Lists").arg(device("device")).arg(soft);
    let after = "Words.\n.5 of them: roff must not take this for a request\n\nExit status:\n  0  done";
    Command::new("program").about("A program").version("1").after_help(after).subcommands([ping, list])
}

fn made(subcommands: &[&str], kind: &str) -> Result<String, String> {
    let subcommands: Vec<_> = subcommands.iter().map(|name| (*name).to_owned()).collect();
    generate(&program(), &subcommands, kind)
}

#[test]
fn a_page_has_the_text_behind_the_options_as_sections() {
    let page = made(&[], "man").unwrap();
    assert!(page.ends_with(".fi\n.SH \"EXIT STATUS\"\n.nf\n  0  done\n.fi\n"), "{page}");
    assert!(page.contains(".SH NOTES\n.nf\nWords.\n\\&.5 of them"), "{page}");
}

#[test]
fn a_subcommand_has_a_page_of_its_own() {
    let page = made(&["list"], "man").unwrap();
    assert!(page.contains("program\\-list \\- Lists"), "{page}");
    assert!(page.contains("\\-\\-ib\\-dev"), "{page}");
}

#[test]
fn devices_are_asked_for_and_the_software_device_only_where_it_can_be_had() {
    for kind in ["bash", "zsh", "fish"] {
        let script = made(&[], kind).unwrap();
        assert!(script.contains("(rdma-tools stat --list_of_cas 2>/dev/null)"), "{script}");
        assert!(script.contains("(rdma-tools stat --list_of_cas --soft 2>/dev/null)"), "{script}");
        assert!(!script.contains("RDMA_"), "{script}");
    }
}

#[test]
fn a_subcommand_is_completed_where_the_name_of_the_program_has_a_hyphen() {
    let script = generate(&program().name("our-program"), &[], "bash").unwrap();
    assert!(script.contains("cmd=\"our__program__subcmd__list\""), "{script}");
    assert!(script.contains("\n        our__program__subcmd__list)\n"), "{script}");
}

#[test]
fn other_kinds_and_subcommands_are_refused() {
    assert!(made(&[], "elvish").is_err());
    assert!(made(&["wash"], "man").is_err());
    assert!(made(&["list"], "bash").is_err());
}
