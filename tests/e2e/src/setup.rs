//! What to start Envoy with. The configuration is the one in `envoy/`, which users read: this changes
//! ports, paths and the parts that a test asks for, and nothing else.

use std::net::SocketAddr;
use std::path::Path;

use serde_json::{Value, json};

use crate::fault::Context;
use crate::{Fault, repository};

const BOOTSTRAP: &str = "envoy/envoy.yaml";
const LISTENERS: &str = "envoy/listeners.yaml";

const CONNECTION_MANAGER: &str = "/resources/0/filter_chains/0/filters/0/typed_config";
/// Tidegate is the first HTTP filter, the router the second.
const FILTER: &str = "/resources/0/filter_chains/0/filters/0/typed_config/http_filters/0";
const ROUTES: &str =
    "/resources/0/filter_chains/0/filters/0/typed_config/route_config/virtual_hosts/0/routes";

/// What stands in the filter's place.
#[derive(Clone, Debug)]
pub enum Filter {
    /// Tidegate with the limits and the failure policy of `envoy/listeners.yaml`.
    Example,
    /// Tidegate with these limits. If it dies it stays dead, so that no test overlooks it.
    Tidegate(Value),
    /// Envoy's own limiter with this many tokens for all: it tests the harness without Tidegate.
    EnvoysOwn(u32),
    /// The module that tries what a host does.
    Probe,
}

/// An Envoy to start.
#[derive(Clone, Debug)]
pub struct Setup {
    filter: Filter,
    workers: usize,
    upstream: Option<SocketAddr>,
    access_log: bool,
    connection_manager: Vec<(&'static str, Value)>,
    clusters: Vec<Value>,
}

impl Setup {
    /// Two workers that answer every request themselves, and no access log.
    pub fn new(filter: Filter) -> Self {
        Self {
            filter,
            workers: 2,
            upstream: None,
            access_log: false,
            connection_manager: Vec::new(),
            clusters: Vec::new(),
        }
    }

    /// Tidegate with these limits.
    pub fn limits(limits: Value) -> Self {
        Self::new(Filter::Tidegate(limits))
    }

    /// With this many workers. Connections are shared out among them evenly.
    #[must_use]
    pub fn workers(self, workers: usize) -> Self {
        Self { workers, ..self }
    }

    /// With this server behind it.
    #[must_use]
    pub fn upstream(self, upstream: SocketAddr) -> Self {
        Self { upstream: Some(upstream), ..self }
    }

    /// With an access log, for [`crate::Envoy::access_log`].
    #[must_use]
    pub fn access_log(self) -> Self {
        Self { access_log: true, ..self }
    }

    /// With a field of the HTTP connection manager set.
    #[must_use]
    pub fn connection_manager(mut self, field: &'static str, value: Value) -> Self {
        self.connection_manager.push((field, value));
        self
    }

    /// With one more cluster, at these addresses.
    #[must_use]
    pub fn cluster(mut self, name: &str, endpoints: &[SocketAddr]) -> Self {
        let endpoints: Vec<Value> = endpoints
            .iter()
            .map(|to| json!({ "address": to.ip(), "port_value": to.port() }))
            .map(|address| json!({ "endpoint": { "address": { "socket_address": address } } }))
            .collect();
        self.clusters.push(json!({
            "name": name,
            "type": "STATIC",
            "load_assignment": { "cluster_name": name, "endpoints": [{ "lb_endpoints": endpoints }] },
        }));
        self
    }

    /// The same with other limits.
    #[must_use]
    pub(crate) fn with_limits(&self, limits: Value) -> Self {
        Self { filter: Filter::Tidegate(limits), ..self.clone() }
    }

    pub(crate) fn worker_count(&self) -> usize {
        self.workers
    }

    /// The bootstrap, for an Envoy that keeps its files in `directory`.
    pub(crate) fn bootstrap(&self, directory: &Path) -> Result<Value, Fault> {
        let mut bootstrap = example(BOOTSTRAP)?;
        let listeners = json!(listeners_path(directory));
        set(&mut bootstrap, "/admin/address/socket_address/port_value", json!(0))?;
        set(&mut bootstrap, "/dynamic_resources/lds_config/path_config_source/path", listeners)?;
        if let Some(upstream) = self.upstream {
            let address = "/static_resources/clusters/0/load_assignment/endpoints/0/lb_endpoints/0/endpoint/\
                           address/socket_address/port_value";
            set(&mut bootstrap, address, json!(upstream.port()))?;
        }
        let clusters = bootstrap.pointer_mut("/static_resources/clusters").and_then(Value::as_array_mut);
        clusters
            .ok_or_else(|| Fault::new(format!("{BOOTSTRAP} has no clusters")))?
            .extend(self.clusters.iter().cloned());
        Ok(bootstrap)
    }

    /// The listeners' file.
    pub(crate) fn listeners(&self, directory: &Path) -> Result<Value, Fault> {
        let mut listeners = example(LISTENERS)?;
        set(&mut listeners, "/resources/0/address/socket_address/port_value", json!(0))?;
        // Without it the kernel deals out connections by chance, and a test would know neither that all
        // workers were at work nor how many of its connections each had.
        insert(&mut listeners, "/resources/0", "connection_balance_config", json!({ "exact_balance": {} }))?;
        self.set_filter(&mut listeners)?;
        let log = format!("{CONNECTION_MANAGER}/access_log");
        if self.access_log {
            let path = format!("{log}/0/typed_config/path");
            set(&mut listeners, &path, json!(access_log_path(directory)))?;
        } else {
            set(&mut listeners, &log, json!([]))?;
        }
        if self.upstream.is_none() {
            let answer = json!({ "status": 200, "body": { "inline_string": "ok\n" } });
            let route = json!([{ "match": { "prefix": "/" }, "direct_response": answer }]);
            set(&mut listeners, ROUTES, route)?;
        }
        for (field, value) in &self.connection_manager {
            insert(&mut listeners, CONNECTION_MANAGER, field, value.clone())?;
        }
        Ok(listeners)
    }

    fn set_filter(&self, listeners: &mut Value) -> Result<(), Fault> {
        let config = format!("{FILTER}/typed_config/config");
        if let Filter::EnvoysOwn(tokens) = self.filter {
            return set(listeners, FILTER, envoys_own(tokens));
        }
        let is_probe = matches!(self.filter, Filter::Probe);
        let module = if is_probe { repository::probe_module()? } else { repository::wasm_module()? };
        set(listeners, &format!("{config}/vm_config/code/local/filename"), json!(module))?;
        if let Filter::Tidegate(limits) = &self.filter {
            set(listeners, &format!("{config}/failure_policy"), json!("FAIL_CLOSED"))?;
            set(listeners, &format!("{config}/configuration/value"), json!(limits.to_string()))?;
        }
        Ok(())
    }
}

/// The limits in `envoy/listeners.yaml`, as JSON text.
pub fn example_limits() -> Result<String, Fault> {
    let listeners = example(LISTENERS)?;
    let limits = listeners.pointer(&format!("{FILTER}/typed_config/config/configuration/value"));
    limits
        .and_then(Value::as_str)
        .map(str::to_owned)
        .ok_or_else(|| Fault::new(format!("{LISTENERS} has no limits")))
}

pub(crate) fn listeners_path(directory: &Path) -> std::path::PathBuf {
    directory.join("listeners.json")
}

pub(crate) fn access_log_path(directory: &Path) -> std::path::PathBuf {
    directory.join("access.log")
}

fn example(path: &str) -> Result<Value, Fault> {
    serde_saphyr::from_str(&repository::text(path)?).context(&format!("{path} is not YAML"))
}

fn envoys_own(tokens: u32) -> Value {
    let all = json!({ "default_value": { "numerator": 100, "denominator": "HUNDRED" } });
    json!({
        "name": "envoy.filters.http.local_ratelimit",
        "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.filters.http.local_ratelimit.v3.LocalRateLimit",
            "stat_prefix": "own",
            // Filled so slowly that no token comes back during a test.
            "token_bucket": { "max_tokens": tokens, "tokens_per_fill": 1, "fill_interval": "86400s" },
            "filter_enabled": all,
            "filter_enforced": all,
        },
    })
}

/// Replaces what is there: a pointer that leads nowhere means that the file has changed its shape.
fn set(document: &mut Value, pointer: &str, value: Value) -> Result<(), Fault> {
    let place = document.pointer_mut(pointer);
    *place.ok_or_else(|| Fault::new(format!("envoy/ has nothing at {pointer}: see setup.rs")))? = value;
    Ok(())
}

/// Adds or replaces a field of an object that is there.
fn insert(document: &mut Value, pointer: &str, field: &str, value: Value) -> Result<(), Fault> {
    let object = document.pointer_mut(pointer).and_then(Value::as_object_mut);
    object
        .ok_or_else(|| Fault::new(format!("envoy/ has no object at {pointer}: see setup.rs")))?
        .insert(field.to_owned(), value);
    Ok(())
}
