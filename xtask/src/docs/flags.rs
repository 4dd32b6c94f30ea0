//! Flags in the help text of a program, which no page and no completion may lack.

/// The flags of a help text, such as `-d` and `--ib-dev`, and its subcommands.
pub fn flags(help: &str) -> Vec<String> {
    // An option's line begins with it; in the lines of its text the first word is another one.
    let lines = help.lines().map(str::trim_start).filter(|line| line.starts_with('-'));
    let mut flags: Vec<String> = lines.flat_map(of_line).collect();
    flags.sort();
    flags.dedup();
    flags
}

fn of_line(line: &str) -> Vec<String> {
    let words = line.split_whitespace().map(|word| {
        let word = word.trim_end_matches(',');
        word.split(['=', '[']).next().unwrap_or_default().to_owned()
    });
    words.take_while(|word| word.starts_with('-') && word.len() > 1).collect()
}

/// The flags of a script for fish, which has them as `-s d -l ib-dev`.
pub fn of_fish(script: &str) -> String {
    let words: Vec<&str> = script.split_whitespace().collect();
    let flags = words.windows(2).filter_map(|pair| match pair {
        ["-s", short] => Some(format!("-{short} ")),
        ["-l", long] => Some(format!("--{long} ")),
        _ => None,
    });
    flags.collect()
}

/// The flags that a text lacks, of which each must stand there as a word of its own.
pub fn missing<'a>(flags: &'a [String], text: &str) -> Vec<&'a str> {
    let is_part = |letter: char| letter.is_alphanumeric() || matches!(letter, '-' | '_');
    let has = |flag: &str| {
        text.match_indices(flag).any(|(at, _)| {
            let before = text[..at].chars().next_back();
            let after = text[at + flag.len()..].chars().next();
            !before.is_some_and(is_part) && !after.is_some_and(is_part)
        })
    };
    flags.iter().map(String::as_str).filter(|flag| !has(flag)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const HELP: &str = "Usage: x [OPTIONS]\n\nOptions:\n  -d, --ib-dev <DEV>  The device - or --none\n\
                        \x20     --soft[=<ADDRESS>]\n          Text\n  -v\n";

    #[test]
    fn the_flags_of_a_help_text_are_those_at_the_beginnings_of_lines() {
        assert_eq!(flags(HELP), ["--ib-dev", "--soft", "-d", "-v"]);
    }

    #[test]
    fn the_flags_of_a_script_for_fish_are_put_together() {
        let script = "complete -c x -s l -l list -d 'The device'\ncomplete -c x -l soft";
        assert_eq!(of_fish(script), "-l --list --soft ");
    }

    #[test]
    fn a_flag_is_missing_where_only_a_longer_one_stands() {
        let flags = flags(HELP);
        assert!(missing(&flags, "-d --ib-dev=X --soft[ '-v[").is_empty());
        assert_eq!(missing(&flags, "-d --ib-device --soft-as -v"), ["--ib-dev", "--soft"]);
    }
}
