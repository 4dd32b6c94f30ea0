//! A server and a client, started one after the other, and the figure that the client prints.

use std::error::Error;
use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

/// How long a server may take until it listens: an emulated machine starts programs slowly.
const LISTENS_WITHIN: Duration = Duration::from_secs(30);
/// How long one measurement may take.
const LIMIT: Duration = Duration::from_secs(120);

/// Runs `server` in the background and, once it listens on `port`, `client` to its end; returns what `client` printed.
///
/// # Errors
///
/// A program is missing, fails or takes too long; the message has its output.
pub fn serve_and_run(mut server: Command, mut client: Command, port: u16) -> Result<String> {
    let (server_log, client_log) = (tempfile()?, tempfile()?);
    redirect(&mut server, &server_log)?;
    redirect(&mut client, &client_log)?;
    let mut serving = server.spawn().map_err(|error| format!("{server:?}: {error}"))?;
    let ran = wait_until_it_listens(port, &mut serving).and_then(|()| {
        let mut child = client.spawn().map_err(|error| format!("{client:?}: {error}"))?;
        finish(&mut child, &client)
    });
    if ran.is_err() {
        let _ = serving.kill();
    }
    let served = finish(&mut serving, &server);
    let (printed, told) = (read(&client_log)?, read(&server_log)?);
    let _ = (std::fs::remove_file(&client_log), std::fs::remove_file(&server_log));
    match (ran, served) {
        (Ok(()), Ok(())) => Ok(printed),
        (Err(error), _) | (_, Err(error)) => {
            Err(format!("{error}\nclient:\n{printed}\nserver:\n{told}").into())
        }
    }
}

/// Looks at the system's table of sockets: connecting to see would use up the server's one connection.
fn wait_until_it_listens(port: u16, server: &mut Child) -> Result<()> {
    let begin = Instant::now();
    while begin.elapsed() < LISTENS_WITHIN {
        let tables =
            ["/proc/net/tcp", "/proc/net/tcp6"].map(|path| std::fs::read_to_string(path).unwrap_or_default());
        if tables.iter().any(|table| listens(table, port)) {
            return Ok(());
        }
        if let Some(status) = server.try_wait()? {
            return Err(format!("the server ended before it listened: {status}").into());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Err(format!("nothing listens on port {port} within {LISTENS_WITHIN:?}").into())
}

/// Whether a socket of `table`, in the form of `/proc/net/tcp`, listens on `port`.
fn listens(table: &str, port: u16) -> bool {
    let port = format!(":{port:04X}");
    table
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>())
        .any(|words| words.get(1).is_some_and(|local| local.ends_with(&port)) && words.get(3) == Some(&"0A"))
}

fn finish(child: &mut Child, command: &Command) -> Result<()> {
    let begin = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            return if status.success() { Ok(()) } else { Err(format!("{command:?}: {status}").into()) };
        }
        if begin.elapsed() > LIMIT {
            child.kill()?;
            child.wait()?;
            return Err(format!("{command:?} did not end within {LIMIT:?}").into());
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn redirect(command: &mut Command, log: &Path) -> Result<()> {
    let file = File::create(log)?;
    command.stdin(Stdio::null()).stderr(file.try_clone()?).stdout(file);
    Ok(())
}

fn read(path: &Path) -> Result<String> {
    let mut text = String::new();
    File::open(path)?.take(1 << 20).read_to_string(&mut text)?;
    Ok(text)
}

fn tempfile() -> Result<std::path::PathBuf> {
    use std::sync::atomic::{AtomicU32, Ordering};
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    Ok(std::env::temp_dir().join(format!("bench-{}-{number}.log", std::process::id())))
}

/// The figure in `column` (from 0) of the row of `bytes` in a table as perftest prints it.
///
/// # Errors
///
/// There is no such row, or no figure in it.
pub fn perftest_figure(printed: &str, bytes: u64, column: usize) -> Result<f64> {
    let row = printed.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let mut rows =
        row.filter(|words| words.first().is_some_and(|word| *word == bytes.to_string()) && words.len() >= 4);
    let row = rows.next_back().ok_or_else(|| format!("no row of {bytes} bytes in:\n{printed}"))?;
    let word = row.get(column).ok_or_else(|| format!("no column {column} in: {}", row.join(" ")))?;
    Ok(word.parse()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listening_socket_is_found() {
        let table = "  sl  local_address rem_address   st\n   0: 0100007F:4853 00000000:0000 0A 0:0 0\n   \
                     1: 0100007F:4854 0100007F:9999 01 0:0 0\n";
        assert!(listens(table, 18515));
        assert!(!listens(table, 18516) && !listens(table, 1));
    }

    #[test]
    fn the_figure_of_a_row() {
        let table = "---\n #bytes     #iterations    BW peak[MB/sec]    BW average[MB/sec]   MsgRate[Mpps]\n \
                     65536      5000             62.10              61.25                0.000980\n---\n";
        assert_eq!(perftest_figure(table, 65536, 3).unwrap(), 61.25);
        assert!(perftest_figure(table, 64, 3).is_err());
        assert!(perftest_figure(table, 65536, 9).is_err());
    }
}
