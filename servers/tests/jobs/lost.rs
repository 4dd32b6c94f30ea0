//! A decode or a prefill that is killed costs its requests time, and no token.

use std::time::Duration;

use crate::support::{ask, body, starter};

#[tokio::test(flavor = "multi_thread")]
async fn requests_of_a_server_that_is_killed_are_answered_by_another_one() {
    let client = reqwest::Client::new();
    let starter = starter();
    let single = starter.start("single", "single", "own").await.unwrap();
    let mut split = starter.start_split(2, 2).await.unwrap();
    let [router, alone] = [split.router.address, single.address];
    // Each role once, with its successor of the same name.
    for victim in [2, 0, 3, 1] {
        let victim = split.get_mut(victim);
        let requests: Vec<_> = (0..12)
            .map(|seed| {
                let prompt =
                    format!("{}: {}", victim.name, "a longer beginning ".repeat(seed as usize % 5 + 1));
                let (client, body) = (client.clone(), body(&prompt, seed, 60));
                tokio::spawn(async move {
                    let split = ask(&client, router, &body).await;
                    (split, ask(&client, alone, &body).await)
                })
            })
            .collect();
        tokio::time::sleep(Duration::from_millis(300)).await;
        victim.kill().await.unwrap();
        for request in requests {
            let (split, alone) = request.await.unwrap();
            assert_eq!(split.unwrap(), alone.unwrap(), "{} was killed", victim.name);
        }
        victim.start_again().await.unwrap();
        victim.answers(2).await.unwrap();
    }
}
