//! What Envoy says about itself: its counters, its Prometheus page, its memory.

use std::collections::BTreeMap;

use crate::fault::Context;
use crate::{Envoy, Fault, http, poll};

impl Envoy {
    /// A page of Envoy's admin interface.
    pub async fn admin(&self, path: &str) -> Result<String, Fault> {
        let reply = http::send(self.admin_address(), http::get(path, &[])).await?;
        let body = String::from_utf8_lossy(&reply.body).into_owned();
        if reply.status == 200 {
            Ok(body)
        } else {
            Err(Fault::new(format!("{path}: {} {body}", reply.status)))
        }
    }

    /// All counters and gauges whose names match a regular expression.
    pub async fn counters(&self, filter: &str) -> Result<BTreeMap<String, u64>, Fault> {
        let page = self.admin(&format!("/stats?format=json&filter={filter}")).await?;
        let page: serde_json::Value = serde_json::from_str(&page).context("the stats are not JSON")?;
        let stats = page["stats"].as_array().ok_or_else(|| Fault::new("the stats have no list"))?;
        Ok(stats
            .iter()
            .filter_map(|stat| Some((stat["name"].as_str()?.to_owned(), stat["value"].as_u64()?)))
            .collect())
    }

    /// One of Envoy's own counters.
    pub async fn counter(&self, name: &str) -> Result<u64, Fault> {
        let counters = self.counters(name).await?;
        counters.get(name).copied().ok_or_else(|| Fault::new(format!("Envoy has no counter {name}")))
    }

    /// One of Tidegate's metrics. They reach Envoy from a tick: see [`Envoy::metric_reaches`].
    pub async fn metric(&self, name: &str) -> Result<u64, Fault> {
        let counters = self.counters("wasmcustom").await?;
        counters
            .get(&format!("wasmcustom.{name}"))
            .copied()
            .ok_or_else(|| Fault::new(format!("there is no metric {name} among {counters:?}")))
    }

    /// Waits until a metric of Tidegate's has this value.
    pub async fn metric_reaches(&self, name: &str, value: u64) -> Result<(), Fault> {
        poll::until(&format!("{name} to be {value}"), async || match self.metric(name).await? {
            seen if seen == value => Ok(()),
            seen => Err(Fault::new(seen.to_string())),
        })
        .await
    }

    /// Waits until the metrics of `rule` account for `decided` requests. Then every VM has told what it
    /// had counted, and the other metrics are up to date too.
    pub async fn rule_metrics_reach(&self, rule: &str, decided: usize) -> Result<(), Fault> {
        let suffix = format!("_rule_{}", rule.replace('-', "_"));
        poll::until(&format!("{decided} decisions of {rule}"), async || {
            let counters = self.counters("wasmcustom").await?;
            let of_rule = counters.iter().filter(|(name, _)| name.ends_with(&suffix));
            let seen: u64 = of_rule.map(|(_, value)| value).sum();
            if seen == decided as u64 { Ok(()) } else { Err(Fault::new(format!("{seen} of {counters:?}"))) }
        })
        .await
    }

    /// Envoy's resident memory in kilobytes.
    pub fn resident_kb(&self) -> Result<u64, Fault> {
        let path = format!("/proc/{}/status", self.pid());
        let status = std::fs::read_to_string(&path).context(&path)?;
        status
            .lines()
            .find_map(|line| line.strip_prefix("VmRSS:")?.trim().strip_suffix("kB")?.trim().parse().ok())
            .ok_or_else(|| Fault::new(format!("{path} has no VmRSS")))
    }
}
