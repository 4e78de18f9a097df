//! Where the server is, and what the store may take on.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use redis::{ConnectionInfo, IntoConnectionInfo, TlsCertificates};

/// What keys begin with if nothing else is said.
pub const PREFIX_DEFAULT: &str = "tidegate";
/// The longest prefix.
pub const PREFIX_LEN_MAX: usize = 64;
/// The most calls under way at once: one more is refused, so that a slow server costs bounded memory.
pub const IN_FLIGHT_MAX: usize = 1_024;
/// For how long the first connection is tried, if nothing else is said: a server that starts beside the service, or a
/// machine with much to do, is no reason to end.
pub const PATIENCE_DEFAULT: Duration = Duration::from_secs(10);
/// How long an attempt to connect may take, the greeting included; the first ones half of the patience, if that is
/// longer.
pub(super) const CONNECT_MAX: Duration = Duration::from_secs(2);
/// How long the server may take to answer a probe. It is asked once a second, and whenever a call had no answer in
/// time; if it answers nothing at all meanwhile, the connection is given up.
pub(super) const PROBE_MAX: Duration = Duration::from_secs(1);
/// How often the server is asked how it is.
pub(super) const BEAT_EVERY: Duration = Duration::from_secs(1);
/// The shortest time between two probes.
pub(super) const PROBE_EVERY_MIN: Duration = Duration::from_millis(100);
/// For how long what somebody else asked tells how the server is.
pub(super) const PROBE_KEPT: Duration = Duration::from_millis(100);
/// After so long the server does not apply a call any more. No connection is given up earlier than it could answer
/// one: the probe that is sent after the call is due by then.
pub(super) const ANSWER_MAX: Duration = Duration::from_millis(2_100);
const _: () = assert!(
    BEAT_EVERY.as_millis() + PROBE_EVERY_MIN.as_millis() + PROBE_MAX.as_millis() <= ANSWER_MAX.as_millis()
);
/// The wait before connecting again: it doubles from the first to the second.
pub(super) const BACKOFF_MIN: Duration = Duration::from_millis(50);
pub(super) const BACKOFF_MAX: Duration = Duration::from_secs(2);
/// A connection that stood for so long was a good one, as is one that a batch was answered on: the next wait is short.
pub(super) const GOOD_AFTER: Duration = Duration::from_mins(1);

/// Where the server is, and what the store may take on.
#[derive(Clone, Debug)]
pub struct Options {
    pub(super) info: ConnectionInfo,
    pub(super) tls: Option<TlsCertificates>,
    pub(super) prefix: String,
    pub(super) in_flight_max: usize,
    pub(super) patience: Duration,
    pub(super) clock: TestClock,
}

/// The time in milliseconds that a test tells instead of the server.
#[derive(Clone, Debug, Default)]
pub(super) struct TestClock(Option<Arc<AtomicU64>>);

impl TestClock {
    /// The time, or 0 if the server tells it.
    pub(super) fn now_ms(&self) -> u64 {
        self.0.as_ref().map_or(0, |now_ms| now_ms.load(Ordering::SeqCst))
    }
}

impl Options {
    /// Reads `redis://[user[:password]@]host[:port][/database]`, or `rediss://` for TLS. The error says what is wrong
    /// with it, and never the password.
    pub fn from_url(url: &str) -> Result<Self, String> {
        let info = url.into_connection_info().map_err(|error| {
            let why = error.detail().unwrap_or_default();
            format!(
                "this is no address of a Redis server ({error}{why}); write \
                 redis://[user:password@]host[:port][/database], or rediss:// for TLS"
            )
        })?;
        let prefix = PREFIX_DEFAULT.to_owned();
        Ok(Self {
            info,
            tls: None,
            prefix,
            in_flight_max: IN_FLIGHT_MAX,
            patience: PATIENCE_DEFAULT,
            clock: TestClock::default(),
        })
    }

    /// Keys begin with this: 1 to 64 letters, digits, ".", "_" or "-".
    pub fn with_prefix(mut self, prefix: &str) -> Result<Self, String> {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
        if !(1..=PREFIX_LEN_MAX).contains(&prefix.len()) || !prefix.bytes().all(is_plain) {
            return Err(format!(
                "{prefix:?} is no prefix; write 1 to {PREFIX_LEN_MAX} letters, digits, \".\", \"_\" or \"-\""
            ));
        }
        prefix.clone_into(&mut self.prefix);
        Ok(self)
    }

    /// The certificate, in PEM, of whoever signed the server's; the system's own are used without it.
    #[must_use]
    pub fn with_ca(mut self, ca_pem: Vec<u8>) -> Self {
        self.tls = Some(TlsCertificates { client_tls: None, root_cert: Some(ca_pem) });
        self
    }

    /// At most so many calls under way at once.
    #[must_use]
    pub fn with_in_flight_max(mut self, max: usize) -> Self {
        self.in_flight_max = max;
        self
    }

    /// For how long the first connection is tried again; with none it is tried once.
    #[must_use]
    pub fn with_patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// For tests: this tells the time, in milliseconds, instead of the server. Keys then live an hour longer.
    #[must_use]
    pub fn with_test_clock(mut self, now_ms: Arc<AtomicU64>) -> Self {
        self.clock = TestClock(Some(now_ms));
        self
    }

    /// The server's address, without user and password.
    pub fn address(&self) -> String {
        self.info.addr().to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_that_is_none_says_what_to_write() {
        for url in ["http://localhost", "redis//x", "", "redis://h:port"] {
            let error = Options::from_url(url).expect_err("no address");
            assert!(error.contains("write redis://"), "{error}");
        }
    }

    #[test]
    fn a_password_is_never_told() {
        let options = Options::from_url("redis://ana:secret@db.example:6380/3").expect("valid");
        assert_eq!(options.address(), "db.example:6380");
        assert!(!format!("{options:?}").contains("secret"), "{options:?}");
        let error = Options::from_url("redis://ana:secret@h:port").expect_err("no port");
        assert!(!error.contains("secret"), "{error}");
    }

    #[test]
    fn a_prefix_is_plain() {
        let options = || Options::from_url("redis://h").expect("valid");
        assert!(options().with_prefix("edge-1").is_ok());
        for prefix in ["", "a b", "a{b}", &"p".repeat(65)] {
            assert!(options().with_prefix(prefix).is_err(), "{prefix}");
        }
    }
}
