//! Processes of `mini_server`, and a client that looks at the clock at each token.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::programs;
use crate::soft::Outcome;

/// The time for an answer's next token, and for servers to find each other.
const PATIENCE: Duration = Duration::from_secs(60);
/// Pause before servers that have just started are asked again.
const PAUSE: Duration = Duration::from_millis(50);
/// The token before each text, as the model has it.
const BEGIN: u32 = 256;

/// A server in a process of its own, which ends with this.
pub struct Server {
    child: Child,
    role: &'static str,
    name: String,
    directory: String,
    /// The address of its HTTP.
    pub address: SocketAddr,
}

impl Server {
    /// Starts a server of `directory`, which is `own` or the router that has it.
    ///
    /// # Errors
    ///
    /// `mini_server` is not built, or does not start.
    pub fn start(role: &'static str, name: &str, directory: &str) -> Outcome<Self> {
        Self::start_at(role, name, directory, SocketAddr::from(([127, 0, 0, 1], 0)))
    }

    fn start_at(role: &'static str, name: &str, directory: &str, listen: SocketAddr) -> Outcome<Self> {
        let mut command = Command::new(programs::beside("mini_server")?);
        command.args([role, "--name", name, "--directory", directory, "--listen", &listen.to_string()]);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
        let mut line = String::new();
        BufReader::new(child.stdout.take().ok_or("no output")?).read_line(&mut line)?;
        let (name, directory) = (name.to_owned(), directory.to_owned());
        let address = line.trim().rsplit('/').next().unwrap_or_default().parse()?;
        Ok(Self { child, role, name, directory, address })
    }

    /// Kills the server; returns the moment just before.
    ///
    /// # Errors
    ///
    /// The system does not let it.
    pub fn kill(&mut self) -> Outcome<Instant> {
        let before = Instant::now();
        self.child.kill()?;
        self.child.wait()?;
        Ok(before)
    }

    /// Starts the server again that was killed, at the same address.
    ///
    /// # Errors
    ///
    /// The server does not start.
    pub fn start_again(&mut self) -> Outcome<()> {
        *self = Self::start_at(self.role, &self.name, &self.directory, self.address)?;
        Ok(())
    }

    /// Waits until the server answers, and so has found those that it needs.
    ///
    /// # Errors
    ///
    /// The server does not within a minute.
    pub fn answers(&self) -> Outcome<()> {
        let begin = Instant::now();
        loop {
            match ask(self.address, &prompt(0, 40), 2) {
                Ok(_) => return Ok(()),
                Err(error) if begin.elapsed() > PATIENCE => return Err(error),
                Err(_) => std::thread::sleep(PAUSE),
            }
        }
    }

    /// The figures that the server has of itself.
    ///
    /// # Errors
    ///
    /// The server does not answer.
    pub fn stats(&self) -> Outcome<Value> {
        let mut stream = TcpStream::connect(self.address)?;
        write!(stream, "GET /stats HTTP/1.1\r\nhost: servers\r\nconnection: close\r\n\r\n")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        let (_, body) = answer.split_once("\r\n\r\n").ok_or("an answer without a body")?;
        Ok(serde_json::from_str(body)?)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Nobody is there to hear of it, and a server that has ended is what is wanted.
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

/// The tokens of a prompt: other ones for each seed, so that no server has kept its beginning.
#[must_use]
pub fn prompt(seed: u32, tokens: usize) -> Vec<u32> {
    let digit = |at: u32| {
        97 + seed.wrapping_add(1).wrapping_mul(2_654_435_761).rotate_left(at * 5).wrapping_add(at) % 26
    };
    std::iter::once(BEGIN).chain((0..).map(digit)).take(tokens).collect()
}

/// The tokens of a greedy answer, and the moment of each; the first moment is that of the request.
pub type Answer = (Vec<u32>, Vec<Instant>);

/// Asks for an answer of `count` tokens.
///
/// # Errors
///
/// The server refuses, or the answer breaks off or has another length.
pub fn ask(address: SocketAddr, prompt: &[u32], count: usize) -> Outcome<Answer> {
    watch(address, prompt, count, |_| ())
}

/// Asks, and tells how many tokens have come whenever one has.
///
/// # Errors
///
/// The errors of [`ask`].
pub fn watch(
    address: SocketAddr,
    prompt: &[u32],
    count: usize,
    mut came: impl FnMut(usize),
) -> Outcome<Answer> {
    let body = json!({
        "prompt": prompt, "max_tokens": count, "temperature": 0, "ignore_eos": true, "return_token_ids": true,
        "stream": true,
    });
    let body = body.to_string();
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_nodelay(true)?;
    let head = format!(
        "POST /v1/completions HTTP/1.1\r\nhost: servers\r\nconnection: close\r\ncontent-type: application/json\r\n\
         content-length: {}\r\n\r\n",
        body.len()
    );
    let (mut tokens, mut moments) = (Vec::new(), vec![Instant::now()]);
    stream.write_all((head + &body).as_bytes())?;
    let mut said = String::new();
    for line in BufReader::new(stream).lines() {
        let line = line?;
        // Lines of the head and of the chunks' lengths lie between.
        let Some(data) = line.strip_prefix("data: ").filter(|data| *data != "[DONE]") else {
            said += &line;
            continue;
        };
        let data: Value = serde_json::from_str(data)?;
        for token in data["choices"][0]["token_ids"].as_array().into_iter().flatten() {
            moments.push(Instant::now());
            tokens.push(token.as_u64().unwrap_or_default() as u32);
            came(tokens.len());
        }
        if let Some(error) = data.get("error") {
            return Err(error.to_string().into());
        }
    }
    if tokens.len() == count {
        Ok((tokens, moments))
    } else {
        Err(format!("{} tokens: {said}", tokens.len()).into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prompts_of_other_seeds_share_no_block() {
        let prompts: Vec<Vec<u32>> = (0..50).map(|seed| prompt(seed, 1024)).collect();
        assert!(prompts.iter().all(|prompt| prompt.len() == 1024 && prompt.iter().all(|token| *token < 258)));
        let begins: std::collections::HashSet<&[u32]> = prompts.iter().map(|prompt| &prompt[..16]).collect();
        assert_eq!(begins.len(), prompts.len());
    }
}
