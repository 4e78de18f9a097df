//! What the server's errors mean for a batch, and for the connection.

use std::fmt;

use redis::{ErrorKind, RedisError};

use crate::store::StoreError;

/// How a server says that a script may not call what it calls: 7.0, and later ones.
const SAYS_RIGHTS: [&str; 2] = ["The user executing the script can't", "ACL failure in script"];

/// Why a server was not connected to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotConnected {
    /// What is to be changed.
    pub cause: Cause,
    /// What a take would have been told.
    pub error: StoreError,
}

/// What is to be changed before a server can be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The user or the password.
    Password,
    /// What the user may do.
    Rights,
    /// The server's certificate, or who is trusted to sign it.
    Certificate,
    /// The server, or the address that leads to it.
    Server,
}

impl Cause {
    /// Whether another attempt would fail in the same way.
    pub(super) fn is_final(self) -> bool {
        self != Self::Server
    }
}

impl fmt::Display for NotConnected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl std::error::Error for NotConnected {}

impl NotConnected {
    pub(super) fn of(error: &RedisError) -> Self {
        let Trouble { error, cause, .. } = Trouble::of(error);
        Self { cause, error }
    }
}

impl From<StoreError> for NotConnected {
    fn from(error: StoreError) -> Self {
        Self { cause: Cause::Server, error }
    }
}

/// An error, what to do about it, and whether the connection is of no use after it.
#[derive(Debug)]
pub(super) struct Trouble {
    pub(super) error: StoreError,
    pub(super) cause: Cause,
    pub(super) ends_connection: bool,
}

impl Trouble {
    pub(super) fn of(error: &RedisError) -> Self {
        let said = error.to_string();
        let stays = |error| Self { error, cause: Cause::Server, ends_connection: false };
        let ends = |error| Self { ends_connection: true, ..stays(error) };
        let refused = || Self {
            cause: Cause::Password,
            ..ends(unreachable(&format!("Redis refuses this user or password: {said}")))
        };
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
            Some("NOAUTH" | "WRONGPASS") => refused(),
            // The user's rights can be changed while the connection stands.
            Some("NOPERM") => Self {
                cause: Cause::Rights,
                ..stays(unreachable(&format!("Redis does not let this user do what is needed: {said}")))
            },
            Some("MISCONF" | "NOREPLICAS") => stays(unreachable(&format!("Redis refuses writes: {said}"))),
            Some(_) if !error.is_unrecoverable_error() && !error.is_io_error() => {
                // A script that may not call what it needs says so in its own error.
                let is_of_rights = SAYS_RIGHTS.iter().any(|text| said.contains(text));
                let error = if is_of_rights { unreachable(&said) } else { StoreError::Broken(said) };
                let cause = if is_of_rights { Cause::Rights } else { Cause::Server };
                Self { cause, ..stays(error) }
            }
            None if said.contains("certificate") => {
                Self { cause: Cause::Certificate, ..ends(unreachable(&said)) }
            }
            _ => ends(unreachable(&said)),
        }
    }
}

pub(super) fn unreachable(why: &str) -> StoreError {
    StoreError::Unreachable(why.to_owned())
}
