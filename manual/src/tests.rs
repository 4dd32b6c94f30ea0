//! Pages and scripts of a small program.

use super::*;
use clap::{Arg, arg};

fn program() -> Command {
    let soft = arg!(--soft "The software device");
    let device = |id| Arg::new(id).short('d').long("ib-dev").value_name("DEV").help("The device");
    let ping =
        Command::new("ping").about("Pings").arg(device("device").conflicts_with("soft")).arg(soft.clone());
    let list = Command::new("list").about("Lists").arg(device("device")).arg(soft);
    let show = Command::new("show").about("Shows").args([arg!([device]), arg!([port])]).arg(address());
    let after = "Words.\n.5 of them: roff must not take this for a request\n\nExit status:\n  0  done";
    Command::new("program")
        .about("A program")
        .version("1")
        .after_help(after)
        .arg(fault())
        .subcommands([ping, list, show])
}

/// A flag that people are not told of.
fn fault() -> Arg {
    arg!(-Z --fault <FAULT> "For tests").hide(true)
}

/// A flag whose value, if any, stands behind `=`.
fn address() -> Arg {
    arg!(--soft <ADDRESS>).num_args(0..=1).require_equals(true).default_missing_value("here")
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
fn a_positional_device_is_completed_and_stands_before_the_next_argument() {
    let list = "rdma-tools stat --list_of_cas --soft 2>/dev/null";
    let bash = made(&[], "bash").unwrap();
    assert!(bash.contains(&format!("opts=\"-h --soft --help $({list})\"")), "{bash}");
    let zsh = made(&[], "zsh").unwrap();
    assert!(zsh.contains(&format!("'::device:($({list}))' \\\n'::port:_default' \\\n")), "{zsh}");
    let fish = made(&[], "fish").unwrap();
    let line =
        format!("complete -c program -n \"__fish_program_using_subcommand show\" -f -a \"({list})\"\n");
    assert!(fish.ends_with(&line), "{fish}");
    let alone = Command::new("show").args([arg!([device]), arg!([port])]);
    let fish = generate(&alone, &[], "fish").unwrap();
    assert!(fish.ends_with(&format!("\ncomplete -c show -f -a \"({list})\"\n")), "{fish}");
}

#[test]
fn a_flag_whose_value_stands_behind_an_equals_sign_does_not_take_the_next_word() {
    let [bash, zsh, fish] = ["bash", "zsh", "fish"].map(|kind| made(&[], kind).unwrap());
    assert!(!bash.contains("--soft)"), "{bash}");
    assert!(zsh.contains("'--soft=[]::ADDRESS:_default' \\\n"), "{zsh}");
    assert!(fish.contains("using_subcommand show\" -l soft\n"), "{fish}");
}

#[test]
fn hidden_flags_are_not_completed() {
    for kind in ["bash", "zsh", "fish"] {
        let script = made(&[], kind).unwrap();
        for flag in ["--fault", "-l fault", "-Z", "-s Z", "FAULT"] {
            assert!(!script.contains(flag), "{flag} in {script}");
        }
        // The lists that lack its word are whole.
        assert!(!script.contains("RDMA_"), "{script}");
    }
    let [bash, fish] = ["bash", "fish"].map(|kind| made(&[], kind).unwrap());
    assert!(bash.contains("opts=\"-h -V --help --version ping list show\""), "{bash}");
    assert!(fish.contains("string join \\n h/help V/version\n"), "{fish}");
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
