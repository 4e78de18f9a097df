//! What to start Envoy with. The configuration is the one in `envoy/`, which users read: this changes
//! ports, paths and the parts that a test asks for, and nothing else.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::fault::Context;
use crate::{Fault, repository};

const BOOTSTRAP: &str = "envoy/envoy.yaml";
const LISTENERS: &str = "envoy/listeners.yaml";
/// Limits across proxies: the listeners' file with a counter.
pub const GLOBAL: &str = "envoy/global.yaml";
/// The counter's cluster in the bootstrap, and in the configs of tests.
pub const COUNTER_CLUSTER: &str = "tidegate";

const CONNECTION_MANAGER: &str = "/resources/0/filter_chains/0/filters/0/typed_config";
const FILTERS: &str = "/resources/0/filter_chains/0/filters/0/typed_config/http_filters";
/// Tidegate is the first HTTP filter, the router the second.
const FILTER: &str = "/resources/0/filter_chains/0/filters/0/typed_config/http_filters/0";
const PLUGIN: &str = "/resources/0/filter_chains/0/filters/0/typed_config/http_filters/0/typed_config/config";
const VIRTUAL_HOST: &str = "/resources/0/filter_chains/0/filters/0/typed_config/route_config/virtual_hosts/0";

/// What stands in the filter's place.
#[derive(Clone, Debug)]
pub enum Filter {
    /// Tidegate with the limits and the failure policy of `envoy/listeners.yaml`.
    Example,
    /// Tidegate with these limits. If it dies it stays dead, so that no test overlooks it.
    Tidegate(Value),
    /// Envoy's own limiter with this many tokens for all: it tests the harness without Tidegate.
    EnvoysOwn(u32),
    /// Nothing: what Envoy does by itself, to measure against.
    Nothing,
}

/// A part of the listeners' file whose fields a test may set.
#[derive(Clone, Copy, Debug)]
pub enum Part {
    /// The listener: its address.
    Listener,
    /// The one chain of network filters: its TLS.
    FilterChain,
    /// The HTTP connection manager.
    ConnectionManager,
    /// The virtual host: its routes.
    VirtualHost,
    /// The plugin that holds Tidegate: what happens when its VM dies.
    Plugin,
}

/// An Envoy to start.
#[derive(Clone, Debug)]
pub struct Setup {
    listeners: &'static str,
    filter: Filter,
    module: Option<PathBuf>,
    workers: usize,
    upstream: Option<SocketAddr>,
    access_log: bool,
    fields: Vec<(Part, &'static str, Value)>,
    filters_before: Vec<Value>,
    clusters: Vec<Value>,
    counters: Counters,
}

/// Where Envoy looks for the counter.
#[derive(Clone, Debug)]
enum Counters {
    /// Where the example has it.
    Example,
    /// At these addresses: perhaps none.
    At(Vec<SocketAddr>),
    /// There is no such cluster.
    NoCluster,
}

impl Setup {
    /// Two workers that answer every request themselves, and no access log.
    pub fn new(filter: Filter) -> Self {
        Self {
            listeners: LISTENERS,
            filter,
            module: None,
            workers: 2,
            upstream: None,
            access_log: false,
            fields: Vec::new(),
            filters_before: Vec::new(),
            clusters: Vec::new(),
            counters: Counters::Example,
        }
    }

    /// Tidegate as another file of `envoy/` than `listeners.yaml` has it.
    pub fn example(listeners: &'static str) -> Self {
        Self { listeners, ..Self::new(Filter::Example) }
    }

    /// Tidegate with these limits.
    pub fn limits(limits: Value) -> Self {
        Self::new(Filter::Tidegate(limits))
    }

    /// Tidegate with these limits, in the place of those of `envoy/global.yaml`.
    pub fn global(limits: Value) -> Self {
        Self { listeners: GLOBAL, ..Self::limits(limits) }
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

    /// With a field of the listeners' file set.
    #[must_use]
    pub fn field(mut self, part: Part, field: &'static str, value: Value) -> Self {
        self.fields.push((part, field, value));
        self
    }

    /// With a field of the HTTP connection manager set.
    #[must_use]
    pub fn connection_manager(self, field: &'static str, value: Value) -> Self {
        self.field(Part::ConnectionManager, field, value)
    }

    /// With another HTTP filter, which sees requests before Tidegate does.
    #[must_use]
    pub fn filter_before(mut self, filter: Value) -> Self {
        self.filters_before.push(filter);
        self
    }

    /// With another module than the one that ships.
    #[must_use]
    pub fn module(self, module: PathBuf) -> Self {
        Self { module: Some(module), ..self }
    }

    /// With one more cluster, at these addresses.
    #[must_use]
    pub fn cluster(mut self, name: &str, endpoints: &[SocketAddr]) -> Self {
        let endpoints = lb_endpoints(endpoints);
        self.clusters.push(json!({
            "name": name,
            "type": "STATIC",
            "connect_timeout": "1s",
            "load_assignment": { "cluster_name": name, "endpoints": [{ "lb_endpoints": endpoints }] },
        }));
        self
    }

    /// With counters at these addresses, or with a cluster that has none.
    #[must_use]
    pub fn counters(self, addresses: &[SocketAddr]) -> Self {
        Self { counters: Counters::At(addresses.to_vec()), ..self }
    }

    /// Without the counter's cluster.
    #[must_use]
    pub fn without_counter_cluster(self) -> Self {
        Self { counters: Counters::NoCluster, ..self }
    }

    /// The same with other limits.
    #[must_use]
    pub fn with_limits(&self, limits: Value) -> Self {
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
        let clusters = clusters.ok_or_else(|| Fault::new(format!("{BOOTSTRAP} has no clusters")))?;
        let place = clusters.iter().position(|cluster| cluster["name"] == COUNTER_CLUSTER);
        let place =
            place.ok_or_else(|| Fault::new(format!("{BOOTSTRAP} has no cluster {COUNTER_CLUSTER}")))?;
        match &self.counters {
            Counters::Example => {}
            Counters::At(addresses) => {
                let endpoints = lb_endpoints(addresses);
                set(&mut clusters[place], "/load_assignment/endpoints/0/lb_endpoints", endpoints)?;
            }
            Counters::NoCluster => drop(clusters.remove(place)),
        }
        clusters.extend(self.clusters.iter().cloned());
        Ok(bootstrap)
    }

    /// The listeners' file.
    pub(crate) fn listeners(&self, directory: &Path) -> Result<Value, Fault> {
        let mut listeners = example(self.listeners)?;
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
            insert(&mut listeners, VIRTUAL_HOST, "routes", route)?;
        }
        for (part, field, value) in &self.fields {
            insert(&mut listeners, part.pointer(), field, value.clone())?;
        }
        if let Some(filters) = listeners.pointer_mut(FILTERS).and_then(Value::as_array_mut) {
            filters.splice(..0, self.filters_before.iter().cloned());
        }
        Ok(listeners)
    }

    fn set_filter(&self, listeners: &mut Value) -> Result<(), Fault> {
        match self.filter {
            Filter::EnvoysOwn(tokens) => return set(listeners, FILTER, envoys_own(tokens)),
            Filter::Nothing => return remove_filter(listeners),
            Filter::Example | Filter::Tidegate(_) => {}
        }
        let module = self.module.clone().map_or_else(repository::wasm_module, Ok)?;
        set(listeners, &format!("{PLUGIN}/vm_config/code/local/filename"), json!(module))?;
        if let Filter::Tidegate(limits) = &self.filter {
            set(listeners, &format!("{PLUGIN}/failure_policy"), json!("FAIL_CLOSED"))?;
            set(listeners, &format!("{PLUGIN}/configuration/value"), json!(limits.to_string()))?;
        }
        Ok(())
    }
}

impl Part {
    fn pointer(self) -> &'static str {
        match self {
            Self::Listener => "/resources/0",
            Self::FilterChain => "/resources/0/filter_chains/0",
            Self::ConnectionManager => CONNECTION_MANAGER,
            Self::VirtualHost => VIRTUAL_HOST,
            Self::Plugin => PLUGIN,
        }
    }
}

/// The limits in `envoy/listeners.yaml`, as JSON text.
pub fn example_limits() -> Result<String, Fault> {
    limits_of(LISTENERS)
}

/// The limits in a listeners' file of `envoy/`, as JSON text.
pub fn limits_of(path: &str) -> Result<String, Fault> {
    let listeners = example(path)?;
    let limits = listeners.pointer(&format!("{PLUGIN}/configuration/value"));
    limits
        .and_then(Value::as_str)
        .map(str::to_owned)
        .ok_or_else(|| Fault::new(format!("{path} has no limits")))
}

pub(crate) fn listeners_path(directory: &Path) -> std::path::PathBuf {
    directory.join("listeners.json")
}

pub(crate) fn access_log_path(directory: &Path) -> std::path::PathBuf {
    directory.join("access.log")
}

fn lb_endpoints(addresses: &[SocketAddr]) -> Value {
    let address = |to: &SocketAddr| json!({ "address": to.ip(), "port_value": to.port() });
    addresses
        .iter()
        .map(|to| json!({ "endpoint": { "address": { "socket_address": address(to) } } }))
        .collect()
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

fn remove_filter(listeners: &mut Value) -> Result<(), Fault> {
    let filters = listeners.pointer_mut(FILTERS).and_then(Value::as_array_mut);
    let filters = filters.filter(|filters| filters.len() == 2);
    let filters = filters.ok_or_else(|| Fault::new("envoy/ has not two HTTP filters: see setup.rs"))?;
    filters.remove(0);
    Ok(())
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
