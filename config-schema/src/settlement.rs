//! What a request is charged when its response is there.
//!
//! Such a rule takes a reservation before, as any other rule takes its cost: what slips past before the charge is
//! known is bounded by it. The response then says what the request is really charged.

use std::num::NonZeroU64;

use crate::cost::{Cost, ResponseCost, amount_of};
use crate::rule::Rule;
use crate::statuses::Statuses;

/// What the proxy knows about a response.
pub trait ResponseParts {
    /// Calls `each` with every value of the header, in order; the name is in lower case. `:status` is one of them.
    fn header(&self, name: &[u8], each: &mut dyn FnMut(&[u8]));
}

/// How a rule charges after the response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settlement {
    statuses: Option<Statuses>,
    cost: Option<ResponseCost>,
}

impl Rule {
    /// How the rule charges after the response; `None` if all is said before.
    pub fn settlement(&self) -> Option<Settlement> {
        let cost = match &self.cost {
            Cost::Response(cost) => Some(cost.as_ref().clone()),
            Cost::Fixed(_) | Cost::Header(_) => None,
        };
        let statuses = self.count_status.as_deref().cloned();
        (cost.is_some() || statuses.is_some()).then_some(Settlement { statuses, cost })
    }
}

impl Settlement {
    /// What a request is charged in all, of which `reserved` is taken already.
    ///
    /// Without a response, for the client left before there was one: nothing by a rule that counts certain statuses,
    /// for nobody knows the status; else what was reserved, or leaving early would be free.
    pub fn charge(&self, reserved: NonZeroU64, response: Option<&dyn ResponseParts>) -> u64 {
        let Some(response) = response else {
            return if self.statuses.is_some() { 0 } else { reserved.get() };
        };
        let status =
            sole_amount(response, ":status").and_then(|status| u16::try_from(status).ok()).unwrap_or(0);
        if self.statuses.as_ref().is_some_and(|statuses| !statuses.contains(status)) {
            return 0;
        }
        let Some(cost) = &self.cost else {
            return reserved.get();
        };
        match sole_amount(response, &cost.name) {
            Some(amount) => amount.min(cost.max.get()),
            // The upstream failed before it could say: nobody pays for that, unless the rule counts failures.
            None if status >= SERVER_ERROR && self.statuses.is_none() => 0,
            None => cost.default.get(),
        }
    }
}

/// The first status by which a server says that it failed.
const SERVER_ERROR: u16 = 500;

/// The number in a header that is there once.
fn sole_amount(response: &dyn ResponseParts, name: &str) -> Option<u64> {
    amount_of(|each| response.header(name.as_bytes(), each))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    #[cfg(target_arch = "wasm32")]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    struct Parts<'a>(&'a [(&'a str, &'a str)]);

    impl ResponseParts for Parts<'_> {
        fn header(&self, name: &[u8], each: &mut dyn FnMut(&[u8])) {
            for (_, value) in self.0.iter().filter(|(other, _)| other.as_bytes() == name) {
                each(value.as_bytes());
            }
        }
    }

    fn settlement(fields: &str) -> Option<Settlement> {
        let text =
            format!(r#"{{"rules": [{{"name": "r", "key": ["client_ip"], "limits": ["9/1m"]{fields}}}]}}"#);
        Config::from_json(text.as_bytes()).unwrap().rules.remove(0).settlement()
    }

    fn charged(fields: &str, response: Option<&[(&str, &str)]>) -> u64 {
        let reserved = NonZeroU64::new(7).unwrap();
        let parts = response.map(Parts);
        settlement(fields).unwrap().charge(reserved, parts.as_ref().map(|parts| parts as &dyn ResponseParts))
    }

    const STATUSES: &str = r#", "count_status": [401, "5xx"]"#;
    const COST: &str = r#", "cost": {"response_header": "X-T", "max": 100, "default": 3, "reserve": 7}"#;

    #[test]
    fn most_rules_charge_before() {
        assert_eq!(settlement(""), None);
        assert_eq!(settlement(r#", "cost": {"header": "x-t", "max": 100}"#), None);
    }

    #[test]
    fn only_listed_statuses_are_charged() {
        for (status, expected) in [("401", 7), ("503", 7), ("200", 0), ("403", 0), ("?", 0), ("", 0)] {
            assert_eq!(charged(STATUSES, Some(&[(":status", status)])), expected, "{status}");
        }
        assert_eq!(charged(STATUSES, Some(&[])), 0);
        assert_eq!(charged(STATUSES, None), 0, "nobody knows the status");
    }

    #[test]
    fn the_response_names_its_cost_within_bounds() {
        let cost = |status, values: &[&str]| {
            let headers: Vec<(&str, &str)> =
                [(":status", status)].into_iter().chain(values.iter().map(|value| ("x-t", *value))).collect();
            charged(COST, Some(&headers))
        };
        assert_eq!(cost("200", &["50"]), 50);
        assert_eq!(cost("200", &["0"]), 0, "an upstream may say that it was free");
        assert_eq!(cost("200", &["101"]), 100);
        assert_eq!(cost("200", &["99999999999999999999999"]), 100);
        for values in [&[][..], &["many"], &["-1"], &["5", "5"], &[""]] {
            assert_eq!(cost("200", values), 3, "{values:?}");
            assert_eq!(cost("404", values), 3, "{values:?}");
            assert_eq!(cost("503", values), 0, "a failed call is not charged by mistake: {values:?}");
        }
        assert_eq!(cost("503", &["50"]), 50, "but what it says it used it is charged");
        assert_eq!(charged(COST, None), 7, "a client cannot avoid paying by leaving");
    }

    #[test]
    fn both_go_together() {
        let both = format!("{STATUSES}{COST}");
        let cost = |status, tokens| charged(&both, Some(&[(":status", status), ("x-t", tokens)]));
        assert_eq!((cost("401", "50"), cost("200", "50"), cost("401", "?")), (50, 0, 3));
        assert_eq!(cost("503", "?"), 3, "the rule counts failures");
        assert_eq!(charged(&both, None), 0);
    }
}
