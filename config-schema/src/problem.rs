//! The body of a denied response: problem details, with the types of draft-ietf-httpapi-ratelimit-headers-11.

use crate::json::Json;
use crate::json_text::Fields;

/// The media type of a problem.
pub const CONTENT_TYPE: &str = "application/problem+json";

const QUOTA_EXCEEDED: &str = "https://iana.org/assignments/http-problem-types#quota-exceeded";

const ABNORMAL_USAGE: &str = "https://iana.org/assignments/http-problem-types#abnormal-usage-detected";

/// A client asked for more than its quota; `violated_policies` are the names of the limits that said no.
pub fn quota_exceeded(status: u16, violated_policies: &[&str]) -> Vec<u8> {
    let title = "Request cannot be satisfied as assigned quota has been exceeded";
    document(QUOTA_EXCEEDED, title, status, violated_policies)
}

/// A client is denied whatever its quota; `violated_policies` are the names of the rules that said so.
pub fn abnormal_usage(status: u16, violated_policies: &[&str]) -> Vec<u8> {
    document(
        ABNORMAL_USAGE,
        "Request not satisfied due to detection of abnormal request pattern",
        status,
        violated_policies,
    )
}

fn document(kind: &str, title: &str, status: u16, violated_policies: &[&str]) -> Vec<u8> {
    let mut problem = Fields::default();
    problem.put("type", kind);
    problem.put("title", title);
    problem.put("status", u64::from(status));
    problem
        .put("violated-policies", violated_policies.iter().map(|name| (*name).into()).collect::<Vec<Json>>());
    Json::from(problem).to_line().into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    #[cfg(target_arch = "wasm32")]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    #[test]
    fn a_policy_name_cannot_break_out_of_the_body() {
        let body = quota_exceeded(429, &["login", "a\"b\r\n"]);
        let value: serde_json::Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(value["violated-policies"], json!(["login", "a\"b\r\n"]));
        assert_eq!(value["status"], 429);
        assert!(!body.contains(&b'\n'));
    }
}
