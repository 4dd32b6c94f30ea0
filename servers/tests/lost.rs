//! A decode or a prefill that is killed costs its requests time, and no token.

mod support;

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use support::{ask, ask_soon, body};

const TOKEN: &str = "000102030405060708090a0b0c0d0e0f";

/// A server in a process of its own, which ends with this.
struct Process {
    child: Child,
    address: SocketAddr,
}

impl Process {
    fn start(role: &str, name: &str, directory: &str) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_mini_server"));
        command.args([role, "--name", name, "--directory", directory, "--token", TOKEN, "--blocks", "512"]);
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let address = line.trim().rsplit('/').next().unwrap().parse().unwrap();
        Self { child, address }
    }

    fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_of_a_server_that_is_killed_are_answered_by_another_one() {
    let client = reqwest::Client::new();
    let single = Process::start("single", "single", "own");
    let router = Process::start("router", "router", "own");
    let directory = format!("http:{}", router.address);
    let start = |role: &str, number: usize| Process::start(role, &format!("{role}-{number}"), &directory);
    let mut servers = [start("prefill", 0), start("prefill", 1), start("decode", 0), start("decode", 1)];
    ask_soon(&client, router.address, &body("Once upon a time", 1, 4)).await;
    // Each role once, with its successor of the same name.
    for (victim, role, number) in [(2, "decode", 0), (0, "prefill", 0), (3, "decode", 1), (1, "prefill", 1)] {
        let requests: Vec<_> = (0..12)
            .map(|seed| {
                let prompt =
                    format!("{role} {number}: {}", "a longer beginning ".repeat(seed as usize % 5 + 1));
                let (client, body) = (client.clone(), body(&prompt, seed, 60));
                let [router, single] = [router.address, single.address];
                tokio::spawn(async move {
                    let split = ask(&client, router, &body).await;
                    let alone = ask(&client, single, &body).await;
                    (split, alone)
                })
            })
            .collect();
        tokio::time::sleep(Duration::from_millis(300)).await;
        servers[victim].kill();
        for request in requests {
            let (split, alone) = request.await.unwrap();
            assert_eq!(split.unwrap(), alone.unwrap(), "{role} {number} was killed");
        }
        servers[victim] = start(role, number);
        let asked = body(&format!("after {role} {number}, a prompt that is long enough"), 3, 8);
        ask_soon(&client, router.address, &asked).await;
    }
}
