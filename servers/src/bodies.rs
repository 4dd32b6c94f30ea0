//! Bodies of requests, which are read whole: the time, and the bytes of one and of all that are under way.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use futures_util::StreamExt;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use crate::api::{PROMPTS_MAX, Refused};
use crate::model::Config;

/// Bytes of a token in JSON, at most: an escape as `\u0041`. A number and its comma are shorter.
const TOKEN_BYTES: usize = 6;
/// Bytes of a body beside the tokens of its prompts.
const MORE: usize = 64 * 1024;
/// Bytes of all bodies under way: 64 MiB, which are 77 of the longest ones for the default model.
const ALL_MAX: usize = 64 << 20;

/// The bounds of a server's bodies. A clone counts the same bodies.
#[derive(Clone)]
pub struct Bodies {
    /// The time of a client.
    pub within: Duration,
    one_max: usize,
    /// A permit for each byte.
    room: Arc<Semaphore>,
}

/// The part of a body that has come, and its room.
#[derive(Default)]
struct Part {
    bytes: Vec<u8>,
    room: Option<OwnedSemaphorePermit>,
}

impl Bodies {
    /// Bodies that a client says `within` a time: each has room for as many prompts as a request may have, of the
    /// longest text of this model.
    #[must_use]
    pub fn of(config: &Config, within: Duration) -> Self {
        let tokens = PROMPTS_MAX.saturating_mul(config.max_position_embeddings);
        Self::new(within, tokens.saturating_mul(TOKEN_BYTES).saturating_add(MORE).min(ALL_MAX), ALL_MAX)
    }

    fn new(within: Duration, one_max: usize, all_max: usize) -> Self {
        Self { within, one_max, room: Arc::new(Semaphore::new(all_max)) }
    }

    /// Reads a body. One that is refused is read to its end and not kept, because its client hears nothing before.
    async fn read(&self, body: Body) -> Result<Part, Refused> {
        let (mut pieces, mut read) = (body.into_data_stream(), Ok(Part::default()));
        while let Some(piece) = pieces.next().await {
            let piece =
                piece.map_err(|error| Refused::request(format!("the request has broken off: {error}")))?;
            read = read.and_then(|part| self.add(part, &piece));
        }
        read
    }

    fn add(&self, mut part: Part, piece: &[u8]) -> Result<Part, Refused> {
        if part.bytes.len() + piece.len() > self.one_max {
            let message = format!("the request has more than {} bytes", self.one_max);
            return Err(Refused::new(StatusCode::PAYLOAD_TOO_LARGE, "request_too_large", message));
        }
        let bytes = u32::try_from(piece.len()).unwrap_or(u32::MAX);
        let Ok(room) = Arc::clone(&self.room).try_acquire_many_owned(bytes) else {
            let message = "the requests under way have as many bytes as there is room for; ask again later";
            return Err(Refused::new(StatusCode::TOO_MANY_REQUESTS, "too_many_requests", message));
        };
        match &mut part.room {
            None => part.room = Some(room),
            Some(all) => all.merge(room),
        }
        part.bytes.extend_from_slice(piece);
        Ok(part)
    }
}

/// Reads the body of a request before anything else is done with it. Its bytes count until the answer begins.
pub async fn whole(State(bodies): State<Bodies>, request: Request, next: Next) -> Response {
    let (head, body) = request.into_parts();
    match timeout(bodies.within, bodies.read(body)).await {
        Ok(Ok(Part { bytes, room: _room })) => next.run(Request::from_parts(head, Body::from(bytes))).await,
        Ok(Err(refused)) => refused.into_response(),
        Err(_) => {
            let message = format!("the request did not come within {} s", bodies.within.as_secs_f32());
            Refused::new(StatusCode::REQUEST_TIMEOUT, "request_timeout", message).into_response()
        }
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use futures_util::stream;
    use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

    use super::*;

    /// A body whose pieces are those that are sent.
    fn body() -> (UnboundedSender<&'static [u8]>, Body) {
        let (pieces, sent) = unbounded_channel();
        let sent = stream::unfold(sent, async |mut sent| {
            let piece: &'static [u8] = sent.recv().await?;
            Some((Ok::<_, Infallible>(piece), sent))
        });
        (pieces, Body::from_stream(sent))
    }

    /// Waits until something is so.
    async fn until(is_so: impl Fn() -> bool) {
        let so = async {
            while !is_so() {
                tokio::task::yield_now().await;
            }
        };
        timeout(Duration::from_secs(10), so).await.expect("it is so in time");
    }

    #[tokio::test]
    async fn a_body_beyond_the_bytes_of_all_is_told_to_come_again_and_is_taken_once_another_has_gone() {
        let bodies = Bodies::new(Duration::from_secs(60), 8, 20);
        let mut under_way = Vec::new();
        for _ in 0..2 {
            let (pieces, body) = body();
            let own = bodies.clone();
            under_way.push((pieces.clone(), tokio::spawn(async move { own.read(body).await })));
            pieces.send(b"1234").unwrap();
            pieces.send(b"5678").unwrap();
        }
        until(|| bodies.room.available_permits() == 4).await;
        let refused = bodies.read(Body::from("12345")).await.err().unwrap();
        assert!(refused.is_for_now(), "{refused}");
        assert!(refused.into_response().headers().contains_key("retry-after"));
        // A body that was refused leaves no byte behind.
        let taken = bodies.read(Body::from("1234")).await.unwrap();
        assert_eq!((&*taken.bytes, bodies.room.available_permits()), (&b"1234"[..], 0));
        let (pieces, first) = under_way.remove(0);
        drop(pieces);
        drop(first.await.unwrap().unwrap());
        assert_eq!(bodies.room.available_permits(), 8);
        assert!(bodies.read(Body::from("12345")).await.is_ok());
    }

    #[tokio::test]
    async fn a_body_that_is_too_long_is_refused_at_its_end_and_has_no_room_meanwhile() {
        let bodies = Bodies::new(Duration::from_secs(60), 8, 20);
        let (pieces, body) = body();
        let own = bodies.clone();
        let read = tokio::spawn(async move { own.read(body).await });
        pieces.send(b"12345678").unwrap();
        until(|| bodies.room.available_permits() == 12).await;
        pieces.send(b"9").unwrap();
        until(|| bodies.room.available_permits() == 20).await;
        assert!(!read.is_finished());
        drop(pieces);
        assert_eq!(read.await.unwrap().err().unwrap().status, StatusCode::PAYLOAD_TOO_LARGE);
    }

    #[test]
    fn the_longest_prompts_of_a_model_have_room() {
        let most = |max_position_embeddings| {
            Bodies::of(&Config { max_position_embeddings, ..Config::default() }, Duration::ZERO).one_max
        };
        let prompt = "\\u0041".repeat(2047);
        let body = serde_json::to_string(&vec![prompt; PROMPTS_MAX]).unwrap();
        assert!(body.len() - PROMPTS_MAX * 2047 < most(2048), "{} bytes", body.len());
        assert_eq!(most(1 << 20), ALL_MAX);
    }
}
