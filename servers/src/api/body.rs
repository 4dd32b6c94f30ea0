//! Requests as they stand in their body.

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::Refused;
use crate::model::Token;

/// Fields that change an answer in ways that this server cannot serve. They may have the value that changes nothing.
const UNSERVED: [&str; 19] = [
    "audio",
    "best_of",
    "echo",
    "frequency_penalty",
    "function_call",
    "functions",
    "logit_bias",
    "logprobs",
    "modalities",
    "n",
    "prediction",
    "presence_penalty",
    "reasoning_effort",
    "response_format",
    "suffix",
    "tool_choice",
    "tools",
    "top_logprobs",
    "web_search_options",
];

/// A request as it stands in the body. A field that is `null` is as one that is missing.
#[derive(Debug)]
pub struct Body {
    pub model: Option<String>,
    pub prompt: Option<Prompts>,
    pub messages: Option<Vec<Message>>,
    pub max_tokens: Option<u64>,
    pub max_completion_tokens: Option<u64>,
    pub temperature: Option<f32>,
    pub top_p: Option<f32>,
    pub seed: Option<i64>,
    pub stream: Option<bool>,
    pub stream_options: Option<StreamOptions>,
    pub stop: Option<Stops>,
    pub ignore_eos: Option<bool>,
    pub return_token_ids: Option<bool>,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub enum Prompts {
    Text(String),
    Texts(Vec<String>),
    Tokens(Vec<Token>),
    Lists(Vec<Vec<Token>>),
}

#[derive(Debug, Deserialize)]
pub struct Message {
    pub role: String,
    pub content: Option<Content>,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub enum Content {
    Text(String),
    Parts(Vec<Part>),
}

#[derive(Debug, Deserialize)]
pub struct Part {
    pub text: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub enum Stops {
    One(String),
    Some(Vec<String>),
}

#[derive(Debug, Deserialize)]
pub struct StreamOptions {
    pub include_usage: Option<bool>,
}

impl Body {
    /// Reads a body, all of whose fields this server can serve.
    ///
    /// # Errors
    ///
    /// The refusal names the field that is wrong.
    pub fn read(body: &[u8]) -> Result<Self, Refused> {
        let text = std::str::from_utf8(body).map_err(|error| {
            Refused::request(format!("the request is no UTF-8: {error}")).code("invalid_json")
        })?;
        let mut fields = serde_json::from_str(text).map_err(|error| {
            Refused::request(format!("the request is no JSON object: {error}")).code("invalid_json")
        })?;
        let body = Self {
            model: take(&mut fields, "model")?,
            prompt: take(&mut fields, "prompt")?,
            messages: take(&mut fields, "messages")?,
            max_tokens: take(&mut fields, "max_tokens")?,
            max_completion_tokens: take(&mut fields, "max_completion_tokens")?,
            temperature: take(&mut fields, "temperature")?,
            top_p: take(&mut fields, "top_p")?,
            seed: take(&mut fields, "seed")?,
            stream: take(&mut fields, "stream")?,
            stream_options: take(&mut fields, "stream_options")?,
            stop: take(&mut fields, "stop")?,
            ignore_eos: take(&mut fields, "ignore_eos")?,
            return_token_ids: take(&mut fields, "return_token_ids")?,
        };
        match UNSERVED.into_iter().find(|name| fields.get(*name).is_some_and(|value| changes(name, value))) {
            None => Ok(body),
            Some(name) => {
                let message = format!("this server does not serve {name}: leave it out");
                Err(Refused::field(name, message).code("unsupported_parameter"))
            }
        }
    }
}

/// The value of a field. The refusal of one that has another type names it.
fn take<T: DeserializeOwned>(
    fields: &mut Map<String, Value>,
    name: &'static str,
) -> Result<Option<T>, Refused> {
    let value = fields.remove(name).unwrap_or_default();
    Option::deserialize(value).map_err(|error| Refused::field(name, format!("{name}: {error}")))
}

/// Whether a field asks for anything but what is served without it.
fn changes(name: &str, value: &Value) -> bool {
    match (name, value) {
        (_, Value::Null | Value::Bool(false)) => false,
        ("n" | "best_of", value) => value.as_u64() != Some(1),
        ("frequency_penalty" | "presence_penalty", value) => value.as_f64() != Some(0.0),
        ("tool_choice" | "function_call", Value::String(choice)) => choice != "none" && choice != "auto",
        ("response_format", value) => value.get("type").and_then(Value::as_str) != Some("text"),
        ("modalities", value) => *value != serde_json::json!(["text"]),
        (_, Value::Array(all)) => !all.is_empty(),
        (_, Value::Object(all)) => !all.is_empty(),
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(fields: &Value) -> Result<Body, Refused> {
        Body::read(fields.to_string().as_bytes())
    }

    #[test]
    fn fields_of_another_type_are_named() {
        for (fields, param) in [
            (json!({ "prompt": 1.5 }), "prompt"),
            (json!({ "prompt": "a", "temperature": "hot" }), "temperature"),
            (json!({ "max_tokens": -1 }), "max_tokens"),
            (json!({ "max_tokens": 1.5 }), "max_tokens"),
            (json!({ "messages": {} }), "messages"),
            (json!({ "messages": [{ "content": "a" }] }), "messages"),
            (json!({ "stream": "yes" }), "stream"),
            (json!({ "stop": [1] }), "stop"),
            (json!({ "seed": "a" }), "seed"),
        ] {
            let refused = read(&fields).unwrap_err();
            assert_eq!(refused.param.as_deref(), Some(param), "{fields}");
            assert_eq!(refused.code, "invalid_value");
        }
    }

    #[test]
    fn what_is_no_object_of_json_is_refused() {
        let deep = "[".repeat(100_000);
        let hidden = format!("{{\"prompt\": \"a\", \"more\": {deep}");
        for body in [
            &b"\xff{}"[..],
            b"",
            b"{",
            b"[]",
            b"1",
            b"\"a\"",
            b"null",
            b"{} {}",
            deep.as_bytes(),
            hidden.as_bytes(),
        ] {
            let refused = Body::read(body).unwrap_err();
            assert_eq!((refused.status.as_u16(), &*refused.code), (400, "invalid_json"), "{refused}");
        }
        // Half of a pair of surrogates is no text.
        assert!(Body::read(b"{\"prompt\": \"\\ud800\"}").is_err());
    }

    #[test]
    fn fields_that_cannot_be_served_are_refused_unless_they_change_nothing() {
        for (fields, param) in [
            (json!({ "n": 2 }), "n"),
            (json!({ "echo": true }), "echo"),
            (json!({ "logprobs": 0 }), "logprobs"),
            (json!({ "logprobs": true }), "logprobs"),
            (json!({ "presence_penalty": 0.5 }), "presence_penalty"),
            (json!({ "tools": [{}] }), "tools"),
            (json!({ "response_format": { "type": "json_object" } }), "response_format"),
        ] {
            let refused = read(&fields).unwrap_err();
            assert_eq!((refused.param.as_deref(), &*refused.code), (Some(param), "unsupported_parameter"));
        }
        let nothing = json!({
            "n": 1, "best_of": 1, "echo": false, "logprobs": null, "presence_penalty": 0, "frequency_penalty": 0.0,
            "tools": [], "tool_choice": "auto", "logit_bias": {}, "response_format": { "type": "text" },
            "user": "somebody", "a field of tomorrow": { "a": 1 }, "stream": null, "temperature": null, "stop": null,
        });
        read(&nothing).unwrap();
    }
}
