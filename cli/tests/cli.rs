//! The program as its users run it.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");

fn tidegate(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    // What whoever runs the tests has in the environment is no matter here.
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("TIDEGATE_")) {
        command.env_remove(name);
    }
    command.args(args);
    command
}

/// Runs to the end; what it printed and its exit code.
fn run(command: &mut Command) -> (String, String, Option<i32>) {
    let Output { status, stdout, stderr } = command.output().expect("it runs");
    let text = |bytes| String::from_utf8(bytes).expect("text");
    (text(stdout), text(stderr), status.code())
}

/// A service that ends with the test.
struct Serving {
    child: Child,
    address: SocketAddr,
}

impl Serving {
    fn start(command: &mut Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it runs");
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("piped")).read_line(&mut line).expect("a line");
        let address = line.trim_end().strip_prefix("listening on ").and_then(|address| address.parse().ok());
        let Some(address) = address else {
            let _ = child.kill();
            panic!("{line:?} {:?}", child.wait_with_output());
        };
        Self { child, address }
    }

    fn curl(&self, args: &[&str]) -> String {
        let url = format!("http://{}{}", self.address, args[0]);
        let output = Command::new("curl").args(["-sS", &url]).args(&args[1..]).output().expect("curl runs");
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).expect("text")
    }

    /// Stops it as an init system does; what it logged and its exit code.
    fn stop(self) -> (String, Option<i32>) {
        self.signal("-TERM");
        self.ended()
    }

    fn signal(&self, signal: &str) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args([signal, &pid]).status().expect("kill runs").success());
    }

    /// Waits for its end; what it logged and its exit code.
    fn ended(mut self) -> (String, Option<i32>) {
        let mut stderr = String::new();
        let mut pipe = self.child.stderr.take().expect("piped");
        pipe.read_to_string(&mut stderr).expect("text");
        (stderr, self.child.wait().expect("its end").code())
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

struct TempFile(PathBuf);

impl TempFile {
    fn new(name: &str, text: &str) -> Self {
        let path = std::env::temp_dir().join(format!("tidegate-cli-{}-{name}", std::process::id()));
        std::fs::write(&path, text).expect("a file");
        Self(path)
    }

    fn path(&self) -> &str {
        self.0.to_str().expect("text")
    }
}

impl Drop for TempFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

#[test]
fn check_says_all_that_is_wrong() {
    let good =
        TempFile::new("good.json", r#"{"rules": [{"name": "r", "key": ["client_ip"], "limits": ["1/s"]}]}"#);
    assert_eq!(
        run(&mut tidegate(&["check", good.path()])),
        (format!("{}: fine, 1 rule\n", good.path()), String::new(), Some(0))
    );
    let bad = Path::new(ROOT).join("config-schema/tests/bad/many_errors");
    let json = bad.with_extension("json");
    let expected = std::fs::read_to_string(bad.with_extension("txt")).expect("the errors");
    let (stdout, stderr, code) = run(&mut tidegate(&["check", json.to_str().expect("text")]));
    assert_eq!((stdout.as_str(), code), ("", Some(1)));
    assert_eq!(stderr.trim_end(), format!("tidegate: {}: {}", json.display(), expected.trim_end()));
    let (_, stderr, code) = run(&mut tidegate(&["check", "/does/not/exist"]));
    assert_eq!(code, Some(1));
    assert!(stderr.starts_with("tidegate: /does/not/exist: cannot be read: "), "{stderr}");
}

#[test]
fn check_reads_the_standard_input() {
    let mut child =
        tidegate(&["check", "-"]).stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it runs");
    child.stdin.take().expect("piped").write_all(b"{}").expect("written");
    let output = child.wait_with_output().expect("its end");
    assert_eq!(output.status.code(), Some(1));
    let stderr = String::from_utf8(output.stderr).expect("text");
    assert!(stderr.starts_with("tidegate: standard input: rules: is missing"), "{stderr}");
}

#[test]
fn schema_is_the_golden_file() {
    let golden = Path::new(ROOT).join("config-schema/tidegate.schema.json");
    let golden = std::fs::read_to_string(golden).expect("the schema");
    assert_eq!(run(&mut tidegate(&["schema"])), (golden, String::new(), Some(0)));
}

#[test]
fn serve_says_what_is_wrong_with_its_options() {
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let taken = taken.local_addr().expect("an address").to_string();
    let empty = TempFile::new("no-token", "\n");
    let misspelt = TempFile::new("misspelt.toml", "max-key = 5\n");
    let bad_value = TempFile::new("bad.json", r#"{"head-time": "5"}"#);
    let free = ["--listen", "127.0.0.1:0"];
    let cases: &[(&[&str], i32, &str)] = &[
        (
            &["--listen", &taken],
            3,
            "another program listens there; stop it, or choose another port with --listen",
        ),
        (
            &["--listen", "0.0.0.0:0"],
            2,
            "without a token only this machine may call, and 0.0.0.0:0 is open to others",
        ),
        (&["--listen", "[::]:0"], 2, "without a token only this machine may call"),
        (&["--store", "redis://127.0.0.1:1"], 4, "the store at 127.0.0.1:1 cannot be used"),
        (&["--store", "redis-cluster://h"], 2, "Redis Cluster is not supported yet"),
        (&["--store", "postgres://u:secret@h"], 2, "write memory, or redis://"),
        (&["--token-file", empty.path()], 5, "has no token; write one on each line"),
        (&["--token-file", "/does/not/exist"], 5, "token-file: /does/not/exist: cannot be opened"),
        (&["--rules-off", "/does/not/exist"], 5, "rules-off: /does/not/exist: cannot be opened"),
        (&["--tls-cert", empty.path()], 2, "tls-cert and tls-key belong together"),
        (&["--tls-cert", empty.path(), "--tls-key", empty.path()], 5, "has no certificate"),
        (&["--max-keys", "7"], 2, "max-keys: must be from 512 to 1000000000, not 7"),
        (&["--idle-time", "5"], 2, "write a whole number and a unit"),
        (&["--config", misspelt.path()], 2, "unknown field `max-key`"),
        (&["--config", bad_value.path()], 2, "write a whole number and a unit"),
    ];
    for (args, expected, text) in cases {
        let mut command = tidegate(&["serve"]);
        if !args.contains(&"--listen") {
            command.args(free);
        }
        let (_, stderr, code) = run(command.args(*args));
        assert_eq!(code, Some(*expected), "{args:?}: {stderr}");
        assert!(stderr.contains(text), "{args:?}: {stderr}");
        assert!(!stderr.contains("panicked") && !stderr.contains("RUST_BACKTRACE"), "{stderr}");
    }
    let mut both = tidegate(&["serve", "--token-file", empty.path()]);
    assert_eq!(run(both.env("TIDEGATE_TOKEN", "t")).2, Some(2));
}

/// A password is in no message and in no help, however the option with it is wrong.
#[test]
fn a_password_is_never_shown() {
    let unclosed = TempFile::new("unclosed.toml", "log = \"json\"\nstore = \"redis://u:s3cret@h\n");
    let misplaced = TempFile::new("misplaced.toml", "max-keys = \"redis://u:s3cret@h\"\n");
    let misplaced_json = TempFile::new("misplaced.json", r#"{"max-keys": "redis://u:s3cret@h"}"#);
    for (args, expected) in [
        (&["--store", "postgres://u:s3cret@h"][..], "store: write memory, or redis://"),
        (&["--store", "redis://u:s3cret@h:port"], "this is no address of a Redis server"),
        (&["redis://u:s3cret@h"], "unexpected argument"),
        (&["--max-keys", "redis://u:s3cret@h"], "invalid value"),
        (&["--config", unclosed.path()], "line 2: "),
        (&["--config", misplaced.path()], "line 1: "),
        (&["--config", misplaced_json.path()], "line 1"),
    ] {
        let (stdout, stderr, code) = run(tidegate(&["serve", "--listen", "127.0.0.1:0"]).args(args));
        assert_eq!((stdout.as_str(), code), ("", Some(2)), "{args:?}: {stderr}");
        assert!(stderr.contains(expected) && !stderr.contains("s3cret"), "{args:?}: {stderr}");
    }
    let mut wrong = tidegate(&["serve", "--listen", "127.0.0.1:0"]);
    let (_, stderr, code) = run(wrong.env("TIDEGATE_STORE", "redis//u:s3cret@h"));
    assert!(code == Some(2) && !stderr.contains("s3cret"), "{stderr}");
    for help in ["--help", "-h"] {
        let mut help = tidegate(&["serve", help]);
        help.env("TIDEGATE_STORE", "redis://u:s3cret@h").env("TIDEGATE_TOKEN", "s3cret");
        let (stdout, stderr, code) = run(&mut help);
        assert_eq!(code, Some(0), "{stderr}");
        assert!(stdout.contains("TIDEGATE_STORE") && !stdout.contains("s3cret"), "{stdout}");
    }
}

/// A batch of which half has come; its other half, and the connection.
fn half_a_batch(serving: &Serving) -> (std::net::TcpStream, &'static str) {
    let body = r#"{"groups":[{"takes":[{"rule":"r","limit":"2/1h","key":"ana"}]}]}"#;
    let mut stream = std::net::TcpStream::connect(serving.address).expect("a connection");
    let head = "POST /v1/take HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-type: application/json\r\n";
    let (first, rest) = body.split_at(20);
    write!(stream, "{head}content-length: {}\r\n\r\n{first}", body.len()).expect("sent");
    eventually("it is being read", || serving.curl(&["/metrics"]).contains("requests_in_flight 1\n"));
    (stream, rest)
}

fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = std::time::Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < Duration::from_mins(1), "never: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn a_batch_under_way_is_answered_after_sigterm() {
    let serving = Serving::start(&mut tidegate(&["serve", "--listen", "127.0.0.1:0"]));
    let (mut stream, rest) = half_a_batch(&serving);
    let address = serving.address;
    serving.signal("-TERM");
    eventually("it accepts no more", || std::net::TcpStream::connect(address).is_err());
    stream.write_all(rest.as_bytes()).expect("sent");
    let mut reply = String::new();
    stream.read_to_string(&mut reply).expect("a reply");
    assert!(reply.starts_with("HTTP/1.1 200") && reply.contains(r#""taken":1"#), "{reply}");
    let (logs, code) = serving.ended();
    assert_eq!(code, Some(0), "{logs}");
}

#[test]
fn a_second_sigterm_ends_it_at_once() {
    let args = ["serve", "--listen", "127.0.0.1:0", "--stop-time", "1h", "--body-time", "1h"];
    let serving = Serving::start(&mut tidegate(&args));
    let (stream, _) = half_a_batch(&serving);
    let address = serving.address;
    serving.signal("-TERM");
    eventually("it accepts no more", || std::net::TcpStream::connect(address).is_err());
    serving.signal("-TERM");
    let (logs, code) = serving.ended();
    assert!(code == Some(1) && logs.contains("told to stop twice"), "{code:?} {logs}");
    drop(stream);
}

/// Each option sets what it says, and no other: a head that takes its time is cut off without a word, a body is told.
#[test]
fn times_and_maxima_are_what_they_say() {
    let take = ["/v1/take", "-H", "content-type: application/json", "-d", r#"{"groups": []}"#];
    let start = |args: &[&str]| {
        Serving::start(tidegate(&["serve", "--listen", "127.0.0.1:0", "--threads", "1"]).args(args))
    };
    let said_to = |serving: &Serving, text: &str| {
        let mut stream = std::net::TcpStream::connect(serving.address).expect("a connection");
        stream.set_read_timeout(Some(Duration::from_mins(1))).expect("a time");
        stream.write_all(text.as_bytes()).expect("sent");
        let mut said = String::new();
        match stream.read_to_string(&mut said) {
            // Cut off is what it may be, but not left to wait.
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                panic!("{text:?} is not answered")
            }
            _ => said,
        }
    };
    let body =
        "POST /v1/take HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: 9\r\n\r\n{";
    let quick_head = start(&["--head-time", "50ms", "--body-time", "1h", "--idle-time", "1h"]);
    assert_eq!(said_to(&quick_head, "POST /v1"), "", "cut off");
    let quick_body = start(&["--head-time", "1h", "--body-time", "50ms", "--idle-time", "1h"]);
    assert!(said_to(&quick_body, body).contains("slow_body"), "told");
    let quick_idle = start(&["--head-time", "50ms", "--body-time", "1h", "--idle-time", "100ms"]);
    assert!(
        said_to(&quick_idle, "GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n").ends_with("ok\n"),
        "closed later"
    );
    assert!(quick_idle.curl(&["/metrics"]).contains("connections_closed_total{why=\"idle\"} 1\n"));
    let no_time = start(&["--take-time", "1ms", "--body-time", "1h"]);
    let (mut stream, rest) = half_a_batch(&no_time);
    std::thread::sleep(Duration::from_millis(20));
    stream.write_all(rest.as_bytes()).expect("sent");
    let mut reply = String::new();
    stream.read_to_string(&mut reply).expect("a reply");
    assert!(reply.contains("problem:expired"), "{reply}");
    let few = start(&["--max-requests", "1"]);
    let (_stream, _) = half_a_batch(&few);
    assert!(few.curl(&take).contains("busy"), "one request at a time");
    let few = start(&["--max-connections", "1"]);
    let _first = std::net::TcpStream::connect(few.address).expect("a connection");
    assert!(few.curl(&["/healthz"]).contains("too_many_connections"), "one connection at a time");
    let stops = start(&["--stop-time", "50ms", "--body-time", "1h"]);
    let (_stream, _) = half_a_batch(&stops);
    let (logs, code) = stops.stop();
    assert!(code == Some(0) && logs.contains("the rest is cut off"), "{logs}");
}

#[test]
fn a_token_file_and_a_certificate_are_used() {
    let token = TempFile::new("token", "s3cret\n");
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).expect("a certificate");
    let cert = TempFile::new("cert.pem", &made.cert.pem());
    let key = TempFile::new("key.pem", &made.signing_key.serialize_pem());
    let mut command = tidegate(&["serve", "--listen", "127.0.0.1:0", "--token-file", token.path()]);
    let serving = Serving::start(command.args(["--tls-cert", cert.path(), "--tls-key", key.path()]));
    let take = |token: &str| {
        let url = format!("https://localhost:{}/v1/take", serving.address.port());
        let header = format!("authorization: Bearer {token}");
        let args = ["-sS", "--cacert", cert.path(), "-H", "content-type: application/json", "-H", &header];
        let output = Command::new("curl").args(args).args(["-d", r#"{"groups": []}"#, &url]).output();
        String::from_utf8(output.expect("curl runs").stdout).expect("text")
    };
    assert!(take("s3cret").contains(r#""groups":[]"#), "{}", take("s3cret"));
    // A refusal too is read by a client that is still sending, each time.
    for _ in 0..10 {
        assert!(take("other").contains("unauthorized"));
    }
}

/// What `make demo-counter` shows is what it says.
#[test]
fn the_demo_runs() {
    let demo = Path::new(ROOT).join("cli/demo.sh");
    let mut command = Command::new("bash");
    let (stdout, stderr, code) = run(command.arg(demo).arg(env!("CARGO_BIN_EXE_tidegate")));
    assert_eq!((stderr.as_str(), code), ("", Some(0)), "{stdout}");
    for said in
        [r#""taken":1,"remaining":1"#, r#""retry_after_ms":"#, "limit: ", "tidegate_takes_total", "ready"]
    {
        assert!(stdout.contains(said), "{said} is not in\n{stdout}");
    }
}

#[test]
fn serve_answers_and_ends_when_told() {
    let serving = Serving::start(&mut tidegate(&["serve", "--listen", "127.0.0.1:0"]));
    assert_eq!(serving.curl(&["/readyz"]), "ready\n");
    let (logs, code) = serving.stop();
    assert_eq!(code, Some(0));
    for line in ["no token is asked for: only this machine may call", "run only one", "listening", "stopped"]
    {
        assert!(logs.contains(line), "{line} is not in\n{logs}");
    }
}

#[test]
fn options_come_from_flags_before_the_environment_before_a_file() {
    let file = TempFile::new(
        "all.toml",
        "listen = \"127.0.0.1:0\"\nmax-keys = 512\nmax-connections = 7\nlog = \"json\"\ntake-time = \"5s\"\n",
    );
    let keys = |command: &mut Command| {
        let (logs, _) = Serving::start(command).stop();
        let line = logs.lines().find(|line| line.contains("run only one")).expect("the line").to_owned();
        let line: serde_json::Value = serde_json::from_str(&line).expect("JSON logs");
        line["keys"].as_u64().expect("a number")
    };
    let serve = || tidegate(&["serve", "--config", file.path()]);
    assert_eq!(keys(&mut serve()), 512);
    assert_eq!(keys(serve().env("TIDEGATE_MAX_KEYS", "1024")), 1_024);
    assert_eq!(keys(serve().env("TIDEGATE_MAX_KEYS", "1024").args(["--max-keys", "2048"])), 2_048);
    let json = TempFile::new("all.json", r#"{"listen": "127.0.0.1:0", "log": "json", "max-keys": 600}"#);
    assert_eq!(keys(tidegate(&["serve"]).env("TIDEGATE_CONFIG", json.path())), 600);
}

#[test]
fn a_token_opens_other_addresses() {
    let mut command = tidegate(&["serve", "--listen", "0.0.0.0:0", "--threads", "1"]);
    let mut serving = Serving::start(command.env("TIDEGATE_TOKEN", "s3cret"));
    serving.address.set_ip(std::net::IpAddr::from([127, 0, 0, 1]));
    let take = ["/v1/take", "-H", "content-type: application/json", "-d", r#"{"groups": []}"#];
    assert!(serving.curl(&take).contains(r#""status": 401"#));
    let with_token = [&take[..], &["-H", "authorization: Bearer s3cret"]].concat();
    assert!(serving.curl(&with_token).contains(r#""groups":[]"#));
    let (logs, _) = serving.stop();
    assert!(!logs.contains("s3cret"), "the token is in no log");
}

/// What the README shows is what a reader gets.
#[test]
fn the_readme_is_true() {
    let readme = std::fs::read_to_string(Path::new(ROOT).join("README.md")).expect("the README");
    let section = readme.split("\n## ").find(|section| section.starts_with("Counter\n")).expect("a section");
    let block = |language: &str| {
        let (_, rest) = section.split_once(&format!("```{language}\n")).expect("a block");
        rest.split_once("\n```").expect("its end").0.to_owned()
    };
    let serving = Serving::start(&mut tidegate(&["serve", "--listen", "127.0.0.1:0"]));
    let command = block("sh").replace("localhost:7070", &serving.address.to_string());
    let (_, call) = command.split_once("curl").expect("a call");
    let output = Command::new("sh").arg("-c").arg(format!("curl -sS {call}")).output().expect("sh runs");
    let parse = |text: &str| -> serde_json::Value {
        serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
    };
    let answer = parse(&String::from_utf8(output.stdout).expect("text"));
    // The clock and what was drawn differ; all else is to the letter.
    let masked = |mut answer: serde_json::Value| {
        answer["now_ms"] = 0.into();
        answer["epoch"] = "".into();
        for group in answer["groups"].as_array_mut().expect("a list") {
            for take in group["takes"].as_array_mut().expect("a list") {
                take["receipt"] = (take["receipt"] != 0).into();
                take["reset_ms"] = (take["reset_ms"] != 0).into();
            }
        }
        answer
    };
    assert_eq!(masked(answer), masked(parse(&block("text"))));
}

#[test]
fn help_is_for_newcomers() {
    let (stdout, _, code) = run(&mut tidegate(&["serve", "--help"]));
    assert_eq!(code, Some(0));
    for text in
        ["127.0.0.1:7070", "TIDEGATE_MAX_KEYS", "Without options it listens on this machine only", "redis://"]
    {
        assert!(stdout.contains(text), "{text} is not in\n{stdout}");
    }
}
