//! Whatever the bytes, there is an answer; and what is accepted can be used.

use std::net::IpAddr;

use proptest::prelude::*;
use tidegate_config::{Config, Facts, Property, RequestParts, RuleSet};
#[cfg(target_arch = "wasm32")]
use wasm_bindgen_test::wasm_bindgen_test as test;

use crate::good;

struct Request(Vec<u8>);

impl RequestParts for Request {
    fn header(&self, _: &[u8], each: &mut dyn FnMut(&[u8])) {
        each(&self.0);
    }

    fn client_ip(&self) -> Option<IpAddr> {
        tidegate_config::client_ip::parse(&self.0)
    }

    fn method(&self) -> &[u8] {
        &self.0
    }

    fn path(&self) -> &[u8] {
        &self.0
    }

    fn authority(&self) -> &[u8] {
        &self.0
    }

    fn property(&self, _: Property<'_>) -> Option<Vec<u8>> {
        Some(self.0.clone())
    }
}

/// Reads a config; shows its errors, or uses it on a request made of the same bytes.
fn exercise(bytes: &[u8]) {
    match Config::from_json(bytes) {
        Err(errors) => assert!(!errors.to_string().is_empty()),
        Ok(config) => {
            assert!(!config.to_json().is_empty());
            let request = Request(bytes.to_vec());
            let facts = Facts::new(&request, config.client_ip);
            let rules = RuleSet::new(config.rules);
            rules.matching(&facts, &mut Vec::new());
            for rule in rules.rules() {
                let mut key = Vec::new();
                rule.subject(&facts, &mut key);
                rule.cost(&facts);
                let limits = rule.limits(rule.limit_set(&facts, &key));
                (0..=limits.len())
                    .for_each(|index| assert!(rule.policy_name(limits, index).starts_with(&rule.name)));
            }
        }
    }
}

/// A valid config with some stretches of bytes replaced, doubled or cut out.
fn damaged() -> impl Strategy<Value = Vec<u8>> {
    let stuff = prop_oneof![
        prop::collection::vec(any::<u8>(), 0..4),
        prop::sample::select(vec![
            "{", "}", "[", "]", "\"", ",", ":", "null", "1e9", "-1", "\\u0000", "{}", "[]", "\"\""
        ])
        .prop_map(|text| text.as_bytes().to_vec()),
    ];
    let edit = (any::<prop::sample::Index>(), 0..40_usize, stuff, any::<bool>());
    (prop::sample::select(good::ALL.to_vec()), prop::collection::vec(edit, 1..4)).prop_map(|(text, edits)| {
        let mut bytes = text.as_bytes().to_vec();
        for (place, len, stuff, is_doubled) in edits {
            let start = place.index(bytes.len() + 1);
            let end = (start + len).min(bytes.len());
            let stretch = bytes[start..end].to_vec();
            bytes.splice(
                start..end,
                if is_doubled { [stretch.clone(), stuff, stretch].concat() } else { stuff },
            );
        }
        bytes
    })
}

proptest! {
    #[test]
    fn on_any_bytes(bytes: Vec<u8>) {
        exercise(&bytes);
    }

    #[test]
    fn on_anything_that_looks_like_json(text in r#"[\[\]{}:,"a0.e\\ -]{0,60}"#) {
        exercise(text.as_bytes());
    }

    #[test]
    fn on_damaged_configs(bytes in damaged()) {
        exercise(&bytes);
    }
}

#[test]
fn on_every_beginning_of_a_config() {
    for text in good::ALL {
        (0..=text.len()).for_each(|end| exercise(&text.as_bytes()[..end]));
    }
}
