//! Requests, as clients write them. Fields that this server does not know are ignored, as OpenAI's server does; those
//! that it knows and cannot do are refused.

use serde::Deserialize;

use super::{MODEL, Refused};
use crate::model::{Config, Sampling, Token, VOCABULARY, encode};

/// Tokens of an answer, unless the client says otherwise: OpenAI's default of completions.
const TOKENS: usize = 16;
/// Prompts of one request, at most.
const PROMPTS_MAX: usize = 64;
/// Texts that end an answer, at most, as with OpenAI.
const STOPS_MAX: usize = 4;

/// The two ways of asking.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dialect {
    /// `/v1/completions`: a prompt is a text.
    Text,
    /// `/v1/chat/completions`: a prompt is a conversation.
    Chat,
}

/// A request that can be answered.
#[derive(Debug, Clone, PartialEq)]
pub struct Ask {
    /// The way of asking.
    pub dialect: Dialect,
    /// The tokens of each prompt.
    pub prompts: Vec<Vec<Token>>,
    /// The way in which tokens are chosen.
    pub sampling: Sampling,
    /// Tokens of each answer, at most.
    pub tokens_max: usize,
    /// Whether answers go on behind their end.
    pub ignores_end: bool,
    /// Whether the answer comes in pieces.
    pub stream: bool,
    /// Whether a stream ends with the numbers of tokens.
    pub stream_usage: bool,
    /// Texts that end an answer.
    pub stops: Vec<String>,
    /// Whether the tokens are told beside their text.
    pub token_ids: bool,
}

/// A request as it stands in the body.
#[derive(Debug, Deserialize)]
struct Body {
    model: Option<String>,
    prompt: Option<Prompts>,
    messages: Option<Vec<Message>>,
    #[serde(alias = "max_completion_tokens")]
    max_tokens: Option<u64>,
    temperature: Option<f32>,
    top_p: Option<f32>,
    seed: Option<i64>,
    n: Option<u64>,
    #[serde(default)]
    stream: bool,
    #[serde(default)]
    stream_options: Option<StreamOptions>,
    stop: Option<Stops>,
    #[serde(default)]
    ignore_eos: bool,
    #[serde(default)]
    return_token_ids: bool,
    #[serde(default)]
    echo: bool,
    logprobs: Option<serde_json::Value>,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Prompts {
    Text(String),
    Texts(Vec<String>),
    Tokens(Vec<Token>),
    Lists(Vec<Vec<Token>>),
}

#[derive(Debug, Deserialize)]
struct Message {
    role: String,
    content: Option<Content>,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Content {
    Text(String),
    Parts(Vec<Part>),
}

#[derive(Debug, Deserialize)]
struct Part {
    text: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Stops {
    One(String),
    Some(Vec<String>),
}

#[derive(Debug, Deserialize)]
struct StreamOptions {
    #[serde(default)]
    include_usage: bool,
}

impl Ask {
    /// Reads the body of a request.
    ///
    /// # Errors
    ///
    /// The refusal names the field that is wrong.
    pub fn read(dialect: Dialect, body: &[u8], config: &Config) -> Result<Self, Refused> {
        let text = std::str::from_utf8(body)
            .map_err(|error| Refused::request(None, format!("the request is no UTF-8: {error}")))?;
        let body: Body = serde_json::from_str(text).map_err(|error| {
            Refused::request(None, format!("the request is no JSON that this path takes: {error}"))
        })?;
        if let Some(model) = body.model.as_ref().filter(|model| *model != MODEL) {
            return Err(Refused::not_found(format!("there is no model {model}; this server has {MODEL}")));
        }
        if body.n.is_some_and(|n| n != 1) {
            return Err(Refused::request("n", "one answer a prompt: leave n out, or ask several times"));
        }
        let logprobs =
            body.logprobs.as_ref().is_some_and(|of| !of.is_null() && *of != serde_json::json!(false));
        if body.echo || logprobs {
            let param = if body.echo { "echo" } else { "logprobs" };
            return Err(Refused::request(param, "this server does not do that: leave it out"));
        }
        let tokens_max = body.max_tokens.map_or(Ok(TOKENS), usize::try_from).unwrap_or(usize::MAX);
        let prompts = body.prompts(dialect)?;
        for prompt in &prompts {
            check_prompt(prompt, tokens_max, config)?;
        }
        Ok(Self {
            dialect,
            prompts,
            sampling: body.sampling()?,
            tokens_max,
            ignores_end: body.ignore_eos,
            stream: body.stream,
            stream_usage: body.stream_options.as_ref().is_some_and(|options| options.include_usage),
            stops: body.stops()?,
            token_ids: body.return_token_ids,
        })
    }
}

impl Body {
    fn prompts(&self, dialect: Dialect) -> Result<Vec<Vec<Token>>, Refused> {
        if dialect == Dialect::Chat {
            let none = || Refused::request("messages", "messages are missing");
            let messages = self.messages.as_ref().filter(|messages| !messages.is_empty()).ok_or_else(none)?;
            return Ok(vec![encode(conversation(messages).as_bytes())]);
        }
        let text = |text: &String| encode(text.as_bytes());
        let prompts = match &self.prompt {
            None => return Err(Refused::request("prompt", "a prompt is missing")),
            Some(Prompts::Text(one)) => vec![text(one)],
            Some(Prompts::Texts(texts)) => texts.iter().map(text).collect(),
            Some(Prompts::Tokens(tokens)) => vec![tokens.clone()],
            Some(Prompts::Lists(lists)) => lists.clone(),
        };
        if prompts.is_empty() || prompts.len() > PROMPTS_MAX {
            let message = format!("{} prompts, where 1 to {PROMPTS_MAX} are taken at once", prompts.len());
            return Err(Refused::request("prompt", message));
        }
        Ok(prompts)
    }

    fn sampling(&self) -> Result<Sampling, Refused> {
        let (temperature, top_p) = (self.temperature.unwrap_or(1.0), self.top_p.unwrap_or(1.0));
        if !(0.0..=2.0).contains(&temperature) {
            return Err(Refused::request("temperature", format!("temperature is 0 to 2, not {temperature}")));
        }
        if !(0.0..=1.0).contains(&top_p) {
            return Err(Refused::request("top_p", format!("top_p is 0 to 1, not {top_p}")));
        }
        // Any number is as good as another; only its bits count.
        let seed = self.seed.map_or_else(|| getrandom::u64().unwrap_or_default(), i64::cast_unsigned);
        Ok(Sampling { temperature, top_p, seed })
    }

    fn stops(&self) -> Result<Vec<String>, Refused> {
        let stops = match &self.stop {
            None => Vec::new(),
            Some(Stops::One(stop)) => vec![stop.clone()],
            Some(Stops::Some(stops)) => stops.clone(),
        };
        if stops.len() > STOPS_MAX || stops.iter().any(String::is_empty) {
            return Err(Refused::request(
                "stop",
                format!("stop is up to {STOPS_MAX} texts, none of them empty"),
            ));
        }
        Ok(stops)
    }
}

/// The text of a conversation, to be answered.
fn conversation(messages: &[Message]) -> String {
    let said = messages.iter().map(|Message { role, content }| {
        let content = match content {
            None => String::new(),
            Some(Content::Text(text)) => text.clone(),
            Some(Content::Parts(parts)) => parts.iter().filter_map(|part| part.text.as_deref()).collect(),
        };
        format!("<|{role}|>\n{content}\n")
    });
    said.chain(["<|assistant|>\n".to_owned()]).collect()
}

fn check_prompt(prompt: &[Token], tokens_max: usize, config: &Config) -> Result<(), Refused> {
    let most = config.max_position_embeddings;
    if prompt.is_empty() {
        return Err(Refused::request("prompt", "a prompt without a token"));
    }
    if let Some(token) = prompt.iter().find(|token| **token >= VOCABULARY) {
        return Err(Refused::request("prompt", format!("the model has no token {token}")));
    }
    if tokens_max == 0 {
        return Err(Refused::request("max_tokens", "max_tokens is 1 or more"));
    }
    if prompt.len().saturating_add(tokens_max) > most {
        let message = format!(
            "the prompt has {} tokens and its answer up to {tokens_max}, which is more than the {most} that the model \
             has positions for; shorten the prompt or max_tokens",
            prompt.len()
        );
        return Err(Refused::request("max_tokens", message));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::model::BEGIN;

    fn read(dialect: Dialect, body: &Value) -> Result<Ask, Refused> {
        Ask::read(dialect, body.to_string().as_bytes(), &Config::default())
    }

    #[test]
    fn prompts_are_texts_or_tokens_one_or_several() {
        for (prompt, expected) in [
            (json!("a"), vec![vec![BEGIN, 97]]),
            (json!(["a", "b"]), vec![vec![BEGIN, 97], vec![BEGIN, 98]]),
            (json!([1, 2]), vec![vec![1, 2]]),
            (json!([[1], [2, 3]]), vec![vec![1], vec![2, 3]]),
            (json!(""), vec![vec![BEGIN]]),
        ] {
            assert_eq!(read(Dialect::Text, &json!({ "prompt": prompt })).unwrap().prompts, expected);
        }
        let chat = json!({ "messages": [
            { "role": "system", "content": "Be kind." },
            { "role": "user", "content": [{ "type": "text", "text": "Hi" }] },
        ]});
        let expected = encode(b"<|system|>\nBe kind.\n<|user|>\nHi\n<|assistant|>\n");
        assert_eq!(read(Dialect::Chat, &chat).unwrap().prompts, [expected]);
    }

    #[test]
    fn each_field_that_is_wrong_is_named() {
        for (body, param) in [
            (json!({}), "prompt"),
            (json!({ "prompt": [] }), "prompt"),
            (json!({ "prompt": [[]] }), "prompt"),
            (json!({ "prompt": [258] }), "prompt"),
            (json!({ "prompt": vec!["a"; 65] }), "prompt"),
            (json!({ "prompt": "a", "max_tokens": 0 }), "max_tokens"),
            (json!({ "prompt": "a", "max_tokens": u64::MAX }), "max_tokens"),
            (json!({ "prompt": "a".repeat(2040), "max_tokens": 16 }), "max_tokens"),
            (json!({ "prompt": "a", "temperature": -1 }), "temperature"),
            (json!({ "prompt": "a", "top_p": 2 }), "top_p"),
            (json!({ "prompt": "a", "n": 2 }), "n"),
            (json!({ "prompt": "a", "echo": true }), "echo"),
            (json!({ "prompt": "a", "logprobs": 1 }), "logprobs"),
            (json!({ "prompt": "a", "stop": "" }), "stop"),
            (json!({ "prompt": "a", "stop": ["a", "b", "c", "d", "e"] }), "stop"),
        ] {
            let refused = read(Dialect::Text, &body).unwrap_err();
            assert_eq!((refused.status.as_u16(), refused.param), (400, Some(param)), "{body}: {refused}");
        }
        let refused = read(Dialect::Chat, &json!({ "messages": [] })).unwrap_err();
        assert_eq!(refused.param, Some("messages"));
        let refused = read(Dialect::Text, &json!({ "prompt": "a", "model": "gpt-4" })).unwrap_err();
        assert_eq!(refused.status.as_u16(), 404);
        for body in [&b"\xff{}"[..], b"", b"{", b"[]", b"{\"prompt\": 1e999}"] {
            let refused = Ask::read(Dialect::Text, body, &Config::default()).unwrap_err();
            assert_eq!(refused.status.as_u16(), 400, "{refused}");
        }
    }
}
