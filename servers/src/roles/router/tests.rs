//! A router among decodes that are slow, full, lost or wrong.

use std::future::pending;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::response::{IntoResponse, Response};
use axum::routing::post;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use rdma_collective::bootstrap::JobToken;
use tokio::net::TcpListener;
use tokio::sync::mpsc::error::TryRecvError;

use super::*;
use crate::directory::{Directory, LASTS, Sealed};
use crate::model::Sampling;

/// Time that anything may take.
const LONG: Duration = Duration::from_secs(60);

/// A directory that has the same decodes for ever.
struct Fixed(JobToken, Vec<Entry>);

impl Directory for Fixed {
    fn announce<'a>(&'a self, _entry: &'a Sealed) -> BoxFuture<'a, Result<()>> {
        async { Ok(()) }.boxed()
    }

    fn entries(&self) -> BoxFuture<'_, Result<Vec<Sealed>>> {
        async { self.1.iter().map(|entry| entry.seal(&self.0, LASTS)).collect() }.boxed()
    }
}

/// An answer, by the number of the request at its decode.
type Answers = Arc<dyn Fn(usize) -> BoxFuture<'static, Response> + Send + Sync>;

fn entry(name: String, role: Role, http: String) -> Entry {
    Entry { name, role, http, blob: String::new(), until: 0 }
}

/// A router that knows decodes which answer so.
async fn router(decodes: &[Answers]) -> Router {
    let mut entries = Vec::new();
    for (number, answers) in decodes.iter().cloned().enumerate() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        entries.push(entry(format!("{number}"), Role::Decode, listener.local_addr().unwrap().to_string()));
        let asked = Arc::new(AtomicUsize::new(0));
        let answer = move || answers(asked.fetch_add(1, Ordering::Relaxed));
        let routes = axum::Router::new().route("/generate", post(answer));
        tokio::spawn(async move { axum::serve(listener, routes).await });
    }
    let token = JobToken::random().unwrap();
    let members = Members::new(token, Box::new(Fixed(token, entries))).unwrap();
    let own = entry("router".to_owned(), Role::Router, String::new());
    tokio::spawn(members.clone().keep(own, None));
    while members.all(Role::Decode).len() < decodes.len() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    Router::new(Config::default(), members, Stats::new(Role::Router, "router")).unwrap()
}

fn answers<F: Future<Output = Response> + Send + 'static>(
    answer: impl Fn(usize) -> F + Send + Sync + 'static,
) -> Answers {
    Arc::new(move |number| answer(number).boxed())
}

/// A decode that always says this.
fn says(text: &'static str) -> Answers {
    answers(move |_| async move { text.into_response() })
}

/// A decode that never answers, and counts the requests.
fn silent(asked: &Arc<AtomicUsize>) -> Answers {
    let asked = Arc::clone(asked);
    answers(move |_| {
        asked.fetch_add(1, Ordering::Relaxed);
        pending()
    })
}

fn prompt(tokens_max: usize) -> Prompt {
    let (id, headers) = ("a".to_owned(), HeaderMap::new());
    Prompt { id, text: vec![97], sampling: Sampling::default(), tokens_max, ignores_end: true, headers }
}

/// All that a client hears.
async fn heard(router: &Router, tokens_max: usize) -> Vec<Event> {
    let all = async {
        let (mut events, mut all) = (router.begin(prompt(tokens_max)).await.unwrap(), Vec::new());
        while let Some(event) = events.recv().await {
            all.push(event);
        }
        all
    };
    timeout(LONG, all).await.expect("an end")
}

const ENDED: Event = Event::Ended(Finish::Length);

#[tokio::test]
async fn a_request_counts_for_its_decode_before_the_decode_answers() {
    let asked = Arc::new(AtomicUsize::new(0));
    let router = router(&[silent(&asked), silent(&asked)]).await;
    let of = router.clone();
    let request = tokio::spawn(async move { of.begin(prompt(1)).await.map(drop) });
    while asked.load(Ordering::Relaxed) == 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let busy = router.load.lock().unwrap().iter().find(|(_, count)| **count == 1).unwrap().0.clone();
    assert!((0..4).all(|_| router.decodes().first().unwrap().name != busy));
    request.abort();
    assert!(request.await.unwrap_err().is_cancelled());
    assert!(router.load.lock().unwrap().values().all(|count| *count == 0));
}

#[tokio::test]
async fn a_text_that_ends_each_decode_has_four_of_them_and_no_more() {
    let asked = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&asked);
    let lost = answers(move |_| {
        counted.fetch_add(1, Ordering::Relaxed);
        async { "".into_response() }
    });
    let events = heard(&router(&[lost]).await, 9).await;
    assert!(
        matches!(&events[..], [Event::Failed(error)] if error.starts_with("4 decodes were lost")),
        "{events:?}"
    );
    assert_eq!(asked.load(Ordering::Relaxed), 4);
}

#[tokio::test]
async fn a_text_that_gets_a_token_from_each_decode_goes_on_with_more_than_four() {
    let events = heard(&router(&[says("{\"token\":5}\n")]).await, 9).await;
    assert_eq!(events, [vec![Event::Token(5); 9], vec![ENDED]].concat());
}

#[tokio::test]
async fn tokens_beyond_those_asked_for_are_not_passed_on() {
    let more = says("{\"token\":5}\n{\"token\":6}\n{\"token\":7}\n{\"ended\":\"stop\"}\n");
    assert_eq!(heard(&router(&[more]).await, 2).await, [Event::Token(5), Event::Token(6), ENDED]);
}

#[tokio::test]
async fn a_decode_that_sends_elsewhere_or_says_tokens_of_no_model_is_none() {
    let events = heard(&router(&[says("{\"token\":258}\n")]).await, 2).await;
    assert!(matches!(&events[..], [Event::Failed(error)] if error.contains("a token 258")), "{events:?}");
    let elsewhere = answers(|number| async move {
        match number {
            0 => axum::response::Redirect::temporary("/generate").into_response(),
            _ => "{\"token\":5}\n{\"ended\":\"stop\"}\n".into_response(),
        }
    });
    let router = router(&[elsewhere]).await;
    let asked = Generate {
        id: "a".to_owned(),
        model: router.config,
        text: vec![97],
        sampling: Sampling::default(),
        tokens_max: 1,
        ignores_end: true,
    };
    let decode = router.decodes().remove(0).http;
    let error = generate::ask(&router.client, &decode, &asked, HeaderMap::new()).await.err().unwrap();
    assert!(error.to_string().contains("307"), "{error}");
}

#[tokio::test]
async fn a_text_that_is_too_long_for_one_decode_is_taken_by_another_one() {
    let small = answers(|_| async { Refused::field("max_tokens", "too long").code(LONGER).into_response() });
    let both = router(&[small.clone(), says("{\"ended\":\"length\"}\n")]).await;
    for _ in 0..4 {
        assert_eq!(heard(&both, 1).await, [ENDED]);
    }
    let refused = router(&[small]).await.begin(prompt(1)).await.unwrap_err();
    assert_eq!(refused.code, LONGER);
}

#[tokio::test]
async fn a_decode_that_is_silent_for_longer_than_requests_are_tried_again_costs_none() {
    let asked = Arc::new(AtomicUsize::new(0));
    let mut router = router(&[silent(&asked), says("{\"ended\":\"length\"}\n")]).await;
    (router.again_within, router.begins_within) = (Duration::from_millis(1), Duration::from_secs(2));
    for _ in 0..4 {
        assert_eq!(heard(&router, 1).await, [ENDED]);
    }
    assert!(asked.load(Ordering::Relaxed) > 0, "each in its turn");
}

#[tokio::test]
async fn a_client_that_goes_while_another_decode_is_asked_ends_that_request() {
    let running = Arc::new(());
    let held = Arc::downgrade(&running);
    let decode = answers(move |number| {
        let running = (number > 0).then(|| Arc::clone(&running));
        async move {
            match running {
                None => "{\"token\":5}\n".into_response(),
                Some(_running) => pending().await,
            }
        }
    });
    let mut events = router(&[decode]).await.begin(prompt(9)).await.unwrap();
    let ends = async {
        assert_eq!(events.recv().await, Some(Event::Token(5)));
        while held.strong_count() < 2 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        assert_eq!(events.try_recv(), Err(TryRecvError::Empty));
        drop(events);
        while held.strong_count() > 1 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(Duration::from_secs(20), ends).await.expect("the request ends with its client");
}
