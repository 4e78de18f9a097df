//! Keys and plans from tokens that Envoy's own `jwt_authn` verified.

use jsonwebtoken::{EncodingKey, Header, encode};
use serde_json::{Value, json};
use tidegate_e2e::http::{self, Request};
use tidegate_e2e::{Envoy, Setup};

use crate::common::{admitted_of, assert_healthy, limit, start, two_each};

const ISSUER: &str = "https://issuer.test";
const SECRET: &[u8] = b"a secret of more than thirty-two bytes";
/// The same in base64url, as a key set has it.
const SECRET_IN_BASE64: &str = "YSBzZWNyZXQgb2YgbW9yZSB0aGFuIHRoaXJ0eS10d28gYnl0ZXM";

#[tokio::test]
async fn a_claim_is_a_key() {
    let envoy = start_with(json!([two_each(&json!([{ "jwt": "org_id" }]))])).await;
    // Different people and tokens of one organisation are counted together.
    let of_acme =
        |index: usize| bearing(&token(&json!({ "org_id": "acme", "sub": format!("user-{index}") }), SECRET));
    assert_eq!(admitted_of(&envoy, 5, of_acme).await, 2);
    let of_other = |_| bearing(&token(&json!({ "org_id": "other" }), SECRET));
    assert_eq!(admitted_of(&envoy, 5, of_other).await, 2);
    // Without the claim, or without a token, a request has no key: all those share one bucket.
    let of_none = |index| match index % 2 {
        0 => bearing(&token(&json!({ "sub": "ana" }), SECRET)),
        _ => http::get("/", &[]),
    };
    assert_eq!(admitted_of(&envoy, 5, of_none).await, 2);
    assert_healthy(&envoy).await;
}

#[tokio::test]
async fn a_claim_inside_another_is_a_key() {
    let envoy = start_with(json!([two_each(&json!([{ "jwt": "realm.org" }]))])).await;
    for org in ["acme", "other"] {
        let make = |_| bearing(&token(&json!({ "realm": { "org": org }, "org": "outside" }), SECRET));
        assert_eq!(admitted_of(&envoy, 4, make).await, 2, "{org}");
    }
    assert_healthy(&envoy).await;
}

#[tokio::test]
async fn a_claim_with_dots_in_its_name_is_a_key() {
    let envoy = start_with(json!([two_each(&json!([{ "jwt": ["https://a.test/org"] }]))])).await;
    for org in ["acme", "other"] {
        let make = |_| bearing(&token(&json!({ "https://a.test/org": org }), SECRET));
        assert_eq!(admitted_of(&envoy, 4, make).await, 2, "{org}");
    }
    assert_healthy(&envoy).await;
}

#[tokio::test]
async fn a_claim_that_is_a_number_or_a_truth_is_a_key_like_any_other() {
    let envoy = start_with(json!([two_each(&json!([{ "jwt": "org" }]))])).await;
    for org in [json!(1), json!(2), json!(2.5), json!(true), json!(false), json!("1")] {
        let make = |_| bearing(&token(&json!({ "org": org }), SECRET));
        assert_eq!(admitted_of(&envoy, 4, make).await, 2, "{org}");
    }
    assert_healthy(&envoy).await;
}

#[tokio::test]
async fn a_claim_names_the_plan() {
    let plans = json!({
        "name": "plans",
        "key": [{ "jwt": "sub" }],
        "plans": {
            "default": "free",
            "by": { "jwt": "plan" },
            "limits": { "free": [limit(1)], "pro": [limit(3)] },
        },
    });
    let envoy = start_with(json!([plans])).await;
    for (plan, expected) in [("free", 1), ("pro", 3), ("made-up", 1)] {
        let claims = json!({ "sub": format!("on-{plan}"), "plan": plan });
        assert_eq!(admitted_of(&envoy, 5, |_| bearing(&token(&claims, SECRET))).await, expected, "{plan}");
    }
    // Whoever upgrades keeps what was counted.
    let ana = |plan: &str| bearing(&token(&json!({ "sub": "ana", "plan": plan }), SECRET));
    assert_eq!(admitted_of(&envoy, 3, |_| ana("free")).await, 1);
    assert_eq!(admitted_of(&envoy, 5, |_| ana("pro")).await, 2);
    assert_healthy(&envoy).await;
}

#[tokio::test]
async fn a_token_that_is_not_verified_buys_nothing() {
    let envoy = start_with(json!([two_each(&json!([{ "jwt": "org_id" }]))])).await;
    for index in 0..4 {
        let forged =
            token(&json!({ "org_id": format!("fresh-{index}") }), b"somebody else's secret, quite long");
        let reply = http::send(envoy.address(), bearing(&forged)).await.unwrap();
        assert_eq!(reply.status, 401, "jwt_authn stops it before it reaches us");
    }
    // What jwt_authn would write into the metadata cannot come from a header.
    let claimed =
        |index: usize| http::get("/", &[("x-jwt-payload", format!("{{\"org_id\":{index}}}").as_bytes())]);
    assert_eq!(admitted_of(&envoy, 5, claimed).await, 2);
    assert_healthy(&envoy).await;
}

async fn start_with(rules: Value) -> Envoy {
    let keys = json!({ "keys": [{ "kty": "oct", "alg": "HS256", "k": SECRET_IN_BASE64 }] });
    let jwt_authn = json!({
        "name": "envoy.filters.http.jwt_authn",
        "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.filters.http.jwt_authn.v3.JwtAuthentication",
            "providers": { "ours": {
                "issuer": ISSUER,
                "local_jwks": { "inline_string": keys.to_string() },
                "payload_in_metadata": "jwt_payload",
            } },
            "rules": [{
                "match": { "prefix": "/" },
                "requires": { "requires_any": { "requirements": [
                    { "provider_name": "ours" },
                    { "allow_missing": {} },
                ] } },
            }],
        },
    });
    start(Setup::limits(json!({ "rules": rules })).filter_before(jwt_authn)).await
}

fn token(claims: &Value, secret: &[u8]) -> String {
    let mut claims = claims.clone();
    claims["iss"] = json!(ISSUER);
    encode(&Header::default(), &claims, &EncodingKey::from_secret(secret)).expect("claims make a token")
}

fn bearing(token: &str) -> Request {
    http::get("/", &[("authorization", format!("Bearer {token}").as_bytes())])
}
