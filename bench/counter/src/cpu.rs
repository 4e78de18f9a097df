//! How long a process has been on a core.

use std::time::Duration;

/// The time of all threads of a process, in nanoseconds as the scheduler counts.
pub(crate) fn of(pid: u32) -> Duration {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).expect("a process, on Linux");
    let time = |task: std::fs::DirEntry| -> Option<u64> {
        let text = std::fs::read_to_string(task.path().join("schedstat")).ok()?;
        text.split(' ').next()?.parse().ok()
    };
    Duration::from_nanos(tasks.flatten().filter_map(time).sum())
}
