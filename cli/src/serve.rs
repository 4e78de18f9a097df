//! `tidegate serve`: wires the options to the counter.

use std::net::SocketAddr;
use std::time::Duration;

use tidegate_counter::http::{self, Tls};
use tidegate_counter::store::Store as _;
use tidegate_counter::store::memory::{MemoryStore, Size};
use tidegate_counter::store::redis::{Cause, NotConnected, Options as RedisOptions, RedisStore};
use tidegate_counter::{RulesOff, Service, Settings, Tokens};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tracing::Level;

use crate::failure::Failure;
use crate::options::{LogForm, LogLevel, ServeOptions, Store, within};

const LISTEN_DEFAULT: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 7070);
/// A token in the environment. No option: what stands on a command line can be seen by all.
const TOKEN_VARIABLE: &str = "TIDEGATE_TOKEN";
const THREADS_MAX: usize = 1_024;
const NUMBER_MAX: usize = 1_000_000;

pub(crate) fn serve(options: ServeOptions) -> Result<(), Failure> {
    let options = options.with_file()?;
    start_logs(&options);
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let threads = within("threads", options.threads.unwrap_or(cores), 1, THREADS_MAX)?;
    let mut runtime = match threads {
        // With one thread nothing need be handed over to another.
        1 => tokio::runtime::Builder::new_current_thread(),
        _ => tokio::runtime::Builder::new_multi_thread(),
    };
    let runtime = runtime.worker_threads(threads).enable_all().build();
    let runtime = runtime.map_err(|error| Failure::other(format!("no threads to work with: {error}")))?;
    runtime.block_on(start(&options))
}

async fn start(options: &ServeOptions) -> Result<(), Failure> {
    let settings = settings(options)?;
    let store = options.store()?;
    let tokens = tokens(options)?;
    let tls = tls(options)?;
    let rules_off = match &options.rules_off {
        Some(path) => {
            RulesOff::from_file(path).map_err(|error| Failure::file(format!("rules-off: {error}")))?
        }
        None => RulesOff::none(),
    };
    let listener = listen(options, &tokens).await?;
    match store {
        Store::Memory => {
            let size = Size { keys: options.max_keys()?, large_keys: options.max_large_keys()? };
            let store = MemoryStore::new(size).map_err(|error| Failure::store(error.to_string()))?;
            tracing::info!(
                keys = size.keys,
                bytes = store.table_bytes(),
                "counters are in this process's memory: run only one, and expect them to be gone when it ends"
            );
            run(listener, Service::new(store, settings, tokens, rules_off), tls).await
        }
        Store::Redis(url) => {
            let store = connect(&url, options).await?;
            run(listener, Service::new(store, settings, tokens, rules_off), tls).await
        }
    }
}

async fn run<S: tidegate_counter::store::Store>(
    listener: TcpListener,
    service: Service<S>,
    tls: Option<Tls>,
) -> Result<(), Failure> {
    let no_signals = |error| Failure::other(format!("no signals can be heard: {error}"));
    let mut terminate = signal(SignalKind::terminate()).map_err(no_signals)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(no_signals)?;
    let mut told = async || {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    };
    let address = listener.local_addr().map_err(|error| Failure::listen(error.to_string()))?;
    tracing::info!(%address, tls = tls.is_some(), "listening");
    // For whoever started this and must know the port.
    crate::print(&format!("listening on {address}\n"))?;
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let serving = http::run(listener, service, tls, async {
        let _ = stopped.await;
    });
    tokio::pin!(serving);
    tokio::select! {
        () = &mut serving => {}
        () = told() => {
            let _ = stop.send(());
            tokio::select! {
                () = &mut serving => {}
                () = told() => {
                    return Err(Failure::other("told to stop twice: what was not answered yet is cut off"));
                }
            }
        }
    }
    tracing::info!("stopped");
    Ok(())
}

async fn connect(url: &str, options: &ServeOptions) -> Result<RedisStore, Failure> {
    let mut redis = RedisOptions::from_url(url).map_err(|why| Failure::usage(format!("store: {why}")))?;
    if let Some(prefix) = &options.redis_prefix {
        redis = redis.with_prefix(prefix).map_err(|why| Failure::usage(format!("redis-prefix: {why}")))?;
    }
    if let Some(path) = &options.redis_ca {
        let pem = std::fs::read(path)
            .map_err(|why| Failure::file(format!("redis-ca: {}: cannot be read: {why}", path.display())))?;
        redis = redis.with_ca(pem);
    }
    let address = redis.address();
    let failure = |why: NotConnected| {
        let advice = match why.cause {
            Cause::Password => "correct the user and password given with --store",
            Cause::Rights => "give the user the commands and keys that docs/redis.md lists",
            Cause::Certificate => {
                "give who signed the server's certificate with --redis-ca, or correct the address"
            }
            Cause::Server => "start it, or correct the address given with --store",
        };
        Failure::store(format!("the store at {address} cannot be used: {why}; {advice}"))
    };
    let store = RedisStore::connect(&redis).await.map_err(failure)?;
    if let Err(error) = store.ready().await {
        tracing::warn!(%error, "Redis is there, but takes nothing now");
    }
    tracing::info!(%address, "counters are on Redis: any number of services may share it");
    Ok(store)
}

async fn listen(options: &ServeOptions, tokens: &Tokens) -> Result<TcpListener, Failure> {
    let address = options.listen.unwrap_or(LISTEN_DEFAULT);
    if tokens.is_none() {
        if !address.ip().is_loopback() {
            return Err(Failure::usage(format!(
                "without a token only this machine may call, and {address} is open to others; give --token-file or \
                 {TOKEN_VARIABLE}, or listen on 127.0.0.1"
            )));
        }
        tracing::warn!("no token is asked for: only this machine may call");
    }
    let failure = |error: std::io::Error| {
        let advice = match error.kind() {
            std::io::ErrorKind::AddrInUse => "another program listens there; stop it, or choose another port",
            std::io::ErrorKind::PermissionDenied => "choose a port above 1023",
            _ => "choose an address of this machine",
        };
        Failure::listen(format!("cannot listen on {address}: {error}; {advice} with --listen"))
    };
    TcpListener::bind(address).await.map_err(failure)
}

fn tokens(options: &ServeOptions) -> Result<Tokens, Failure> {
    let variable = std::env::var(TOKEN_VARIABLE).ok().filter(|token| !token.is_empty());
    match (&options.token_file, variable) {
        (Some(_), Some(_)) => {
            Err(Failure::usage(format!("both token-file and {TOKEN_VARIABLE} are given; keep one")))
        }
        (Some(path), None) => {
            Tokens::from_file(path).map_err(|error| Failure::file(format!("token-file: {error}")))
        }
        (None, Some(token)) => {
            Tokens::fixed(&token).map_err(|why| Failure::usage(format!("{TOKEN_VARIABLE} {why}")))
        }
        (None, None) => Ok(Tokens::none()),
    }
}

fn tls(options: &ServeOptions) -> Result<Option<Tls>, Failure> {
    match (&options.tls_cert, &options.tls_key) {
        (None, None) => Ok(None),
        (Some(certificates), Some(key)) => Tls::from_files(certificates, key)
            .map(Some)
            .map_err(|error| Failure::file(format!("TLS: {error}"))),
        _ => Err(Failure::usage("tls-cert and tls-key belong together; give both or neither")),
    }
}

fn settings(options: &ServeOptions) -> Result<Settings, Failure> {
    let defaults = Settings::default();
    let number = |name, value: Option<usize>, default| within(name, value.unwrap_or(default), 1, NUMBER_MAX);
    let time = |span: Option<crate::options::Span>, default: Duration| span.map_or(default, |span| span.0);
    Ok(Settings {
        connections_max: number("max-connections", options.max_connections, defaults.connections_max)?,
        requests_max: number("max-requests", options.max_requests, defaults.requests_max)?,
        head_time_max: time(options.head_time, defaults.head_time_max),
        body_time_max: time(options.body_time, defaults.body_time_max),
        idle_time_max: time(options.idle_time, defaults.idle_time_max),
        take_time_max: time(options.take_time, defaults.take_time_max),
        stop_time_max: time(options.stop_time, defaults.stop_time_max),
    })
}

fn start_logs(options: &ServeOptions) {
    let level = match options.log_level.unwrap_or(LogLevel::Info) {
        LogLevel::Error => Level::ERROR,
        LogLevel::Warn => Level::WARN,
        LogLevel::Info => Level::INFO,
        LogLevel::Debug => Level::DEBUG,
    };
    let logs =
        tracing_subscriber::fmt().with_max_level(level).with_writer(std::io::stderr).with_target(false);
    match options.log.unwrap_or(LogForm::Text) {
        LogForm::Text => logs.with_ansi(std::io::IsTerminal::is_terminal(&std::io::stderr())).init(),
        LogForm::Json => logs.json().flatten_event(true).init(),
    }
}
