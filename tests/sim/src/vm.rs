//! One VM: the module that ships, suspended at each of its host calls until the scheduler answers.

use crate::calls::Call;
use std::fmt;
use wasmi::{
    CompilationMode, Config, Engine, Error, Extern, ExternType, Func, Linker, Memory, Module, ResumableCall,
    ResumableCallHostTrap, Store, Val,
};

/// Fuel for one callback. A callback that needs more does not end.
const CALLBACK_FUEL: u64 = 4_000_000_000;

/// Why a VM is no more. In a proxy this would take the worker's filter down: always a failure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Trap(pub(crate) String);

impl fmt::Display for Trap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<Error> for Trap {
    fn from(error: Error) -> Self {
        Self(error.to_string())
    }
}

/// A module, compiled once for all VMs.
pub(crate) struct Program {
    engine: Engine,
    module: Module,
    linker: Linker<Waiting>,
}

/// What a suspended VM asks for.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    pub(crate) call: Call,
    pub(crate) import: String,
    args: Vec<u64>,
}

impl Asked {
    /// An argument by its place.
    pub(crate) fn arg(&self, index: usize) -> u64 {
        self.args.get(index).copied().unwrap_or(0)
    }

    /// An argument that is a pointer, a length or another 32-bit number.
    pub(crate) fn arg32(&self, index: usize) -> u32 {
        self.arg(index) as u32
    }
}

/// The question that a host function leaves behind when it suspends its VM.
#[derive(Default)]
struct Waiting(Option<Asked>);

/// Not an error: it stops the VM, which is resumed with the answer.
#[derive(Debug)]
struct Suspended;

impl fmt::Display for Suspended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("suspended at a host call")
    }
}

impl wasmi::errors::HostError for Suspended {}

impl Program {
    /// Compiles a module; every import must be one that the hosts have.
    pub(crate) fn new(wasm: &[u8]) -> Result<Self, Trap> {
        let mut config = Config::default();
        // Translated at load: else the first callback would pay for it in fuel.
        config.consume_fuel(true).compilation_mode(CompilationMode::Eager);
        let engine = Engine::new(&config);
        let module = Module::new(&engine, wasm)?;
        let mut linker = Linker::<Waiting>::new(&engine);
        for import in module.imports() {
            let (from, name) = (import.module().to_owned(), import.name().to_owned());
            let ExternType::Func(ty) = import.ty() else {
                return Err(Trap(format!("the module imports {from}.{name}, which is no function")));
            };
            let call = Call::of_import(&from, &name)
                .ok_or_else(|| Trap(format!("the module imports {from}.{name}, which hosts refuse")))?;
            let import = name.clone();
            let ask = move |mut caller: wasmi::Caller<'_, Waiting>, args: &[Val], _: &mut [Val]| {
                let args = args.iter().map(unsigned).collect();
                caller.data_mut().0 = Some(Asked { call, import: import.clone(), args });
                Err(Error::host(Suspended))
            };
            linker.func_new(&from, &name, ty.clone(), ask).map_err(|error| Trap(error.to_string()))?;
        }
        Ok(Self { engine, module, linker })
    }
}

fn unsigned(value: &Val) -> u64 {
    match value {
        Val::I32(value) => u64::from(value.cast_unsigned()),
        Val::I64(value) => value.cast_unsigned(),
        _ => 0,
    }
}

/// How far a callback has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// It waits for the answer to [`Vm::asked`].
    AtCall,
    /// It has returned this; 0 if it returns nothing.
    Finished(u64),
}

/// One instance of a module.
pub(crate) struct Vm {
    store: Store<Waiting>,
    instance: wasmi::Instance,
    memory: Memory,
    malloc: Func,
    suspended: Option<ResumableCallHostTrap>,
    returns: usize,
}

impl Vm {
    pub(crate) fn new(program: &Program) -> Result<Self, Trap> {
        let mut store = Store::new(&program.engine, Waiting::default());
        store.set_fuel(CALLBACK_FUEL)?;
        let instance = program.linker.instantiate_and_start(&mut store, &program.module)?;
        let Some(Extern::Memory(memory)) = instance.get_export(&store, "memory") else {
            return Err(Trap("the module exports no memory".to_owned()));
        };
        let malloc = instance
            .get_func(&store, "malloc")
            .ok_or_else(|| Trap("the module exports no malloc".to_owned()))?;
        Ok(Self { store, instance, memory, malloc, suspended: None, returns: 0 })
    }

    /// Calls an export and runs to its first host call or its end.
    pub(crate) fn call(&mut self, export: &str, args: &[u32]) -> Result<Progress, Trap> {
        let func = self
            .instance
            .get_func(&self.store, export)
            .ok_or_else(|| Trap(format!("the module does not export {export}")))?;
        self.store.set_fuel(CALLBACK_FUEL)?;
        let args: Vec<Val> = args.iter().map(|arg| Val::I32(arg.cast_signed())).collect();
        self.returns = func.ty(&self.store).results().len();
        let mut results = vec![Val::I32(0); self.returns];
        let call = func.call_resumable(&mut self.store, &args, &mut results)?;
        self.after(call, &results)
    }

    /// Answers the host call at which the VM waits, and runs to the next.
    pub(crate) fn resume(&mut self, status: u32) -> Result<Progress, Trap> {
        let Some(suspended) = self.suspended.take() else {
            return Err(Trap("nothing waits in this VM".to_owned()));
        };
        self.store.data_mut().0 = None;
        let mut results = vec![Val::I32(0); self.returns];
        let call = suspended.resume(&mut self.store, &[Val::I32(status.cast_signed())], &mut results)?;
        self.after(call, &results)
    }

    fn after(&mut self, call: ResumableCall, results: &[Val]) -> Result<Progress, Trap> {
        match call {
            ResumableCall::Finished => Ok(Progress::Finished(results.first().map_or(0, unsigned))),
            ResumableCall::HostTrap(suspended) => {
                self.suspended = Some(suspended);
                Ok(Progress::AtCall)
            }
            ResumableCall::OutOfFuel(_) => Err(Trap("a callback does not end".to_owned())),
        }
    }

    /// The host call at which the VM waits.
    pub(crate) fn asked(&self) -> Option<&Asked> {
        self.store.data().0.as_ref()
    }

    /// Fuel that the current or last callback has used up.
    pub(crate) fn fuel_used(&self) -> u64 {
        CALLBACK_FUEL - self.store.get_fuel().unwrap_or(CALLBACK_FUEL)
    }

    pub(crate) fn read(&self, at: u32, size: u32) -> Result<Vec<u8>, Trap> {
        let mut bytes = vec![0; size as usize];
        self.memory
            .read(&self.store, at as usize, &mut bytes)
            .map_err(|_| Trap(format!("a host call names {size} bytes at {at}, outside of memory")))?;
        Ok(bytes)
    }

    pub(crate) fn write(&mut self, at: u32, bytes: &[u8]) -> Result<(), Trap> {
        self.memory
            .write(&mut self.store, at as usize, bytes)
            .map_err(|_| Trap(format!("a host call wants {} bytes at {at}, outside of memory", bytes.len())))
    }

    /// Hands data over as a host does: into memory that the module itself allocates.
    pub(crate) fn hand_over(&mut self, data: &[u8], data_at: u32, size_at: u32) -> Result<(), Trap> {
        let size = u32::try_from(data.len()).map_err(|_| Trap("too much data for a VM".to_owned()))?;
        let at = if size == 0 { 0 } else { self.allocate(size)? };
        self.write(at, data)?;
        self.write(data_at, &at.to_le_bytes())?;
        self.write(size_at, &size.to_le_bytes())
    }

    fn allocate(&mut self, size: u32) -> Result<u32, Trap> {
        let waiting = self.store.data_mut().0.take();
        let mut results = [Val::I32(0)];
        let done = self.malloc.call(&mut self.store, &[Val::I32(size.cast_signed())], &mut results);
        if self.store.data().0.is_some() {
            return Err(Trap("malloc made a host call".to_owned()));
        }
        self.store.data_mut().0 = waiting;
        done?;
        Ok(unsigned(&results[0]) as u32)
    }
}
