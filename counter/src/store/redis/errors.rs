//! What the server's errors mean for a batch, and for the connection.

use redis::{ErrorKind, RedisError};

use crate::store::StoreError;

/// An error, and whether the connection is of no use after it.
#[derive(Debug)]
pub(super) struct Trouble {
    pub(super) error: StoreError,
    pub(super) ends_connection: bool,
}

impl Trouble {
    pub(super) fn of(error: &RedisError) -> Self {
        let said = error.to_string();
        let stays = |error| Self { error, ends_connection: false };
        let ends = |error| Self { error, ends_connection: true };
        let refused = || ends(unreachable(&format!("Redis refuses this user or password: {said}")));
        match error.code() {
            _ if error.kind() == ErrorKind::AuthenticationFailed => refused(),
            Some("OOM") => stays(StoreError::Full(
                "Redis has reached its maxmemory; give it more, or fewer keys".to_owned(),
            )),
            // After a failover the address may lead to the new master, but only a new connection goes there.
            Some("READONLY") => ends(unreachable("it is a read-only replica")),
            Some("LOADING") => ends(unreachable("Redis is loading its data")),
            Some("MASTERDOWN") => ends(unreachable("it is a replica without its master")),
            Some("BUSY") => stays(unreachable("Redis is busy with somebody's script")),
            Some("NOAUTH" | "WRONGPASS" | "NOPERM") => refused(),
            Some("MISCONF" | "NOREPLICAS") => stays(unreachable(&format!("Redis refuses writes: {said}"))),
            Some(_) if !error.is_unrecoverable_error() && !error.is_io_error() => {
                stays(StoreError::Broken(said))
            }
            _ => ends(unreachable(&said)),
        }
    }
}

pub(super) fn unreachable(why: &str) -> StoreError {
    StoreError::Unreachable(why.to_owned())
}

pub(super) fn is_no_script(error: &RedisError) -> bool {
    error.code() == Some("NOSCRIPT")
}
