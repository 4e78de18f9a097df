//! Plans: free 50, standard 500, pro 1000 a second, by API key.

use hyper::Response;
use hyper::body::Incoming;
use serde_json::{Value, json};
use tidegate_e2e::envoy::Update;
use tidegate_e2e::http::Request;
use tidegate_e2e::{Fault, Setup, http, load, poll, window};

use crate::common::{admitted_of, assert_healthy, start};

const KEY: &str = "x-api-key";

#[tokio::test]
async fn each_plan_admits_its_number_in_a_window() {
    // The numbers of the plans on a window that began just now: what a second admits, without a clock in the test.
    let envoy = start(Setup::limits(config(&window::just_begun(), "pete")).workers(4)).await;
    for (key, expected) in [("frida", 50), ("stan", 500), ("pete", 1_000), ("nobody in particular", 50)] {
        let answers = load::run(envoy.address(), 16, expected + 200, move |_| of(key)).await.unwrap();
        assert_eq!((answers.count(200), answers.strange()), (expected, 0), "{key}");
    }
    assert_healthy(&envoy).await;
}

/// Over real seconds. What is left counts down in each window, so that an answer with `used` requests used is seen
/// once in each window that came so far: the counts of these answers fall from one use to the next and never rise.
/// One that passed beyond the limit, or a use counted twice, would show as a rise.
#[tokio::test]
async fn a_second_admits_its_plan_and_no_more() {
    let envoy = start(Setup::limits(config("1s", "pete")).workers(4)).await;
    for (key, limit) in [("frida", 50), ("stan", 500), ("pete", 1_000)] {
        let mut windows = vec![0_usize; limit];
        poll::until("two windows that were used up", async || {
            let read = |answer: &Response<Incoming>| {
                let left = answer.headers()["x-ratelimit-remaining"].to_str().expect("digits");
                (answer.status().as_u16(), left.parse::<usize>().expect("a number"))
            };
            for (status, left) in load::run_reading(envoy.address(), 8, 1_000, move |_| of(key), read).await?
            {
                if status == 200 {
                    windows[limit - 1 - left] += 1;
                } else {
                    assert_eq!((status, left), (429, 0));
                }
            }
            match windows.last() {
                Some(2..) => Ok(()),
                seen => Err(Fault::new(format!("{seen:?}"))),
            }
        })
        .await
        .unwrap();
        assert!(windows.is_sorted_by(|earlier, later| earlier >= later), "{key}: {windows:?}");
    }
    assert_healthy(&envoy).await;
}

#[tokio::test]
async fn whose_plan_changes_keeps_the_count() {
    let per = window::just_begun();
    let mut envoy = start(Setup::limits(config(&per, "pete")).workers(4)).await;
    let answers = load::run(envoy.address(), 8, 80, |_| of("ana")).await.unwrap();
    assert_eq!(answers.count(200), 50, "as free");

    // Ana pays: 1000, of which 50 are taken. A denial may be remembered for a second, so ask until all are had.
    assert_eq!(envoy.update(config(&per, "ana")).await.unwrap(), Update::Accepted);
    let mut admitted = 0;
    poll::until("the rest of the pro plan", async || {
        let answers = load::run(envoy.address(), 8, 200, |_| of("ana")).await?;
        assert_eq!(answers.strange(), 0);
        admitted += answers.count(200);
        if admitted == 950 { Ok(()) } else { Err(Fault::new(format!("{admitted} more"))) }
    })
    .await
    .unwrap();
    assert_eq!(load::run(envoy.address(), 8, 200, |_| of("ana")).await.unwrap().count(200), 0);

    // And back again: 1000 of 50 are taken, and pete, who is free now, has his own 50.
    assert_eq!(envoy.update(config(&per, "nobody")).await.unwrap(), Update::Accepted);
    poll::until("pete to be free", async || {
        match http::send(envoy.address(), of("pete")).await?.header("x-ratelimit-limit") {
            "50" => Ok(()),
            seen => Err(Fault::new(seen)),
        }
    })
    .await
    .unwrap();
    assert_eq!(admitted_of(&envoy, 20, |_| of("ana")).await, 0);
    assert_healthy(&envoy).await;
}

/// The plans of README and design, with `pro` as its only pro member.
fn config(per: &str, pro: &str) -> Value {
    let limit = |requests: usize| json!([{ "requests": requests, "per": per, "algorithm": "fixed_window", "align": "clock" }]);
    json!({
        "response": { "headers": "x-ratelimit" },
        "rules": [{
            "name": "plans",
            "key": [{ "header": KEY }],
            "plans": {
                "default": "free",
                "limits": { "free": limit(50), "standard": limit(500), "pro": limit(1_000) },
                // The SHA-256 of "stan": keys need not be in the config.
                "members": {
                    "standard": ["sha256:1a5e497a2bfa7bfd8aab38a1d576ed882f4a82e855ec610880b4c186ec3f4e73"],
                    "pro": [pro],
                },
            },
        }],
    })
}

fn of(key: &str) -> Request {
    http::get("/", &[(KEY, key.as_bytes())])
}
