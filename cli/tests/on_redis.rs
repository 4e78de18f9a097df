//! `tidegate serve` on Redis: several processes share one server, and what they do when it is full or frozen.

#[path = "../../counter/tests/redis/server.rs"]
mod server;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use server::Server;

/// A service that ends with the test.
struct Serving {
    child: Child,
    address: SocketAddr,
}

impl Serving {
    fn on(server: &Server) -> Self {
        Self::on_with(server, &[])
    }

    fn on_with(server: &Server, args: &[&str]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
        for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("TIDEGATE_")) {
            command.env_remove(name);
        }
        command.args(["serve", "--listen", "127.0.0.1:0", "--store", &server.url()]).args(args);
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

    fn client(&self) -> Client {
        Client(BufReader::new(TcpStream::connect(self.address).expect("it listens")))
    }

    /// Ends it as a crash does.
    fn kill(mut self) {
        self.child.kill().expect("it runs");
        self.child.wait().expect("it ends");
    }

    fn memory_kb(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).expect("Linux");
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("its memory");
        line.trim().trim_end_matches(" kB").parse().expect("kilobytes")
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            let mut said = String::new();
            let _ = self.child.stderr.take().expect("piped").read_to_string(&mut said);
            eprintln!("the service said:\n{said}");
        }
    }
}

/// One connection, kept open.
struct Client(BufReader<TcpStream>);

impl Client {
    fn send(&mut self, method: &str, path: &str, body: &str) {
        let head = format!("{method} {path} HTTP/1.1\r\nhost: t\r\ncontent-type: application/json\r\n");
        let request = format!("{head}content-length: {}\r\n\r\n{body}", body.len());
        self.0.get_mut().write_all(request.as_bytes()).expect("sent");
    }

    fn receive(&mut self) -> (u16, String) {
        let (mut line, mut length, mut status) = (String::new(), 0, 0);
        loop {
            line.clear();
            self.0.read_line(&mut line).expect("a line");
            let lower = line.to_ascii_lowercase();
            if let Some(code) = lower.strip_prefix("http/1.1 ") {
                status = code[..3].parse().expect("a status");
            } else if let Some(bytes) = lower.strip_prefix("content-length:") {
                length = bytes.trim().parse().expect("a length");
            } else if line.trim().is_empty() {
                break;
            }
        }
        let mut body = vec![0; length];
        self.0.read_exact(&mut body).expect("a body");
        (status, String::from_utf8(body).expect("text"))
    }

    fn take(&mut self, body: &str) -> (u16, String) {
        self.send("POST", "/v1/take", body);
        self.receive()
    }

    /// What was taken by each take of the first group.
    fn taken(&mut self, body: &str) -> Vec<u64> {
        let (status, body) = self.take(body);
        assert_eq!(status, 200, "{body}");
        let answer: serde_json::Value = serde_json::from_str(&body).expect("JSON");
        let takes = answer["groups"][0]["takes"].as_array().expect("takes");
        takes.iter().map(|take| take["taken"].as_u64().expect("a number")).collect()
    }

    fn status_of(&mut self, path: &str) -> u16 {
        self.send("GET", path, "");
        self.receive().0
    }
}

fn batch(takes: &[(&str, &str)], more: &str) -> String {
    let take = |(limit, key): &(&str, &str)| format!(r#"{{"rule":"r","limit":"{limit}","key":"{key}"}}"#);
    let takes: Vec<String> = takes.iter().map(take).collect();
    format!(r#"{{{more}"groups":[{{"takes":[{}]}}]}}"#, takes.join(","))
}

fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < Duration::from_secs(30), "never: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn two_services_on_one_redis_admit_exactly_a_thousand() {
    let server = Server::start();
    let services = [Serving::on(&server), Serving::on(&server)];
    let body = batch(&[("1000/700d", "ana")], "");
    let taken: u64 = std::thread::scope(|scope| {
        let connections: Vec<_> = (0..64)
            .map(|connection| {
                let (mut client, body) = (services[connection % 2].client(), &body);
                scope.spawn(move || (0..20).map(|_| client.taken(body)[0]).sum::<u64>())
            })
            .collect();
        connections.into_iter().map(|connection| connection.join().expect("no panic")).sum()
    });
    assert_eq!(taken, 1_000, "of 1,280 that asked");
}

#[test]
fn a_denied_limit_leaves_the_other_of_its_group_untouched() {
    let server = Server::start();
    let services = [Serving::on(&server), Serving::on(&server)];
    let body = batch(&[("1000/700d", "wide"), ("10/700d", "narrow")], "");
    std::thread::scope(|scope| {
        for connection in 0..16 {
            let (mut client, body) = (services[connection % 2].client(), &body);
            scope.spawn(move || {
                for _ in 0..10 {
                    let taken = client.taken(body);
                    assert_eq!(taken[0], taken[1], "all or none");
                }
            });
        }
    });
    let (_, answer) = services[0].client().take(&batch(&[("1000/700d", "wide")], ""));
    assert!(answer.contains(r#""remaining":989"#), "ten of 160 were charged, and one now: {answer}");
}

/// The answer is lost with the service that made it; another gives the same one.
#[test]
fn a_retry_after_the_service_died_counts_once() {
    let server = Server::start();
    let body =
        batch(&[("1000/700d", "ana")], r#""sender":{"proxy":"00000000000000a7","vm":3,"sequence":41},"#);
    let first = Serving::on(&server);
    // It stays connected: a service may drop the request of a client that left.
    let mut lost = first.client();
    lost.send("POST", "/v1/take", &body);
    let counters = || server.run::<Vec<String>>("KEYS tidegate:c:*").len();
    eventually("the take is counted", || counters() == 1);
    first.kill();
    let second = Serving::on(&server);
    let mut client = second.client();
    let (status, answer) = client.take(&body);
    assert_eq!(status, 200, "{answer}");
    assert!(answer.contains(r#""taken":1"#) && answer.contains(r#""remaining":999"#), "{answer}");
    let groups =
        |answer: &str| serde_json::from_str::<serde_json::Value>(answer).expect("JSON")["groups"].clone();
    assert_eq!(groups(&client.take(&body).1), groups(&answer), "the same answer again");
    let (_, other) = client.take(&batch(&[("1000/700d", "ana")], ""));
    assert!(other.contains(r#""remaining":998"#), "counted once: {other}");
}

/// A full server is told as "Bad Request", and health stays green.
#[test]
fn fault_13_a_full_redis_is_no_fault_of_the_caller() {
    let server = Server::start_with(&["--maxmemory-policy", "noeviction"]);
    let service = Serving::on(&server);
    let mut client = service.client();
    let body = batch(&[("1000/700d", "ana")], "");
    let _: String = server.run("CONFIG SET maxmemory 1");
    // One that starts meanwhile says the same: the server is there.
    let late = Serving::on(&server);
    for client in [&mut client, &mut late.client()] {
        let (status, answer) = client.take(&body);
        assert!(status == 503 && answer.contains("no room"), "{status} {answer}");
        eventually("health is told", || client.status_of("/readyz") == 503);
        assert_eq!(client.status_of("/healthz"), 200);
    }
    let _: String = server.run("CONFIG SET maxmemory 0");
    for client in [&mut client, &mut late.client()] {
        eventually("it is ready again", || client.status_of("/readyz") == 200);
        assert_eq!(client.taken(&body), [1]);
    }
}

/// A frozen server makes requests and memory pile up, and charges them when it is back.
#[test]
fn fault_11_a_frozen_redis_costs_bounded_memory_and_charges_nobody_who_left() {
    let server = Server::start();
    let service = Serving::on(&server);
    let patient = batch(&[("100000/700d", "ana")], "");
    assert_eq!(service.client().taken(&patient), [1]);
    let before_kb = service.memory_kb();
    server.freeze();
    // So large that all of them together would be seen: 30 kB each on the way to the server.
    let keys: Vec<String> = (0..256).map(|key| format!("key-{key:0>100}")).collect();
    let takes = ["ana"].into_iter().chain(keys.iter().map(String::as_str));
    let takes: Vec<_> = takes.map(|key| ("100000/700d", key)).collect();
    let hurried = batch(&takes, r#""wait_ms":20,"#);
    std::thread::scope(|scope| {
        for _ in 0..96 {
            let (mut client, hurried) = (service.client(), &hurried);
            scope.spawn(move || {
                for _ in 0..60 {
                    let (status, body) = client.take(hurried);
                    assert!(status == 503 || status == 504, "{status} {body}");
                }
            });
        }
    });
    let mut client = service.client();
    eventually("health tells the truth", || client.status_of("/readyz") == 503);
    // By then the time of all that were sent is over.
    std::thread::sleep(Duration::from_millis(100));
    let grown_kb = service.memory_kb().saturating_sub(before_kb);
    assert!(grown_kb < 80 * 1024, "{grown_kb} kB more after 5,760 requests that nobody answered");
    server.thaw();
    eventually("it is ready again", || client.status_of("/readyz") == 200);
    let (_, answer) = client.take(&patient);
    assert!(answer.contains(r#""remaining":99998"#), "only who got an answer was charged: {answer}");
}

/// A killed server: requests fail at once, and go on when it is back.
#[test]
fn fault_12_a_killed_redis_blocks_nobody() {
    let mut server = Server::start();
    let service = Serving::on(&server);
    let body = batch(&[("1000/700d", "ana")], "");
    let mut client = service.client();
    assert_eq!(client.taken(&body), [1]);
    server.kill();
    let is_told = |(status, answer): &(u16, String)| *status == 503 && answer.contains("problem:unreachable");
    eventually("takes say that the store is gone", || is_told(&client.take(&body)));
    for _ in 0..200 {
        let told = client.take(&body);
        assert!(is_told(&told), "{told:?}");
    }
    assert_eq!(client.status_of("/readyz"), 503);
    server.restart();
    eventually("it is ready again", || client.status_of("/readyz") == 200);
    assert_eq!(client.taken(&body), [1]);
}

/// What is said of a server that cannot be used names what is to be changed, at once where waiting mends nothing.
#[test]
fn a_redis_that_refuses_is_told_by_what_it_refuses() {
    let server = Server::start();
    let _: String = server.run("ACL SETUSER counter on >s3cret ~tidegate:* +@all -evalsha");
    let serve = |user: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
        let store = format!("redis://{user}@{}", server.address());
        command.args(["serve", "--listen", "127.0.0.1:0"]).env("TIDEGATE_STORE", store);
        command.env_remove("TIDEGATE_TOKEN").output().expect("it runs")
    };
    for (user, advice) in [
        ("counter:wr0ng", "correct the user and password given with --store"),
        ("counter:s3cret", "give the user the commands and keys that docs/redis.md lists"),
    ] {
        let output = serve(user);
        let said = String::from_utf8(output.stderr).expect("text");
        assert_eq!(output.status.code(), Some(4), "{said}");
        assert!(said.contains(advice) && !said.contains("wr0ng") && !said.contains("s3cret"), "{said}");
    }
}

#[test]
fn a_prefix_keeps_two_fleets_apart() {
    let server = Server::start();
    let services = [Serving::on(&server), Serving::on_with(&server, &["--redis-prefix", "second"])];
    for service in &services {
        assert_eq!(service.client().taken(&batch(&[("1/700d", "ana")], "")), [1]);
    }
    let keys: Vec<String> = server.run("KEYS second:c:*");
    assert_eq!(keys.len(), 1);
}
