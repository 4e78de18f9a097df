//! The options of `tidegate serve`: on the command line, in the environment, in a file, under the same names.

#![expect(clippy::doc_markdown, reason = "the docs of options are shown as plain text, by --help")]

use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use clap::Args;
use serde::Deserialize;
use tidegate_counter::store::memory::{
    LARGE_KEYS_DEFAULT, LARGE_KEYS_MAX, MAX_KEYS_DEFAULT, MAX_KEYS_MAX, MAX_KEYS_MIN,
};

use crate::failure::Failure;

/// Declares the options once, and how those of two places are laid over each other.
macro_rules! options {
    ($(#[doc = $doc:literal] $(#[$more:meta])* $name:ident: $type:ty, $env:literal;)*) => {
        /// What can be said about how to serve. Nothing said is the default.
        #[derive(Args, Default, Deserialize)]
        #[serde(deny_unknown_fields, rename_all = "kebab-case")]
        pub(crate) struct ServeOptions {
            /// A file with any of these options: TOML, or JSON if its name ends in .json
            #[arg(long, env = "TIDEGATE_CONFIG", hide_env_values = true, value_name = "FILE")]
            #[serde(skip)]
            config: Option<PathBuf>,
            $(
                #[doc = $doc]
                // What stands in the environment may be a secret, and help is shown to all.
                #[arg(long, env = $env, hide_env_values = true)]
                $(#[$more])*
                pub(crate) $name: Option<$type>,
            )*
        }

        impl ServeOptions {
            fn or(self, other: Self) -> Self {
                Self { config: self.config, $($name: self.$name.or(other.$name),)* }
            }
        }
    };
}

options! {
    /// Where to listen; port 0 takes any free one [default: 127.0.0.1:7070]
    #[arg(value_name = "ADDRESS:PORT", help_heading = "Where")]
    listen: SocketAddr, "TIDEGATE_LISTEN";
    /// Where counters are kept: memory, or redis://[user:password@]host[:port][/database], or rediss:// with TLS
    /// [default: memory]
    #[arg(value_name = "STORE", help_heading = "Where")]
    store: String, "TIDEGATE_STORE";
    /// What keys in Redis begin with [default: tidegate]
    #[arg(value_name = "TEXT", help_heading = "Where")]
    redis_prefix: String, "TIDEGATE_REDIS_PREFIX";
    /// Who signed the certificate of Redis, in PEM [default: whom the system trusts]
    #[arg(value_name = "FILE", help_heading = "Where")]
    redis_ca: PathBuf, "TIDEGATE_REDIS_CA";
    /// How many counters the memory has room for, 42 bytes each; best four times as many as are in use [default:
    /// 1000000]
    #[arg(value_name = "NUMBER", help_heading = "Memory")]
    max_keys: usize, "TIDEGATE_MAX_KEYS";
    /// The same for counters of sliding_log and sliding_buckets, which are larger [default: 8192]
    #[arg(value_name = "NUMBER", help_heading = "Memory")]
    max_large_keys: usize, "TIDEGATE_MAX_LARGE_KEYS";
    /// A file with the tokens of which callers must show one, one on each line; read again when it changes. A single
    /// token can also be given as TIDEGATE_TOKEN in the environment. Without any, only this machine may call
    #[arg(value_name = "FILE", help_heading = "Who may call")]
    token_file: PathBuf, "TIDEGATE_TOKEN_FILE";
    /// The chain of certificates for TLS, in PEM
    #[arg(value_name = "FILE", help_heading = "Who may call")]
    tls_cert: PathBuf, "TIDEGATE_TLS_CERT";
    /// The key of the certificate, in PEM
    #[arg(value_name = "FILE", help_heading = "Who may call")]
    tls_key: PathBuf, "TIDEGATE_TLS_KEY";
    /// A file with the names of rules that are switched off everywhere, one on each line; read again when it changes
    #[arg(value_name = "FILE", help_heading = "Rules")]
    rules_off: PathBuf, "TIDEGATE_RULES_OFF";
    /// How many threads work [default: one for each core]
    #[arg(value_name = "NUMBER", help_heading = "Bounds")]
    threads: usize, "TIDEGATE_THREADS";
    /// The most open connections [default: 4096]
    #[arg(value_name = "NUMBER", help_heading = "Bounds")]
    max_connections: usize, "TIDEGATE_MAX_CONNECTIONS";
    /// The most requests that are read or applied at once [default: 4096]
    #[arg(value_name = "NUMBER", help_heading = "Bounds")]
    max_requests: usize, "TIDEGATE_MAX_REQUESTS";
    /// How long the head of a request may take to come [default: 5s]
    #[arg(value_name = "DURATION", help_heading = "Bounds")]
    head_time: Span, "TIDEGATE_HEAD_TIME";
    /// How long the body of a request may take to come [default: 5s]
    #[arg(value_name = "DURATION", help_heading = "Bounds")]
    body_time: Span, "TIDEGATE_BODY_TIME";
    /// How long a connection may be open without a request [default: 5m]
    #[arg(value_name = "DURATION", help_heading = "Bounds")]
    idle_time: Span, "TIDEGATE_IDLE_TIME";
    /// How long the store may take for a batch; less if the caller waits for less [default: 1s]
    #[arg(value_name = "DURATION", help_heading = "Bounds")]
    take_time: Span, "TIDEGATE_TAKE_TIME";
    /// How long accepted requests may take after SIGTERM [default: 30s]
    #[arg(value_name = "DURATION", help_heading = "Bounds")]
    stop_time: Span, "TIDEGATE_STOP_TIME";
    /// How logs are written [default: text]
    #[arg(value_name = "FORM", help_heading = "Logs")]
    log: LogForm, "TIDEGATE_LOG";
    /// How much is logged [default: info]
    #[arg(value_name = "LEVEL", help_heading = "Logs")]
    log_level: LogLevel, "TIDEGATE_LOG_LEVEL";
}

/// Where counters are kept. It is read from its text by us, for who reads the other options repeats what is wrong, and
/// here that may be a password.
pub(crate) enum Store {
    Memory,
    /// With the whole address.
    Redis(String),
}

impl FromStr for Store {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "memory" {
            Ok(Self::Memory)
        } else if text.starts_with("redis://") || text.starts_with("rediss://") {
            Ok(Self::Redis(text.to_owned()))
        } else if text.starts_with("redis-cluster://") || text.starts_with("rediss-cluster://") {
            Err("Redis Cluster is not supported yet; use redis:// with one server".to_owned())
        } else {
            // Not repeated: there may be a password in it.
            Err("write memory, or redis://[user:password@]host[:port][/database], or rediss:// with TLS"
                .to_owned())
        }
    }
}

/// A duration as the config language writes it: 500ms, 10s, 5m.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub(crate) struct Span(pub(crate) Duration);

impl FromStr for Span {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let ms = tidegate_config::duration::parse(text).filter(|ms| (1..=86_400_000).contains(ms));
        let advice = "write a whole number and a unit, from 1ms to 1d, such as 10s (units: ms, s, m, h, d)";
        ms.map(|ms| Self(Duration::from_millis(ms))).ok_or_else(|| advice.to_owned())
    }
}

impl TryFrom<String> for Span {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum LogForm {
    Text,
    Json,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum LogLevel {
    Error,
    Warn,
    Info,
    Debug,
}

impl ServeOptions {
    /// With what the file says, if there is one.
    pub(crate) fn with_file(self) -> Result<Self, Failure> {
        match &self.config {
            Some(path) => {
                let from_file = read(path)?;
                Ok(self.or(from_file))
            }
            None => Ok(self),
        }
    }

    pub(crate) fn store(&self) -> Result<Store, Failure> {
        let store = self.store.as_deref().map_or(Ok(Store::Memory), str::parse);
        store.map_err(|why| Failure::usage(format!("store: {why}")))
    }

    pub(crate) fn max_keys(&self) -> Result<usize, Failure> {
        within("max-keys", self.max_keys.unwrap_or(MAX_KEYS_DEFAULT), MAX_KEYS_MIN, MAX_KEYS_MAX)
    }

    pub(crate) fn max_large_keys(&self) -> Result<usize, Failure> {
        within(
            "max-large-keys",
            self.max_large_keys.unwrap_or(LARGE_KEYS_DEFAULT),
            MAX_KEYS_MIN,
            LARGE_KEYS_MAX,
        )
    }
}

/// A number of an option that lies within its bounds.
pub(crate) fn within<T: Copy + PartialOrd + fmt::Display>(
    name: &str,
    value: T,
    least: T,
    most: T,
) -> Result<T, Failure> {
    if value >= least && value <= most {
        return Ok(value);
    }
    Err(Failure::usage(format!("{name}: must be from {least} to {most}, not {value}")))
}

fn read(path: &Path) -> Result<ServeOptions, Failure> {
    let failure = |message: String| Failure::usage(format!("{}: {message}", path.display()));
    let text = std::fs::read_to_string(path).map_err(|why| failure(format!("cannot be read: {why}")))?;
    if path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("json")) {
        return serde_json::from_str(&text).map_err(|why| failure(masked(&why.to_string())));
    }
    // Its own report repeats the line, which may have a password in it.
    toml::from_str(&text).map_err(|why: toml::de::Error| {
        let before = why.span().and_then(|span| text.get(..span.start)).unwrap_or_default();
        let line = before.matches('\n').count() + 1;
        failure(format!("line {line}: {}", masked(why.message())))
    })
}

/// A text without the user and password of an address in it.
pub(crate) fn masked(text: &str) -> String {
    let line = |line: &str| match (line.find("://"), line.rfind('@')) {
        (Some(start), Some(end)) if start < end => format!("{}://…{}", &line[..start], &line[end..]),
        _ => line.to_owned(),
    };
    text.split('\n').map(line).collect::<Vec<_>>().join("\n")
}
