//! The demo ends well, and a browser finds all figures in its page, without a network and without an error.

use std::path::Path;
use std::process::Command;

/// The browser.
const BROWSER: &str = "chromium";

/// The part of a page behind a beginning, up to an end.
fn part<'a>(page: &'a str, begin: &str, end: &str) -> &'a str {
    let (_, rest) = page.split_once(begin).unwrap_or_else(|| panic!("no {begin} in the page"));
    rest.split_once(end).map_or(rest, |(part, _)| part)
}

/// The page as a browser has it when its script has run, and what the script said.
fn opened(path: &Path) -> Option<(String, Vec<String>)> {
    let mut command = Command::new(BROWSER);
    command.args([
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--host-resolver-rules=MAP * ~NOTFOUND",
    ]);
    command.args(["--enable-logging=stderr", "--dump-dom"]).arg(format!("file://{}", path.display()));
    let output = match command.output() {
        Ok(output) => output,
        Err(error) if std::env::var_os("CI").is_none() => {
            println!("skipped: {BROWSER}: {error}");
            return None;
        }
        Err(error) => panic!("{BROWSER}: {error}"),
    };
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let said = said.lines().filter(|line| line.contains("CONSOLE")).map(str::to_owned).collect();
    Some((String::from_utf8_lossy(&output.stdout).into_owned(), said))
}

#[test]
fn a_browser_finds_each_figure_in_the_page_of_a_demo() {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("demo-{}.html", std::process::id()));
    let mut demo = Command::new(env!("CARGO_BIN_EXE_mini_server"));
    let output = demo.args(["demo", "--seconds", "10", "--rate", "4", "--page"]).arg(&path).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    assert!(said.contains("all equal"), "{said}");
    let page = std::fs::read_to_string(&path).unwrap();
    for of_the_network in ["src=", "href=", "@import"] {
        assert!(!page.contains(of_the_network), "{of_the_network}");
    }
    let Some((page, errors)) = opened(&path) else { return };
    assert_eq!(errors, Vec::<String>::new());
    for (figure, lines) in [("first", 4), ("between", 4), ("bytes", 4)] {
        let figure = part(&page, &format!("<div id=\"{figure}\">"), "</div>");
        let points = figure.split("<polyline points=\"").skip(1).map(|line| part(line, "", "\""));
        let points: Vec<usize> = points.map(|line| line.split_whitespace().count()).collect();
        assert!(points.len() == lines && points.iter().all(|points| *points > 1), "{points:?}");
        for name in ["prefill-0", "decode-0", "router"] {
            assert!(figure.contains(&format!("{name} is killed")), "{figure}");
            assert!(figure.contains(&format!("{name} is connected again")), "{figure}");
        }
    }
    assert!(part(&page, "<div id=\"failed\">", "</div>").contains("</td>"));
    assert!(part(&page, "<p id=\"summary\">", "</p>").contains("all are equal"));
    std::fs::remove_file(&path).unwrap();
}

#[test]
fn the_device_of_a_demo_is_that_of_its_servers() {
    let mut demo = Command::new(env!("CARGO_BIN_EXE_mini_server"));
    let output = demo.args(["demo", "--seconds", "2", "--device", "no_such_device"]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains("no_such_device"), "{said}");
}
