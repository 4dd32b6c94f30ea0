//! Answers: whole, or in pieces as their tokens come.

use std::convert::Infallible;
use std::time::{SystemTime, UNIX_EPOCH};

use axum::Json;
use axum::http::HeaderMap;
use axum::response::sse::{Event as Piece, Sse};
use futures_util::stream::{self, SelectAll, Stream, StreamExt};
use serde_json::{Map, Value, json};

use super::output::Output;
use super::{Ask, Backend, Dialect, MODEL, Prompt, Refused};
use crate::batch::{Event, Finish};
use crate::model::Token;
use crate::observe::{self, Heard};

/// The answers of a request, one for each prompt, that have begun.
pub struct Answers {
    id: String,
    created: u64,
    answers: Vec<Heard>,
}

/// The numbers of tokens of a request.
#[derive(Debug, Clone, Copy, Default)]
struct Usage {
    prompt: usize,
    answer: usize,
}

/// Begins the answers to all prompts of a request.
pub async fn begin<B: Backend>(backend: &B, ask: &Ask, headers: &HeaderMap) -> Result<Answers, Refused> {
    let kind = if ask.dialect == Dialect::Chat { "chatcmpl" } else { "cmpl" };
    let id = format!("{kind}-{:016x}", getrandom::u64().unwrap_or_default());
    let created = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let mut answers = Vec::with_capacity(ask.prompts.len());
    for (number, text) in ask.prompts.iter().enumerate() {
        let prompt = Prompt {
            id: format!("{id}-{number}"),
            text: text.clone(),
            sampling: ask.sampling,
            tokens_max: ask.tokens_max,
            ignores_end: ask.ignores_end,
            headers: headers.clone(),
        };
        answers.push(observe::begin(backend, "request", prompt).await?);
    }
    Ok(Answers { id, created, answers })
}

/// Waits for all answers.
pub async fn whole(ask: &Ask, Answers { id, created, answers }: Answers) -> Result<Json<Value>, Refused> {
    let (mut choices, mut usage) = (Vec::new(), Usage::of(ask));
    for (index, mut events) in answers.into_iter().enumerate() {
        let (mut output, mut text, mut tokens) = (Output::new(&ask.stops), String::new(), Vec::new());
        let finish = loop {
            match events.recv().await {
                Some(Event::Token(token)) => {
                    tokens.push(token);
                    let shown = output.push(token);
                    text.push_str(&shown.text);
                    if shown.stopped {
                        events.stop();
                        break Finish::Stop;
                    }
                }
                Some(Event::Ended(finish)) => {
                    let rest = output.finish();
                    text.push_str(&rest.text);
                    break if rest.stopped { Finish::Stop } else { finish };
                }
                Some(Event::Failed(error)) => return Err(Refused::internal(error)),
                Some(Event::Layer(_)) | None => return Err(Refused::internal("the answer has broken off")),
            }
        };
        usage.answer += tokens.len();
        let said = match ask.dialect {
            Dialect::Text => ("text", Value::from(text)),
            Dialect::Chat => ("message", json!({ "role": "assistant", "content": text })),
        };
        choices.push(ask.choice(index, said, Some(finish), &tokens));
    }
    let object = if ask.dialect == Dialect::Chat { "chat.completion" } else { "text_completion" };
    Ok(Json(json!({
        "id": id, "object": object, "created": created, "model": MODEL, "choices": choices, "usage": usage.json(),
    })))
}

/// Tells the tokens of all answers as they come.
pub fn stream(ask: Ask, answers: Answers) -> Sse<impl Stream<Item = Result<Piece, Infallible>>> {
    let Answers { id, created, answers } = answers;
    let object = if ask.dialect == Dialect::Chat { "chat.completion.chunk" } else { "text_completion" };
    let head = json!({ "id": id, "object": object, "created": created, "model": MODEL });
    let mut all = SelectAll::new();
    for (index, events) in answers.into_iter().enumerate() {
        let output = Output::new(&ask.stops);
        all.push(Box::pin(stream::unfold(Some((events, output)), move |state| async move {
            let (mut events, mut output) = state?;
            let event =
                events.recv().await.unwrap_or_else(|| Event::Failed("the answer has broken off".to_owned()));
            let (said, goes_on) = Said::of(event, &mut output);
            if !goes_on {
                events.stop();
            }
            Some(((index, said), goes_on.then_some((events, output))))
        })));
    }
    let mut usage = Usage::of(&ask);
    let mut is_first = vec![true; all.len()];
    let usage_wanted = ask.stream_usage;
    let end_head = head.clone();
    let pieces = all.map(move |(index, said)| {
        if let Some(error) = said.error {
            return (0, Refused::internal(error).body());
        }
        let first = is_first.get_mut(index).is_some_and(std::mem::take);
        let said_now = match ask.dialect {
            Dialect::Text => ("text", Value::from(said.text)),
            Dialect::Chat if first => ("delta", json!({ "role": "assistant", "content": said.text })),
            Dialect::Chat if said.text.is_empty() => ("delta", json!({})),
            Dialect::Chat => ("delta", json!({ "content": said.text })),
        };
        let mut piece = head.clone();
        if let Some(piece) = piece.as_object_mut() {
            let choice = ask.choice(index, said_now, said.finish, &said.tokens);
            piece.insert("choices".to_owned(), json!([choice]));
            if ask.stream_usage {
                piece.insert("usage".to_owned(), Value::Null);
            }
        }
        (said.tokens.len(), piece)
    });
    let counted = pieces.map(Some).chain(stream::once(async { None })).map(move |piece| match piece {
        Some((tokens, piece)) => {
            usage.answer += tokens;
            vec![piece.to_string()]
        }
        None => {
            let mut end = end_head.clone();
            if let Some(end) = end.as_object_mut() {
                end.insert("choices".to_owned(), json!([]));
                end.insert("usage".to_owned(), usage.json());
            }
            let last = usage_wanted.then(|| end.to_string());
            last.into_iter().chain(["[DONE]".to_owned()]).collect()
        }
    });
    Sse::new(counted.flat_map(stream::iter).map(|data| Ok(Piece::default().data(data))))
}

/// A piece of an answer.
#[derive(Debug, Default)]
struct Said {
    text: String,
    tokens: Vec<Token>,
    finish: Option<Finish>,
    error: Option<String>,
}

impl Said {
    /// The part of an answer that an event adds, and whether the answer goes on.
    fn of(event: Event, output: &mut Output) -> (Self, bool) {
        match event {
            Event::Token(token) => {
                let shown = output.push(token);
                let finish = shown.stopped.then_some(Finish::Stop);
                (Self { text: shown.text, tokens: vec![token], finish, error: None }, finish.is_none())
            }
            Event::Ended(finish) => {
                let rest = output.finish();
                let finish = Some(if rest.stopped { Finish::Stop } else { finish });
                (Self { text: rest.text, finish, ..Self::default() }, false)
            }
            Event::Failed(error) => (Self { error: Some(error), ..Self::default() }, false),
            Event::Layer(_) => (Self::default(), true),
        }
    }
}

impl Ask {
    fn choice(
        &self,
        index: usize,
        (field, said): (&str, Value),
        finish: Option<Finish>,
        tokens: &[Token],
    ) -> Map<String, Value> {
        let mut choice = Map::new();
        choice.insert("index".to_owned(), index.into());
        choice.insert(field.to_owned(), said);
        choice.insert("logprobs".to_owned(), Value::Null);
        choice.insert("finish_reason".to_owned(), json!(finish));
        if self.token_ids {
            choice.insert("token_ids".to_owned(), json!(tokens));
        }
        choice
    }
}

impl Usage {
    fn of(ask: &Ask) -> Self {
        Self { prompt: ask.prompts.iter().map(Vec::len).sum(), answer: 0 }
    }

    fn json(self) -> Value {
        json!({
            "prompt_tokens": self.prompt,
            "completion_tokens": self.answer,
            "total_tokens": self.prompt + self.answer,
        })
    }
}
