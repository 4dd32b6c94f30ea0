//! Answers are the same whole and in pieces, whatever the tokens are.

use std::sync::LazyLock;

use axum::response::IntoResponse;
use proptest::prelude::*;
use tokio::runtime::Runtime;
use tokio::sync::mpsc::unbounded_channel;

use super::*;
use crate::model::{Config, VOCABULARY};

/// A backend whose answer is known.
struct Says(Config, Vec<Token>);

impl Backend for Says {
    fn config(&self) -> &Config {
        &self.0
    }

    async fn begin(&self, _prompt: Prompt) -> Result<UnboundedReceiver<Event>, Refused> {
        let (events, heard) = unbounded_channel();
        self.1.iter().for_each(|token| events.send(Event::Token(*token)).unwrap());
        events.send(Event::Ended(Finish::Length)).unwrap();
        Ok(heard)
    }
}

/// The first choice of a whole answer, with the usage.
async fn asked_whole(says: &Says, ask: &Ask) -> (Value, Value) {
    let answers = begin(says, ask, &HeaderMap::new()).await.unwrap();
    let Json(whole) = whole(ask, answers).await.unwrap();
    (whole["choices"][0].clone(), whole["usage"].clone())
}

/// The pieces of a streamed answer.
async fn asked_streamed(says: &Says, ask: &Ask) -> Vec<Value> {
    let answers = begin(says, ask, &HeaderMap::new()).await.unwrap();
    let body = stream(ask.clone(), answers).into_response().into_body();
    let body = String::from_utf8(axum::body::to_bytes(body, usize::MAX).await.unwrap().to_vec()).unwrap();
    let pieces =
        body.lines().filter_map(|line| line.strip_prefix("data: ")).filter(|piece| *piece != "[DONE]");
    pieces.map(|piece| serde_json::from_str(piece).unwrap()).collect()
}

fn ask(dialect: Dialect, stops: &[String]) -> Ask {
    let more = json!({
        "prompt": "a", "messages": [{ "role": "user", "content": "a" }], "stop": stops,
        "stream_options": { "include_usage": true }, "return_token_ids": true,
    });
    Ask::read(dialect, more.to_string().as_bytes(), &Config::default()).unwrap()
}

static RUNTIME: LazyLock<Runtime> =
    LazyLock::new(|| tokio::runtime::Builder::new_current_thread().build().unwrap());

/// Checks an answer of these tokens, and returns its text.
fn check(tokens: Vec<Token>, stops: &[String]) -> Result<String, TestCaseError> {
    let says = Says(Config::default(), tokens);
    let mut texts = Vec::new();
    for dialect in [Dialect::Text, Dialect::Chat] {
        let ask = ask(dialect, stops);
        let (whole, usage) = RUNTIME.block_on(asked_whole(&says, &ask));
        let pieces = RUNTIME.block_on(asked_streamed(&says, &ask));
        let said = |choice: &Value| match dialect {
            Dialect::Text => choice["text"].as_str().unwrap_or_default().to_owned(),
            Dialect::Chat => choice["delta"]["content"].as_str().unwrap_or_default().to_owned(),
        };
        let choices: Vec<&Value> =
            pieces.iter().flat_map(|piece| piece["choices"].as_array().unwrap()).collect();
        let streamed: String = choices.iter().map(|choice| said(choice)).collect();
        let text = if dialect == Dialect::Chat { &whole["message"]["content"] } else { &whole["text"] };
        prop_assert_eq!(Some(streamed.as_str()), text.as_str());
        let ids: Vec<&Value> =
            choices.iter().flat_map(|choice| choice["token_ids"].as_array().unwrap()).collect();
        prop_assert_eq!(ids, whole["token_ids"].as_array().unwrap().iter().collect::<Vec<_>>());
        prop_assert_eq!(&choices.last().unwrap()["finish_reason"], &whole["finish_reason"]);
        prop_assert_eq!(&pieces.last().unwrap()["usage"], &usage);
        texts.push(streamed);
    }
    prop_assert_eq!(&texts[0], &texts[1]);
    Ok(texts.remove(0))
}

proptest! {
    #[test]
    fn pieces_of_any_tokens_make_the_whole_answer(
        tokens in proptest::collection::vec(0..VOCABULARY, 0..40),
        stops in proptest::collection::vec("[a-z é]{1,3}", 0..3),
    ) {
        check(tokens, &stops)?;
    }

    #[test]
    fn pieces_never_split_a_character(text in "(\\PC|[é漢🦀]){0,20}") {
        prop_assert_eq!(check(text.bytes().map(Token::from).collect(), &[])?, text);
    }
}
