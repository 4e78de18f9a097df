//! Access logs in the common format, `ADDRESS - - [17/May/2015:10:05:03 +0000] "GET /path HTTP/1.1" …`: read, and
//! generated.

use crate::rng::Rng;
use crate::spec::Request;
use std::fmt::Write;

/// A log, read.
#[derive(Debug, Default)]
pub(crate) struct AccessLog {
    /// Milliseconds since the first, and the request; in order.
    pub(crate) requests: Vec<(u64, Request)>,
    /// Lines that are no requests.
    pub(crate) bad_lines: u64,
}

impl AccessLog {
    /// Reads a log. It tells the second only, so requests of one second are spread over it evenly.
    pub(crate) fn read(text: &str) -> Self {
        let mut lines: Vec<(u64, Request)> = Vec::new();
        let mut bad_lines = 0;
        for line in text.lines().filter(|line| !line.is_empty()) {
            match parse(line) {
                Some(read) => lines.push(read),
                None => bad_lines += 1,
            }
        }
        lines.sort_by_key(|(second, _)| *second);
        let first = lines.first().map_or(0, |(second, _)| *second);
        let mut requests = Vec::with_capacity(lines.len());
        for of_second in lines.chunk_by(|(one, _), (other, _)| one == other) {
            let count = of_second.len() as u64;
            for (number, (second, request)) in (0_u64..).zip(of_second) {
                requests.push(((second - first) * 1_000 + number * 1_000 / count, request.clone()));
            }
        }
        Self { requests, bad_lines }
    }

    /// How many different addresses it has.
    pub(crate) fn addresses(&self) -> usize {
        let keys = self.requests.iter().filter_map(|(_, request)| request.headers.first());
        keys.map(|(_, address)| address).collect::<std::collections::BTreeSet<_>>().len()
    }
}

/// The second since the epoch, and the request: its address is its key.
fn parse(line: &str) -> Option<(u64, Request)> {
    let (address, rest) = line.split_once(' ')?;
    let (time, rest) = rest.split_once('[')?.1.split_once(']')?;
    let (_method, rest) = rest.split_once('"')?.1.split_once(' ')?;
    let path = rest.split([' ', '"']).next().filter(|path| path.starts_with('/'))?;
    let mut request = Request::with_key(address);
    if let Ok(address) = address.parse::<std::net::Ipv4Addr>() {
        request.ip = address.octets();
    }
    Some((seconds(time)?, request.at(path)))
}

/// `17/May/2015:10:05:03 +0000` in seconds since the epoch.
fn seconds(time: &str) -> Option<u64> {
    const MONTHS: &str = "JanFebMarAprMayJunJulAugSepOctNovDec";
    let (clock, zone) = time.split_once(' ')?;
    let parts: Vec<&str> = clock.split(['/', ':']).collect();
    let [day, month, year, hour, minute, second] = parts.as_slice() else { return None };
    let number = |text: &str| text.parse::<i64>().ok();
    let month = i64::try_from(MONTHS.find(month).filter(|at| at % 3 == 0)? / 3).ok()? + 1;
    // A year that begins in March ends with the day that leaps.
    let (year, month) = if month > 2 { (number(year)?, month - 3) } else { (number(year)? - 1, month + 9) };
    let days =
        365 * year + year / 4 - year / 100 + year / 400 + (153 * month + 2) / 5 + number(day)? - 719_469;
    let (hours_ahead, minutes_ahead) = zone.split_at_checked(zone.len().checked_sub(2)?)?;
    let sign = if zone.starts_with('-') { -1 } else { 1 };
    let ahead = number(hours_ahead)? * 3_600 + sign * number(minutes_ahead)? * 60;
    let local = days * 86_400 + number(hour)? * 3_600 + number(minute)? * 60 + number(second)?;
    u64::try_from(local - ahead).ok()
}

/// A log of less than an hour: few clients make most of the requests, in sessions.
pub(crate) fn generated(rng: &mut Rng, sessions: u64) -> String {
    let mut log = String::new();
    let mut at_ms = 0;
    for _ in 0..sessions {
        at_ms += rng.waiting(60);
        let rank = rng.below(8) * rng.below(8);
        for page in 0..rng.between(1, 12) {
            at_ms += rng.below(10);
            let (minute, second) = (at_ms / 60_000 % 60, at_ms / 1_000 % 60);
            let path = *rng.pick(&["/", "/a/list", "/a/item", "/b/login"]);
            // Writing to a String does not fail.
            let _ = writeln!(
                log,
                "10.1.0.{rank} - - [18/Nov/2026:10:{minute:02}:{second:02} +0000] \"GET {path}?page={page} HTTP/1.1\" 200 512"
            );
        }
    }
    log
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_those_of_the_calendar() {
        for (time, expected) in [
            ("01/Jan/1970:00:00:00 +0000", 0),
            ("17/May/2015:10:05:03 +0000", 1_431_857_103),
            ("29/Feb/2024:23:59:59 +0000", 1_709_251_199),
            ("01/Mar/2024:01:30:00 +0130", 1_709_251_200),
            ("29/Feb/2024:22:30:00 -0130", 1_709_251_200),
        ] {
            assert_eq!(seconds(time), Some(expected), "{time}");
        }
        assert_eq!(seconds("17/Foo/2015:10:05:03 +0000"), None);
    }

    #[test]
    fn a_log_is_read_in_order_and_what_is_no_request_is_counted() {
        let log = AccessLog::read(
            "10.0.0.2 - - [17/May/2015:10:05:04 +0000] \"GET /b?x=1 HTTP/1.1\" 200 1 \"-\" \"curl\"\n\
             10.0.0.1 - ana [17/May/2015:10:05:03 +0000] \"POST /a HTTP/1.1\" 200 1\n\
             2001:db8::1 - - [17/May/2015:10:05:04 +0000] \"GET /c\" 400 0\n\
             10.0.0.3 - - [17/May/2015:10:05:04 +0000] \"-\" 408 0\n\
             what is this\n",
        );
        let seen: Vec<(u64, &str, &str)> = log
            .requests
            .iter()
            .map(|(at_ms, request)| (*at_ms, request.headers[0].1.as_str(), request.path.as_str()))
            .collect();
        let expected = [(0, "10.0.0.1", "/a"), (1_000, "10.0.0.2", "/b?x=1"), (1_500, "2001:db8::1", "/c")];
        assert_eq!(seen, expected);
        assert_eq!((log.bad_lines, log.addresses()), (2, 3));
    }

    #[test]
    fn a_generated_log_is_one_that_can_be_read() {
        let text = generated(&mut Rng::new(7), 40);
        let log = AccessLog::read(&text);
        assert_eq!((log.requests.len(), log.bad_lines), (text.lines().count(), 0));
        assert!(log.addresses() > 5);
    }
}
