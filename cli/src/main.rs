//! Tidegate's one native program: `serve` runs the counter, `check` reads a config, `schema` prints its JSON Schema.

mod check;
mod failure;
mod options;
mod serve;

use std::io::Write;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use failure::Failure;

/// Rate limits that live in the proxy, and the counter that makes them hold across a fleet.
#[derive(Parser)]
#[command(name = "tidegate", version, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
#[expect(clippy::doc_markdown, reason = "it is shown as plain text, by --help")]
enum Command {
    /// Run the counter: the service that keeps limits across a fleet of proxies
    ///
    /// Without options it listens on this machine only and counts in its own memory. Every option can also be given
    /// in the environment (TIDEGATE_MAX_KEYS for --max-keys) or in a file (--config; max-keys there). What is given
    /// on the command line wins over the environment, and that over the file.
    Serve(Box<options::ServeOptions>),
    /// Say all that is wrong with a config, or that nothing is
    Check {
        /// The config, in JSON; - is the standard input
        file: std::path::PathBuf,
    },
    /// Print the JSON Schema of the config language
    Schema,
}

fn main() -> ExitCode {
    let cli = Cli::try_parse().unwrap_or_else(|error| {
        let text = error.render().to_string();
        let shown = options::masked(&text);
        // It repeats what it does not understand, and that may be an address with a password.
        if error.use_stderr() && shown != text {
            eprint!("{shown}");
            std::process::exit(error.exit_code());
        }
        error.exit()
    });
    let done = match cli.command {
        Command::Serve(options) => serve::serve(*options),
        Command::Check { file } => check::check(&file),
        Command::Schema => print(&tidegate_config::schema::text()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}

/// Prints to the standard output. A reader that has seen enough is no failure.
fn print(text: &str) -> Result<(), Failure> {
    match std::io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(Failure::other(format!("cannot print: {error}")))
        }
        _ => Ok(()),
    }
}
