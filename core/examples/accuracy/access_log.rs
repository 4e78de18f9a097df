//! An access log in the common format: `host ident user [10/Oct/2000:13:55:36 -0700] "GET / HTTP/1.0" 200 1`.

use crate::traffic::Request;
use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufRead, BufReader};

const MONTHS: [&str; 12] =
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

/// Reads the clients' requests, sorted by time; `-` is standard input.
pub(crate) fn read(path: &str) -> io::Result<Vec<Request>> {
    let lines: Box<dyn BufRead> =
        if path == "-" { Box::new(io::stdin().lock()) } else { Box::new(BufReader::new(File::open(path)?)) };
    let mut clients: HashMap<String, u64> = HashMap::new();
    let mut requests = Vec::new();
    for (number, line) in lines.split(b'\n').enumerate() {
        let line = line?;
        let line = String::from_utf8_lossy(&line);
        if line.trim().is_empty() {
            continue;
        }
        let Some((client, at_s)) = parse(&line) else {
            return Err(io::Error::other(format!("line {} is not in the common log format", number + 1)));
        };
        let next = u64::try_from(clients.len()).map_err(io::Error::other)?;
        let client = *clients.entry(client.to_owned()).or_insert(next);
        // The log tells whole seconds; requests of one second are spread over it in their order.
        requests.push(Request { at_ms: at_s * 1_000, client });
    }
    requests.sort_by_key(|request| request.at_ms);
    spread(&mut requests);
    Ok(requests)
}

fn spread(requests: &mut [Request]) {
    for second in requests.chunk_by_mut(|a, b| a.at_ms == b.at_ms) {
        let count = second.len();
        for (index, request) in second.iter_mut().enumerate() {
            request.at_ms += u64::try_from(index * 1_000 / count).unwrap_or(0);
        }
    }
}

fn parse(line: &str) -> Option<(&str, u64)> {
    let (client, rest) = line.split_once(' ')?;
    let (_, rest) = rest.split_once('[')?;
    let (time, _) = rest.split_once(']')?;
    let (date, zone) = time.split_once(' ')?;
    let mut parts = date.split(['/', ':']);
    let mut number = || parts.next();
    let day: u64 = number()?.parse().ok()?;
    let month = number()?;
    let month = MONTHS.iter().position(|name| *name == month)?;
    let mut number = || number()?.parse::<u64>().ok();
    let (year, hour, minute, second) = (number()?, number()?, number()?, number()?);
    let (sign, offset) = zone.split_at_checked(1)?;
    let offset: u64 = offset.parse().ok()?;
    let offset_s = (offset / 100 * 60 + offset % 100) * 60;
    let local_s = days_to(year, month)? * 86_400 + (day - 1) * 86_400 + hour * 3_600 + minute * 60 + second;
    let at_s = if sign == "-" { local_s + offset_s } else { local_s.checked_sub(offset_s)? };
    Some((client, at_s))
}

/// Days from the epoch to the first of a month.
fn days_to(year: u64, month: usize) -> Option<u64> {
    let is_leap =
        |year: u64| year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    let before: u64 = (1970..year).map(|year| if is_leap(year) { 366 } else { 365 }).sum();
    let lengths = [31, if is_leap(year) { 29 } else { 28 }, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let months: u64 = lengths.get(..month)?.iter().sum();
    Some(before + months)
}
