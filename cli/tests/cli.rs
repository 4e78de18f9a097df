//! The program as its users run it.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

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
    fn stop(mut self) -> (String, Option<i32>) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &pid]).status().expect("kill runs").success());
        let mut stderr = String::new();
        let mut pipe = self.child.stderr.take().expect("piped");
        std::io::Read::read_to_string(&mut pipe, &mut stderr).expect("text");
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
