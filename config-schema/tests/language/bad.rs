//! One bad file per kind of error in `tests/bad`, and beside each the exact text that a user sees.

use tidegate_config::{Config, ERRORS_MAX, RULES_MAX};
#[cfg(target_arch = "wasm32")]
use wasm_bindgen_test::wasm_bindgen_test as test;

pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) json: &'static str,
    expected: &'static str,
}

/// Built in, because there are no files to read on wasm32.
macro_rules! cases {
    ($($name:literal,)*) => {
        &[$(Case {
            name: $name,
            json: include_str!(concat!("../bad/", $name, ".json")),
            expected: include_str!(concat!("../bad/", $name, ".txt")),
        },)*]
    };
}

pub(crate) const CASES: &[Case] = cases![
    "body_placeholder_unknown",
    "body_too_long",
    "content_type_wrong",
    "cost_default_above_max",
    "cost_reserve_above_max",
    "cost_reserve_not_at_home",
    "cost_reserve_zero",
    "cost_response_and_count_denied",
    "cost_text",
    "cost_two_headers",
    "cost_without_header",
    "cost_without_max",
    "cost_zero",
    "count_denied_number",
    "count_status_and_count_denied",
    "count_status_and_global",
    "count_status_class_unknown",
    "count_status_empty",
    "count_status_not_a_list",
    "count_status_null",
    "count_status_out_of_range",
    "count_status_twice",
    "counter_authority_wrong",
    "counter_cluster_wrong",
    "counter_timeout_too_long",
    "counter_timeout_wrong",
    "counter_token_wrong",
    "counter_without_cluster",
    "empty",
    "enabled_text",
    "enforced_percent_too_many",
    "exempt_address_not_first",
    "exempt_address_wrong",
    "exempt_and_denied",
    "exempt_cidr_bits",
    "exempt_cidr_dressed",
    "exempt_cidr_wrong",
    "exempt_empty",
    "exempt_partly_hashed",
    "exempt_value_of_many_parts",
    "extra_header_line_end",
    "extra_header_taken",
    "extra_header_twice",
    "field_twice",
    "global_lease_of_a_log",
    "global_on_failure_unknown",
    "global_overshoot_not_at_home",
    "global_overshoot_wrong",
    "global_sync_every_too_short",
    "global_without_counter",
    "global_without_mode",
    "grpc_unknown",
    "header_condition_control",
    "header_condition_number",
    "header_condition_one_of_text",
    "header_condition_prefix_empty",
    "header_condition_twice",
    "header_condition_two",
    "header_host",
    "header_not_a_name",
    "header_pseudo",
    "header_too_long",
    "ipv6_prefix_too_short",
    "key_constant_empty",
    "key_constant_lowercase",
    "key_cookie_wrong",
    "key_empty",
    "key_jwt_number",
    "key_jwt_payload_wrong",
    "key_jwt_step_empty",
    "key_jwt_wrong",
    "key_missing",
    "key_missing_unknown",
    "key_not_a_list",
    "key_part_number",
    "key_part_twice",
    "key_part_unknown",
    "key_part_unknown_field",
    "key_part_without_header",
    "key_payload_without_jwt",
    "key_segment_without_template",
    "key_segment_wrong",
    "key_too_many_parts",
    "key_two_sources",
    "large_keys_too_many",
    "limit_not_a_limit",
    "limit_number",
    "limit_requests_too_many",
    "limit_unit_unknown",
    "limit_window_too_long",
    "limit_window_too_short",
    "limits_and_plans",
    "limits_empty",
    "limits_missing",
    "limits_not_a_list",
    "limits_of_buckets_with_one_counter",
    "limits_too_many",
    "limits_with_one_counter",
    "long_limit_algorithm_unknown",
    "long_limit_align_unknown",
    "long_limit_buckets_do_not_fit",
    "long_limit_buckets_too_many",
    "long_limit_burst_not_at_home",
    "long_limit_burst_too_large",
    "long_limit_burst_without_rate",
    "long_limit_calendar_algorithm",
    "long_limit_calendar_align",
    "long_limit_empty",
    "long_limit_log_too_many",
    "long_limit_per_number",
    "long_limit_per_too_long",
    "long_limit_per_too_short",
    "long_limit_per_wrong",
    "long_limit_requests_text",
    "long_limit_requests_too_many",
    "long_limit_warm_up_too_long",
    "long_limit_warm_up_zero",
    "many_errors",
    "match_host_twice",
    "match_host_with_port",
    "match_route_empty",
    "method_number",
    "method_small",
    "methods_empty",
    "methods_too_many",
    "methods_twice",
    "mode_unknown",
    "name_missing",
    "name_taken",
    "name_taken_in_metrics",
    "name_too_long",
    "name_wrong",
    "namespace_empty",
    "namespace_wrong",
    "not_an_object",
    "not_empty",
    "not_json",
    "not_text",
    "null",
    "overridable_with_plans",
    "path_and_prefix",
    "path_not_normal",
    "path_relative",
    "path_too_long",
    "path_with_query",
    "plan_by_wrong",
    "plan_default_missing",
    "plan_default_without_limits",
    "plan_limits_missing",
    "plan_member_digest_wrong",
    "plan_member_empty",
    "plan_member_number",
    "plan_member_of_two",
    "plan_member_twice",
    "plan_members_without_limits",
    "plan_name_wrong",
    "plan_nobody_can_get",
    "policy_taken",
    "prefix_not_normal",
    "query_name_empty",
    "response_headers_far",
    "response_headers_near",
    "route_name_empty",
    "route_named_twice",
    "route_rule_name_taken",
    "route_rule_with_route",
    "route_without_rules",
    "rule_not_an_object",
    "rules_missing",
    "rules_not_a_list",
    "schema_not_text",
    "slots_negative",
    "slots_not_a_power_of_two",
    "slots_text",
    "slots_too_few",
    "slots_too_many",
    "slots_with_a_point",
    "slots_with_an_exponent",
    "status_out_of_range",
    "table_not_an_object",
    "template_and_path",
    "template_not_normal",
    "template_segment_twice",
    "template_segment_wrong",
    "template_too_long",
    "text_after_the_end",
    "too_deep",
    "trusted_hops_too_many",
    "unknown_field_far",
    "unknown_field_near",
    "unknown_field_odd_name",
    "version_text",
    "version_unknown",
    "when_full_unknown",
];

fn refusal(json: &str) -> String {
    match Config::from_json(json.as_bytes()) {
        Ok(config) => panic!("accepted: {config:?}"),
        Err(errors) => errors.to_string(),
    }
}

#[test]
fn every_bad_file_gets_exactly_its_text() {
    let wrong: Vec<String> = CASES
        .iter()
        .filter(|case| refusal(case.json) != case.expected.trim_end())
        .map(|case| {
            format!("{}: expected\n{}\nbut it is\n{}\n", case.name, case.expected, refusal(case.json))
        })
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[cfg(not(target_arch = "wasm32"))]
#[test]
fn every_bad_file_is_in_the_table() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/bad");
    let mut files: Vec<String> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    files.sort();
    let of_case = |case: &Case| [format!("{}.json", case.name), format!("{}.txt", case.name)];
    let mut expected: Vec<String> = CASES.iter().flat_map(of_case).collect();
    expected.sort();
    assert_eq!(files, expected);
}

#[test]
fn errors_can_be_read_one_by_one() {
    let json = r#"{"table": {"slots": 65},
        "rules": [{"name": "a", "match": {"pth": "/"}, "key": [], "limits": []}]}"#;
    let errors = Config::from_json(json.as_bytes()).unwrap_err();
    let paths: Vec<&str> = errors.errors().iter().map(tidegate_config::ConfigError::path).collect();
    assert_eq!(paths, ["table.slots", "rules[0].match.pth", "rules[0].key", "rules[0].limits"]);
    assert_eq!(errors.errors()[1].message(), "unknown field; did you mean \"path\"?");
}

fn many_rules(count: usize) -> String {
    let rule = |number| format!(r#"{{"name": "r{number}", "key": ["client_ip"], "limits": ["1/s"]}}"#);
    format!(r#"{{"rules": [{}]}}"#, (0..count).map(rule).collect::<Vec<_>>().join(","))
}

#[test]
fn rules_are_bounded() {
    let most = Config::from_json(many_rules(RULES_MAX).as_bytes()).unwrap();
    assert_eq!(most.rules.len(), RULES_MAX);
    // What is too much is not even looked at: the last rule is wrong too, and only the count is reported.
    let too_many = many_rules(RULES_MAX + 1).replace("r10000", "R10000");
    assert_eq!(refusal(&too_many), "rules: must have at most 10000 items, not 10001");
}

#[test]
fn rules_of_routes_are_bounded_together_with_the_others() {
    let rules = |letter: char, count: usize| {
        let rule =
            |number| format!(r#"{{"name": "{letter}{number}", "key": ["client_ip"], "limits": ["1/s"]}}"#);
        (0..count).map(rule).collect::<Vec<_>>().join(",")
    };
    let json = format!(
        r#"{{"rules": [{}], "routes": {{"r": {{"rules": [{}]}}}}}}"#,
        rules('a', 9_999),
        rules('b', 2)
    );
    assert_eq!(refusal(&json), "config: has 10001 rules in all, with those of routes; the most is 10000");
}

#[test]
fn errors_are_bounded_in_a_config_that_is_wrong_all_over() {
    let json = many_rules(1_000).replace("1/s", "1/x");
    let errors = Config::from_json(json.as_bytes()).unwrap_err();
    assert_eq!((errors.errors().len(), errors.more()), (ERRORS_MAX, 1_000 - ERRORS_MAX));
}
