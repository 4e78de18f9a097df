//! A process that ends with its owner.

use std::process::{Child, Command, ExitStatus};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use crate::Fault;
use crate::fault::Context;

/// How often a stopping process is looked at before it is killed, and the pause between two looks.
const STOP_LOOKS_MAX: u32 = 250;
const STOP_PAUSE: Duration = Duration::from_millis(20);

/// Ends with its owner: asked first, killed if it does not listen, and waited for in any case.
#[derive(Debug)]
pub(crate) struct Process(Child);

impl Process {
    /// Starts it.
    pub(crate) fn spawn(command: &mut Command, what: &str) -> Result<Self, Fault> {
        command.spawn().map(Self).context(&format!("{what} does not start"))
    }

    /// Its id.
    pub(crate) fn id(&self) -> u32 {
        self.0.id()
    }

    /// How it ended, if it did.
    pub(crate) fn ended(&mut self) -> Result<Option<ExitStatus>, Fault> {
        self.0.try_wait().context("no word from a process")
    }

    /// Ends it as a crash does.
    pub(crate) fn kill(&mut self) -> Result<(), Fault> {
        self.0.kill().context("it cannot be killed")?;
        self.0.wait().context("it does not end").map(drop)
    }

    /// Stops it without telling anybody: connections stay, answers do not come.
    pub(crate) fn freeze(&self) -> Result<(), Fault> {
        self.signal(Signal::STOP)
    }

    /// Lets a frozen one go on.
    pub(crate) fn thaw(&self) -> Result<(), Fault> {
        self.signal(Signal::CONT)
    }

    fn signal(&self, signal: Signal) -> Result<(), Fault> {
        let pid = i32::try_from(self.0.id()).ok().and_then(Pid::from_raw);
        let pid = pid.ok_or_else(|| Fault::new("a process without an id"))?;
        kill_process(pid, signal).context("a signal was not delivered")
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        for _ in 0..STOP_LOOKS_MAX {
            if !matches!(self.0.try_wait(), Ok(None)) {
                return;
            }
            // Again each time: a signal that comes while a process still starts may be lost. A frozen one must go on
            // to hear it.
            let _ = self.signal(Signal::TERM);
            let _ = self.signal(Signal::CONT);
            std::thread::sleep(STOP_PAUSE);
        }
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
