//! Servers whose models differ say so, and never go on with each other's texts. Health says who can answer.

use std::path::PathBuf;

use serde_json::{Value, json};
use servers::directory::Role;
use servers::model::Config;

use crate::support::pair::{Pair, health};
use crate::support::{LONG, ask, body, start};

/// A file with the shape of a model.
fn model(name: &str, config: &Value) -> PathBuf {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}.json", std::process::id()));
    std::fs::write(&path, config.to_string()).unwrap();
    path
}

/// A pair of which one role has another model. Returns the refusal of a prompt that the prefill has to compute.
async fn refusal(other: Role, changed: Value) -> String {
    let path = model(&format!("{other}-{}", changed.as_object().unwrap().keys().next().unwrap()), &changed);
    let pair = Pair::unready(|role, options| {
        if role == other {
            options.model = Some(path.clone());
        }
    })
    .await;
    let known = async {
        // The router has to know the decode, and the decode the prefill.
        loop {
            let asked = body("a prompt that is longer than a block of the cache", 3, 4);
            let refused = ask(&pair.client, pair.router, &asked).await.unwrap_err();
            if refused.contains("not {") {
                return refused;
            }
        }
    };
    let refused = tokio::time::timeout(LONG, known).await.expect("a reason that names both models");
    std::fs::remove_file(path).unwrap();
    for server in [pair.decode, pair.prefill] {
        let cache = pair.health(server).await.cache.unwrap();
        assert_eq!((cache.blocks.texts, cache.blocks.idle), (0, cache.blocks.all));
    }
    refused
}

#[tokio::test(flavor = "multi_thread")]
async fn a_prefill_of_another_shape_is_named_with_both_shapes() {
    let refused = refusal(Role::Prefill, json!({ "num_hidden_layers": 3 })).await;
    for words in ["prefill-0", r#"\"num_hidden_layers\":3"#, r#"\"num_hidden_layers\":4"#] {
        assert!(refused.contains(words), "{words}: {refused}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_prefill_of_other_weights_is_refused_though_its_blocks_have_the_same_shape() {
    let refused = refusal(Role::Prefill, json!({ "seed": 2 })).await;
    for words in ["prefill-0", r#"\"seed\":2"#, r#"\"seed\":1"#] {
        assert!(refused.contains(words), "{words}: {refused}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_decode_of_another_model_is_named_by_the_router() {
    let refused = refusal(Role::Decode, json!({ "intermediate_size": 352 })).await;
    for words in ["decode-0", r#"\"intermediate_size\":352"#, r#"\"intermediate_size\":704"#] {
        assert!(refused.contains(words), "{words}: {refused}");
    }
}

#[test]
fn a_file_of_no_model_is_an_error_that_names_the_file() {
    for (name, config) in [
        ("unknown", json!({ "hidden_sizes": 64 })),
        ("zero", json!({ "num_hidden_layers": 0 })),
        ("odd", json!({ "hidden_size": 100 })),
        ("list", json!([1])),
    ] {
        let path = model(name, &config);
        let error = format!("{:#}", Config::read(&path).unwrap_err());
        assert!(error.contains(path.to_str().unwrap()), "{error}");
        std::fs::remove_file(path).unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn health_says_the_role_the_model_and_whether_the_server_can_answer() {
    let client = reqwest::Client::new();
    for (role, cannot) in [
        (Role::Router, Some("no decode is there")),
        (Role::Decode, Some("no prefill is there")),
        (Role::Prefill, None),
        (Role::Single, None),
    ] {
        let server = start(role, "alone", "own").await;
        let (status, health) = health(&client, server).await;
        assert_eq!((status, health.cannot.as_deref()), (if cannot.is_some() { 503 } else { 200 }, cannot));
        assert_eq!((health.role, health.name.as_str(), health.model.as_str()), (role, "alone", "mini-llama"));
        assert_eq!(health.config, Config::default());
        assert_eq!(health.cache.is_some(), role != Role::Router);
    }
    // A decode alone computes what is a block or less, and nothing longer.
    let decode = start(Role::Decode, "alone", "own").await;
    assert_eq!(ask(&client, decode, &body("short", 3, 4)).await.unwrap().len(), 4);
    let refused =
        ask(&client, decode, &body("a prompt that is longer than a block", 3, 4)).await.unwrap_err();
    assert!(refused.contains("no prefill"), "{refused}");
    let pair = Pair::start(|_, _| {}).await;
    for server in [pair.router, pair.decode, pair.prefill] {
        assert_eq!(health(&client, server).await.0, 200);
    }
}
