//! The body of a denied response: problem details, with the types of draft-ietf-httpapi-ratelimit-headers-11.

use serde_json::json;

/// The media type of a problem.
pub const CONTENT_TYPE: &str = "application/problem+json";

const QUOTA_EXCEEDED: &str = "https://iana.org/assignments/http-problem-types#quota-exceeded";

/// A client asked for more than its quota; `violated_policies` are the names of the limits that said no.
pub fn quota_exceeded(status: u16, violated_policies: &[&str]) -> Vec<u8> {
    let problem = json!({
        "type": QUOTA_EXCEEDED,
        "title": "Request cannot be satisfied as assigned quota has been exceeded",
        "status": status,
        "violated-policies": violated_policies,
    });
    problem.to_string().into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
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
