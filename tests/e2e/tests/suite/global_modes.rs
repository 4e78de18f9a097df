//! All modes at once under load, and whether the counter's books agree with what was admitted.

use std::num::TryFromIntError;

use serde_json::{Value, json};
use tidegate_e2e::background::Tally;
use tidegate_e2e::relay::Call;
use tidegate_e2e::{Background, Counter, Fault, Fleet, Ledger, Relay, poll, standing};

use crate::common::keyed;
use crate::global_common::{admitted_together, config, exact, global, metric_is_at_least, warm};

/// A limit that the load is far over.
pub(crate) const NARROW: usize = 60;
/// And one that it stays far under, so that nothing hides behind it.
const WIDE: usize = 1_000_000;
pub(crate) const EXACT: &str = "exact";
pub(crate) const LEASE: &str = "lease";
pub(crate) const SYNC: &str = "sync";
const MODES: [&str; 3] = [EXACT, LEASE, SYNC];
const PATHS: [&str; 6] =
    ["/exact-wide", "/lease-wide", "/sync-wide", "/exact-narrow", "/lease-narrow", "/sync-narrow"];
pub(crate) const CLIENTS_EACH: usize = 4;

/// A narrow and a wide rule of each mode, all with `share`.
pub(crate) fn limits(timeout: &str) -> Value {
    let rules = PATHS.map(|path| {
        let name = path.trim_start_matches('/');
        let how = match name.split_once('-') {
            Some((EXACT, _)) => exact(),
            Some((mode, _)) => json!({ "mode": mode }),
            None => Value::Null,
        };
        global(name, path, if name.ends_with("wide") { WIDE } else { NARROW }, how)
    });
    config(timeout, &[&rules[..], &[warm()]].concat())
}

/// Load on every rule of every proxy.
pub(crate) struct Load(Vec<Background>);

impl Load {
    pub(crate) fn start(fleet: &Fleet) -> Self {
        let make = |index: usize| keyed(PATHS[index % PATHS.len()], "ana");
        let start = |address| Background::start(address, CLIENTS_EACH, make);
        Self(fleet.addresses().into_iter().map(start).collect())
    }

    /// Waits until each proxy got so many more.
    pub(crate) async fn goes_on(&self, more: usize) {
        for load in &self.0 {
            load.goes_on(more).await.unwrap();
        }
    }

    /// The load on one proxy.
    pub(crate) fn on(&self, proxy: usize) -> &Background {
        &self.0[proxy]
    }

    /// Ends it when each narrow limit was asked for many times over. No request may have failed.
    pub(crate) async fn stop(self) -> Admitted {
        let mut all = Tally::default();
        for load in self.0 {
            load.goes_on((6 * NARROW * PATHS.len()).saturating_sub(load.sent())).await.unwrap();
            all.add(load.stop().await.unwrap());
        }
        assert!(all.failures.is_empty(), "{all:?}");
        assert_eq!(all.statuses.values().sum::<usize>(), all.count(200) + all.count(429), "{all:?}");
        Admitted(all)
    }
}

/// What was admitted under such load.
pub(crate) struct Admitted(Tally);

impl Admitted {
    /// How many a wide rule admitted.
    pub(crate) fn wide(&self, mode: &str) -> usize {
        self.by(mode, "wide")
    }

    fn by(&self, mode: &str, which: &str) -> usize {
        self.0.admitted.get(&format!("/{mode}-{which}")).copied().unwrap_or(0)
    }

    /// That a narrow limit was passed by so much at most.
    pub(crate) fn assert_narrow(&self, mode: &str, most: usize) {
        let admitted = self.by(mode, "narrow");
        println!("{mode}: {admitted} of {NARROW} admitted, {most} may be");
        assert!(admitted <= most, "{mode} admitted {admitted}, and {most} may be");
    }

    /// Waits until what a counter says to be charged, with what it has forgotten, is what was admitted, in each mode: once
    /// all is told and all unspent grants are back.
    pub(crate) async fn agrees(&self, counter: &Counter, calls: impl Fn() -> Vec<Call>) {
        for mode in MODES {
            let rule = format!("{mode}-wide");
            let admitted = self.by(mode, "wide");
            assert!(admitted > NARROW, "{mode} should have been under load: {admitted}");
            poll::until(&format!("{admitted} to stand charged by {rule}"), async || {
                let calls = calls();
                let forgotten = forgotten(&calls, &rule);
                let charged = number(standing::charged(counter, &calls, &rule).await?)?;
                // What was granted in a life that is over and not spent is not given back in the next.
                let unspent = if mode == LEASE { forgotten } else { 0 };
                if (admitted..=admitted + unspent).contains(&(forgotten + charged)) {
                    println!("{mode}: {admitted} admitted, {forgotten} forgotten and {charged} charged");
                    return Ok(());
                }
                Err(Fault::new(format!("{charged} and {forgotten} forgotten")))
            })
            .await
            .unwrap();
        }
    }
}

/// Nothing more of the narrow limits is admitted, once all proxies know.
pub(crate) async fn narrow_are_exhausted(fleet: &Fleet) {
    for path in &PATHS[3..] {
        poll::until(&format!("no more to be admitted on {path}"), async || {
            match admitted_together(fleet.envoys(), 8, 24, path, "ana").await {
                0 => Ok(()),
                more => Err(Fault::new(format!("{more} more"))),
            }
        })
        .await
        .unwrap();
    }
}

/// Waits until so many requests were decided without the counter in each of these proxies.
pub(crate) async fn fell_back(fleet: &Fleet, proxies: std::ops::Range<usize>, times: u64) {
    for envoy in &fleet.envoys()[proxies] {
        metric_is_at_least(envoy, "tidegate_fallbacks", times).await;
    }
}

/// The calls that all relays saw.
pub(crate) fn calls(relays: &[Relay]) -> Vec<Call> {
    let mut calls: Vec<Call> = relays.iter().flat_map(Relay::calls).collect();
    calls.sort_by_key(|call| call.at);
    calls
}

/// What stood charged in lives of the counter before its last.
pub(crate) fn forgotten(calls: &[Call], rule: &str) -> usize {
    let last = calls.iter().rev().find_map(|call| call.epoch).expect("an answer");
    let all = Ledger::of(calls, rule, None).charged();
    number(all - Ledger::of(calls, rule, Some(last)).charged()).expect("a number of this size")
}

fn number(count: u64) -> Result<usize, Fault> {
    usize::try_from(count).map_err(|error: TryFromIntError| Fault::new(error.to_string()))
}
