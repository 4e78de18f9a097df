//! The body of a denied response: problem details, with the types of draft-ietf-httpapi-ratelimit-headers-11.

use crate::json_text::write_text;

/// The media type of a problem.
pub const CONTENT_TYPE: &str = "application/problem+json";

// Whole texts, and not trees to be written: every denied request pays for this.
const QUOTA_EXCEEDED: &str = r#"{ "type": "https://iana.org/assignments/http-problem-types#quota-exceeded", "title": "Request cannot be satisfied as assigned quota has been exceeded", "status": "#;
const ABNORMAL_USAGE: &str = r#"{ "type": "https://iana.org/assignments/http-problem-types#abnormal-usage-detected", "title": "Request not satisfied due to detection of abnormal request pattern", "status": "#;
const REDUCED_CAPACITY: &str = r#"{ "type": "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity", "title": "Request cannot be satisfied due to temporary server capacity constraints", "status": "#;
const POLICIES: &str = r#", "violated-policies": ["#;
const END: &str = "] }";

/// A client asked for more than its quota; `violated_policies` are the names of the limits that said no.
pub fn quota_exceeded(status: u16, violated_policies: &[&str]) -> Vec<u8> {
    document(QUOTA_EXCEEDED, status, violated_policies)
}

/// A client is denied whatever its quota; `violated_policies` are the names of the rules that said so.
pub fn abnormal_usage(status: u16, violated_policies: &[&str]) -> Vec<u8> {
    document(ABNORMAL_USAGE, status, violated_policies)
}

/// Nobody can tell whether a client has quota left; `violated_policies` are the names of the rules that then deny.
pub fn reduced_capacity(status: u16, violated_policies: &[&str]) -> Vec<u8> {
    document(REDUCED_CAPACITY, status, violated_policies)
}

fn document(beginning: &str, status: u16, violated_policies: &[&str]) -> Vec<u8> {
    let mut body = String::with_capacity(beginning.len().saturating_add(NAMES_LEN_USUAL));
    body.push_str(beginning);
    body.push_str(&status.to_string());
    body.push_str(POLICIES);
    for (index, name) in violated_policies.iter().enumerate() {
        body.push_str(if index == 0 { "" } else { ", " });
        write_text(name, &mut body);
    }
    body.push_str(END);
    body.into_bytes()
}

/// Room for a few names; more make it grow.
const NAMES_LEN_USUAL: usize = 96;

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
        assert_eq!(value["type"], "https://iana.org/assignments/http-problem-types#quota-exceeded");
        assert!(!body.contains(&b'\n'));
    }
}
