//! Switched off at 3 a.m., under load: no request fails, counts survive, and every worker obeys.

use serde_json::{Value, json};
use tidegate_e2e::envoy::Update;
use tidegate_e2e::{Background, Envoy, Fault, Setup, load, poll};

use crate::common::{KEY, admitted, assert_healthy, keyed, limit, rule, start};

const LIMIT: usize = 20;
/// Many more connections than workers, which share them evenly.
const CONNECTIONS: usize = 16;

#[tokio::test]
async fn the_whole_config_is_switched_off_and_on_under_load() {
    let limit = limit(LIMIT);
    let config = |enabled: bool| json!({ "enabled": enabled, "rules": rules("enforce", &limit) });
    let mut envoy = start(Setup::limits(config(true)).workers(4)).await;
    assert_eq!(admitted(&envoy, LIMIT + 5, "/a", "ana").await, LIMIT);
    let load = background(&envoy);

    switch(&mut envoy, config(false)).await;
    all_answer(&envoy, "/a", 200).await;
    // Nothing is counted while it is off.
    assert_eq!(all_of(&envoy, "/b").await, 200);
    load.goes_on(100).await.unwrap();

    switch(&mut envoy, config(true)).await;
    all_answer(&envoy, "/a", 429).await;
    assert_eq!(admitted(&envoy, LIMIT + 5, "/b", "ana").await, LIMIT, "nobody counted /b while it was off");
    ended_well(load).await;
    assert_healthy(&envoy).await;
}

#[tokio::test]
async fn one_rule_is_switched_off_and_on_under_load() {
    let limit = limit(LIMIT);
    let config = |mode: &str| json!({ "rules": rules(mode, &limit) });
    let mut envoy = start(Setup::limits(config("enforce")).workers(4)).await;
    for path in ["/a", "/b"] {
        assert_eq!(admitted(&envoy, LIMIT + 5, path, "ana").await, LIMIT);
    }
    let load = background(&envoy);

    switch(&mut envoy, config("off")).await;
    all_answer(&envoy, "/a", 200).await;
    assert_eq!(all_of(&envoy, "/b").await, 429, "the other rule stands");
    load.goes_on(100).await.unwrap();

    switch(&mut envoy, config("enforce")).await;
    all_answer(&envoy, "/a", 429).await;
    assert_eq!(all_of(&envoy, "/b").await, 429);
    ended_well(load).await;
    assert_healthy(&envoy).await;
}

/// The first rule in this mode, the second always enforced, and one for the load. The limit is made once: another
/// window would be another counter.
fn rules(mode: &str, limit: &Value) -> Value {
    let mut first = rule("first", "/a", limit);
    first["mode"] = json!(mode);
    json!([first, rule("second", "/b", limit), rule("load", "/load", &json!("1000000/1h"))])
}

fn background(envoy: &Envoy) -> Background {
    Background::start(envoy.address(), 4, |index| keyed("/load", &format!("key-{}", index % 10)))
}

async fn switch(envoy: &mut Envoy, config: Value) {
    assert_eq!(envoy.update(config).await.unwrap(), Update::Accepted);
}

/// Waits until every worker gives this answer.
async fn all_answer(envoy: &Envoy, path: &'static str, status: u16) {
    poll::until(&format!("{status} from every worker"), async || match all_of(envoy, path).await {
        seen if seen == status => Ok(()),
        seen => Err(Fault::new(seen.to_string())),
    })
    .await
    .unwrap();
}

/// The status that all workers answer ana with, or 0 if they do not agree.
async fn all_of(envoy: &Envoy, path: &'static str) -> u16 {
    let ask = move |_| tidegate_e2e::http::get(path, &[(KEY, b"ana")]);
    let answers = load::run(envoy.address(), CONNECTIONS, 8 * CONNECTIONS, ask).await.unwrap();
    let first = answers.status(0);
    if answers.count(first) == 8 * CONNECTIONS { first } else { 0 }
}

async fn ended_well(load: Background) {
    load.goes_on(100).await.unwrap();
    let tally = load.stop().await.unwrap();
    assert!(tally.failures.is_empty(), "{tally:?}");
    assert_eq!(tally.statuses.keys().copied().collect::<Vec<_>>(), [200], "{tally:?}");
}
