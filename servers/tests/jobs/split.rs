//! Answers of prefills, decodes and a router are those of a single process, bit for bit.

use servers::directory::Role;
use servers::observe::Figures;

use crate::support::{ask, ask_soon, body, start};

#[tokio::test(flavor = "multi_thread")]
async fn answers_are_those_of_a_single_process() {
    let client = reqwest::Client::new();
    let single = start(Role::Single, "single", "own").await;
    let router = start(Role::Router, "router", "own").await;
    let directory = format!("http:{router}");
    for number in 0..2 {
        start(Role::Prefill, &format!("prefill-{number}"), &directory).await;
        start(Role::Decode, &format!("decode-{number}"), &directory).await;
    }
    let prompt = |number: u64| {
        format!("{} Request {number}.", "Once upon a time there was. ".repeat(number as usize % 7))
    };
    ask_soon(&client, router, &body(&prompt(3), 3, 4)).await;
    let requests = (0..40).map(|number| {
        let (client, body) = (client.clone(), body(&prompt(number), number, 16));
        tokio::spawn(async move {
            let [split, alone] = [ask(&client, router, &body).await, ask(&client, single, &body).await];
            assert_eq!(split.unwrap(), alone.unwrap(), "request {number}");
        })
    });
    for request in requests.collect::<Vec<_>>() {
        request.await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_prompt_whose_answer_is_one_token_is_kept_at_decode() {
    let client = reqwest::Client::new();
    let router = start(Role::Router, "router", "own").await;
    let directory = format!("http:{router}");
    start(Role::Prefill, "prefill", &directory).await;
    let decode = start(Role::Decode, "decode", &directory).await;
    let asked = body("a prompt that is longer than a block of the cache, and is asked again", 2, 1);
    let mut came = Vec::new();
    for _ in 0..2 {
        assert_eq!(ask_soon(&client, router, &asked).await.len(), 1);
        came.push(Figures::ask(&client, decode).await.unwrap().links);
    }
    assert_eq!(came[0], came[1]);
    assert!(came[0].iter().any(|(_, bytes)| *bytes > 0));
}
