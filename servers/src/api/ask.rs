//! Requests that can be answered. Fields that nobody knows are ignored, so that a client of tomorrow is served; known
//! fields that this server cannot serve are refused, so that nobody takes another answer for the one that was asked
//! for.

use super::body::{Body, Content, Message, Prompts, Stops};
use super::{LONGER, MODEL, Refused};
use crate::model::{Config, Sampling, Token, VOCABULARY, encode};

/// Tokens of an answer, unless the client says otherwise: OpenAI's default of completions.
const TOKENS: usize = 16;
/// Prompts of one request, at most.
pub const PROMPTS_MAX: usize = 64;
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

impl Ask {
    /// Reads the body of a request.
    ///
    /// # Errors
    ///
    /// The refusal names the field that is wrong.
    pub fn read(dialect: Dialect, body: &[u8], config: &Config) -> Result<Self, Refused> {
        let body = Body::read(body)?;
        if let Some(model) = body.model.as_ref().filter(|model| *model != MODEL) {
            return Err(Refused::no_model(model));
        }
        let tokens_max = body.max_completion_tokens.or(body.max_tokens);
        let tokens_max = tokens_max.map_or(Ok(TOKENS), usize::try_from).unwrap_or(usize::MAX);
        let prompts = body.prompts(dialect)?;
        let param = if dialect == Dialect::Chat { "messages" } else { "prompt" };
        for prompt in &prompts {
            check_prompt(prompt, tokens_max, config).map_err(|refused| match refused.param.as_deref() {
                Some("prompt") => refused.of(param),
                _ => refused,
            })?;
        }
        Ok(Self {
            dialect,
            prompts,
            sampling: body.sampling()?,
            tokens_max,
            ignores_end: body.ignore_eos.unwrap_or(false),
            stream: body.stream.unwrap_or(false),
            stream_usage: body
                .stream_options
                .as_ref()
                .is_some_and(|options| options.include_usage == Some(true)),
            stops: body.stops()?,
            token_ids: body.return_token_ids.unwrap_or(false),
        })
    }
}

impl Body {
    fn prompts(&self, dialect: Dialect) -> Result<Vec<Vec<Token>>, Refused> {
        if dialect == Dialect::Chat {
            let none =
                || Refused::field("messages", "messages are missing").code("missing_required_parameter");
            let messages = self.messages.as_ref().filter(|messages| !messages.is_empty()).ok_or_else(none)?;
            return Ok(vec![encode(conversation(messages)?.as_bytes())]);
        }
        let text = |text: &String| encode(text.as_bytes());
        let prompts = match &self.prompt {
            None => {
                return Err(
                    Refused::field("prompt", "a prompt is missing").code("missing_required_parameter")
                );
            }
            Some(Prompts::Text(one)) => vec![text(one)],
            Some(Prompts::Texts(texts)) => texts.iter().map(text).collect(),
            Some(Prompts::Tokens(tokens)) => vec![tokens.clone()],
            Some(Prompts::Lists(lists)) => lists.clone(),
        };
        if prompts.is_empty() || prompts.len() > PROMPTS_MAX {
            let message = format!("{} prompts, where 1 to {PROMPTS_MAX} are taken at once", prompts.len());
            return Err(Refused::field("prompt", message));
        }
        Ok(prompts)
    }

    fn sampling(&self) -> Result<Sampling, Refused> {
        let (temperature, top_p) = (self.temperature.unwrap_or(1.0), self.top_p.unwrap_or(1.0));
        if !(0.0..=2.0).contains(&temperature) {
            return Err(Refused::field("temperature", format!("temperature is 0 to 2, not {temperature}")));
        }
        if !(0.0..=1.0).contains(&top_p) {
            return Err(Refused::field("top_p", format!("top_p is 0 to 1, not {top_p}")));
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
            return Err(Refused::field(
                "stop",
                format!("stop is up to {STOPS_MAX} texts, none of them empty"),
            ));
        }
        Ok(stops)
    }
}

/// The text of a conversation, to be answered.
fn conversation(messages: &[Message]) -> Result<String, Refused> {
    let mut said = String::new();
    for Message { role, content } in messages {
        let content = match content {
            None => String::new(),
            Some(Content::Text(text)) => text.clone(),
            Some(Content::Parts(parts)) => {
                let texts: Option<String> = parts.iter().map(|part| part.text.as_deref()).collect();
                let other = || {
                    Refused::field("messages", "a part of a message is no text, and this model reads texts")
                };
                texts.ok_or_else(|| other().code("unsupported_content"))?
            }
        };
        said.push_str(&format!("<|{role}|>\n{content}\n"));
    }
    Ok(said + "<|assistant|>\n")
}

/// Refuses a prompt that the model cannot go on with.
pub fn check_prompt(prompt: &[Token], tokens_max: usize, config: &Config) -> Result<(), Refused> {
    let most = config.max_position_embeddings;
    if prompt.is_empty() {
        return Err(Refused::field("prompt", "a prompt without a token"));
    }
    if let Some(token) = prompt.iter().find(|token| **token >= VOCABULARY) {
        return Err(Refused::field("prompt", format!("the model has no token {token}")));
    }
    if tokens_max == 0 {
        return Err(Refused::field("max_tokens", "max_tokens is 1 or more"));
    }
    if prompt.len().saturating_add(tokens_max) > most {
        let message = format!(
            "the prompt has {} tokens and its answer up to {tokens_max}, which is more than the {most} that the model \
             has positions for; shorten the prompt or max_tokens",
            prompt.len()
        );
        return Err(
            Refused::field(if prompt.len() < most { "max_tokens" } else { "prompt" }, message).code(LONGER)
        );
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
            (json!({ "prompt": "a".repeat(4000) }), "prompt"),
            (json!({ "prompt": "a", "stop": "" }), "stop"),
            (json!({ "prompt": "a", "stop": ["a", "b", "c", "d", "e"] }), "stop"),
        ] {
            let refused = read(Dialect::Text, &body).unwrap_err();
            assert_eq!(
                (refused.status.as_u16(), refused.param.as_deref()),
                (400, Some(param)),
                "{body}: {refused}"
            );
        }
        for messages in [
            json!([]),
            json!([{ "role": "user", "content": "a".repeat(4000) }]),
            json!([{ "role": "user", "content": [{ "type": "image_url", "image_url": { "url": "a" } }] }]),
        ] {
            let refused = read(Dialect::Chat, &json!({ "messages": messages })).unwrap_err();
            assert_eq!(
                (refused.status.as_u16(), refused.param.as_deref()),
                (400, Some("messages")),
                "{refused}"
            );
        }
        let refused = read(Dialect::Text, &json!({ "prompt": "a", "model": "gpt-4" })).unwrap_err();
        assert_eq!((refused.status.as_u16(), &*refused.code), (404, "model_not_found"));
    }
}
