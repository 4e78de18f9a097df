//! Who is counted: every source of a key that a request carries itself. Addresses are in [`crate::client_ip`],
//! tokens in [`crate::jwt`], certificates in [`crate::mtls`].

use serde_json::{Value, json};
use tidegate_e2e::http::{Request, get, request};
use tidegate_e2e::{Part, Setup};

use crate::common::{admitted_of, assert_healthy, start, two_each};

/// Requests of one client, all of which are counted together, and those of others, each counted apart.
struct Case {
    rule: Value,
    one: Vec<Request>,
    others: Vec<Request>,
}

impl Case {
    fn new(key: &Value, one: Vec<Request>, others: Vec<Request>) -> Self {
        Self { rule: two_each(key), one, others }
    }

    fn matching(mut self, matches: Value) -> Self {
        self.rule["match"] = matches;
        self
    }

    async fn holds(self) {
        self.holds_in(Setup::limits(json!({ "rules": [] }))).await;
    }

    /// Two of the client's requests pass, however it writes them, and two of each other's.
    async fn holds_in(self, setup: Setup) {
        let envoy = start(setup.with_limits(json!({ "rules": [self.rule] }))).await;
        let rounds = 2 * self.one.len().max(2);
        let seen = admitted_of(&envoy, rounds, |index| self.one[index % self.one.len()].clone()).await;
        assert_eq!(seen, 2, "of {:?}", self.one);
        for other in self.others {
            assert_eq!(admitted_of(&envoy, 4, |_| other.clone()).await, 2, "of {other:?}");
        }
        assert_healthy(&envoy).await;
    }
}

#[tokio::test]
async fn by_header() {
    let of = |value: &str| get("/", &[("X-Api-Key", value.as_bytes())]);
    // The value is compared to the letter, the name is not.
    let one = vec![of("ana"), get("/else", &[("x-api-KEY", b"ana")])];
    Case::new(&json!([{ "header": "x-api-key" }]), one, vec![of("ben"), of("Ana"), get("/", &[])])
        .holds()
        .await;
}

#[tokio::test]
async fn by_header_in_small_letters() {
    let of = |value: &str| get("/", &[("x-user", value.as_bytes())]);
    let key = json!([{ "header": "x-user", "lowercase": true }]);
    Case::new(&key, vec![of("ana"), of("ANA"), of("aNa")], vec![of("ben")]).holds().await;
}

#[tokio::test]
async fn by_path_segment() {
    let one =
        ["/orgs/acme/a", "/orgs/acme/b/c?org=other", "//orgs/acme/a", "/orgs/%61cme/a", "/x/../orgs/acme/"];
    let one = one.map(|path| get(path, &[])).to_vec();
    let others = ["/orgs/other/a", "/orgs/acme%2Fa/a"].map(|path| get(path, &[])).to_vec();
    Case::new(&json!([{ "path_segment": "org" }]), one, others)
        .matching(json!({ "path_template": "/orgs/{org}/**" }))
        .holds()
        .await;
}

#[tokio::test]
async fn by_query() {
    let one = ["/?user=ana", "/a?x=1&user=ana", "/?%75ser=%61na", "/?user=ana#user=ben"];
    let one = one.map(|path| get(path, &[])).to_vec();
    let others = ["/?user=ben", "/?user=Ana", "/?user="].map(|path| get(path, &[])).to_vec();
    Case::new(&json!([{ "query": "user" }]), one, others).holds().await;
}

#[tokio::test]
async fn by_cookie() {
    let with = |cookie: &str| get("/", &[("cookie", cookie.as_bytes())]);
    let one = vec![with("session=ana"), with("a=b; session=ana"), with("session=ana;theme=dark")];
    Case::new(&json!([{ "cookie": "session" }]), one, vec![with("session=ben"), with("other=ana")])
        .holds()
        .await;
}

#[tokio::test]
async fn by_host() {
    let to = |host: &str| get("/", &[("host", host.as_bytes())]);
    let one = vec![to("a.test"), to("A.Test"), to("a.test:8080"), to("a.test."), to("a.test.:80")];
    Case::new(&json!(["host"]), one, vec![to("b.test"), to("x.a.test")]).holds().await;
}

#[tokio::test]
async fn by_method() {
    let by = |method: &str, path: &str| request(method, path, &[]);
    let one = vec![by("POST", "/"), by("POST", "/else")];
    Case::new(&json!(["method"]), one, vec![by("GET", "/"), by("PURGE", "/")]).holds().await;
}

#[tokio::test]
async fn by_constant() {
    let one = vec![get("/", &[]), get("/else?x", &[("x-api-key", b"ana")]), request("POST", "/", &[])];
    Case::new(&json!([{ "constant": "everybody" }]), one, vec![]).holds().await;
}

#[tokio::test]
async fn by_route() {
    let answer = json!({ "status": 200 });
    let routes = json!([
        { "name": "search", "match": { "prefix": "/search" }, "direct_response": answer },
        { "name": "pages", "match": { "prefix": "/pages" }, "direct_response": answer },
        { "match": { "prefix": "/" }, "direct_response": answer },
    ]);
    let one = vec![get("/search", &[]), get("/search/deeper?q=1", &[])];
    // A route without a name is one that the key is missing for.
    let others = vec![get("/pages", &[]), get("/", &[])];
    let setup = Setup::limits(json!({})).field(Part::VirtualHost, "routes", routes);
    Case::new(&json!(["route"]), one, others).holds_in(setup).await;
}

#[tokio::test]
async fn by_several_parts_together() {
    let of = |key: &str, host: &str| get("/", &[("x-api-key", key.as_bytes()), ("host", host.as_bytes())]);
    let key = json!([{ "header": "x-api-key" }, "host", "method"]);
    let one = vec![of("ana", "a.test"), of("ana", "A.test:80")];
    // Parts that run together to the same text are not the same key.
    let others = vec![
        of("ben", "a.test"),
        of("ana", "b.test"),
        of("an", "aa.test"),
        request("PUT", "/", &[("x-api-key", b"ana"), ("host", b"a.test")]),
        get("/", &[("host", b"a.test")]),
    ];
    Case::new(&key, one, others).holds().await;
}
