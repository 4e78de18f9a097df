//! All that runs while it is measured: an Envoy for each case, the counters, and a Redis.

use tokio::sync::MutexGuard;

use tidegate_e2e::{Counter, Envoy, Fault, Filter, Redis, Setup, envoy};

use crate::cases::Case;

/// What Envoy counts of calls to the counter.
const CALLS: &str = "cluster.tidegate.upstream_rq_total";
/// What must not have happened, or something else was measured than is told.
const FAULTS: [&str; 5] = ["counter_failures", "fallbacks", "reports_dropped", "counter_epochs", "errors"];

pub(crate) struct Running {
    /// In the order of the cases.
    envoys: Vec<Envoy>,
    _counters: [Counter; 2],
    _redis: Redis,
    _turn: MutexGuard<'static, ()>,
}

impl Running {
    pub(crate) async fn start() -> Result<Self, Fault> {
        let redis = Redis::start().await?;
        let (in_memory, on_redis) = (Counter::in_memory().await?, Counter::on(&redis).await?);
        let turn = envoy::turn().await;
        let mut envoys = Vec::new();
        for case in Case::ALL {
            let setup = case.config().map_or_else(|| Setup::new(Filter::Nothing), Setup::global);
            let counter = if case == Case::ExactOnRedis { &on_redis } else { &in_memory };
            envoys.push(Envoy::start_beside(setup.counters(&[counter.address()]), &turn).await?);
        }
        Ok(Self { envoys, _counters: [in_memory, on_redis], _redis: redis, _turn: turn })
    }

    pub(crate) fn envoy(&self, case: usize) -> &Envoy {
        &self.envoys[case]
    }

    /// How often an Envoy has called the counter so far.
    pub(crate) async fn calls(&self, case: usize) -> Result<u64, Fault> {
        self.envoys[case].counter(CALLS).await
    }

    /// That every request was decided as its rule says.
    pub(crate) async fn check(&self) -> Result<(), Fault> {
        for (case, envoy) in Case::ALL.into_iter().zip(&self.envoys) {
            if case == Case::NoFilter {
                continue;
            }
            for fault in FAULTS {
                let count = envoy.metric(&format!("tidegate_{fault}")).await?;
                if count > 0 {
                    return Err(Fault::new(format!("{}: {count} {fault}; try again", case.name())));
                }
            }
        }
        Ok(())
    }
}
