//! Kernel modules of the emulator: each is parsed once, embedded ones once a process, and loaded once a rank for as long as the memory lives.

use std::{
    collections::HashMap,
    sync::{Arc, LazyLock, Mutex, OnceLock, PoisonError},
};

use super::{
    execution::{Coverage, DeviceLimits, Footprint, Program, Recorder, Residency},
    memory::Memory,
    ptx,
};
use passmuster_plan::{
    device::{self, DeviceModel, Occupancy},
    library::Library,
    machine::{
        MachineError,
        arguments::{Addresses, Arguments, memory_bytes},
    },
    plan::{Launch, MAX_RANKS, ModuleVariable},
};

/// What hosts set variables of a module to.
pub(super) type Variables = Vec<(String, Vec<u8>)>;

/// What has become of a module's PTX.
type Parsed = Result<Arc<ptx::Module>, ptx::PtxError>;

/// Where an embedded text is, and how long.
type Text = (usize, usize);

/// The embedded texts that were asked for: emulators of all threads share what comes of them, which depends on nothing else.
static EMBEDDED: LazyLock<Mutex<HashMap<Text, Arc<OnceLock<Parsed>>>>> = LazyLock::new(Mutex::default);

/// A module of a library, parsed; with what the emulator does not know, as [`ptx::parse_tolerant`] has it.
///
/// # Errors
/// `Invalid` where the library has no such module, `NotSupported` where its text is not PTX.
pub fn parsed(library: &Library, module: &str) -> Result<Arc<ptx::Module>, MachineError> {
    let text = library.ptx(module).map_err(|error| MachineError::Invalid { reason: error.into() })?;
    let parse = || ptx::parse_tolerant(text).map(Arc::new);
    let parsed = match library.unreplaced(module) {
        None => parse(),
        Some(embedded) => {
            let all = || EMBEDDED.lock().unwrap_or_else(PoisonError::into_inner);
            let of_text = all().entry((embedded.as_ptr() as usize, embedded.len())).or_default().clone();
            of_text.get_or_init(parse).clone()
        }
    };
    parsed.map_err(|error| refused(module, &error))
}

fn refused(module: &str, why: &dyn std::fmt::Display) -> MachineError {
    MachineError::NotSupported { reason: format!("PTX of `{module}` on the emulator: {why}") }
}

/// Modules, parsed and loaded.
pub(super) struct Modules {
    library: Library,
    device: DeviceModel,
    parsed: HashMap<String, Arc<ptx::Module>>,
    /// By what their variables were set to: what sets them to something else has another instance.
    loaded: HashMap<(String, usize, Variables), Arc<Program>>,
    recorder: Option<Recorder>,
}

impl Modules {
    /// The modules of a library for ranks on such devices, none of them parsed yet. What runs of them is noted in `coverage`.
    pub(super) fn new(library: Library, device: DeviceModel, coverage: Option<Arc<Coverage>>) -> Modules {
        let recorder = coverage.map(Recorder::new);
        Modules { library, device, parsed: HashMap::new(), loaded: HashMap::new(), recorder }
    }

    /// A run begins, which waits for nothing that was written before.
    pub(super) fn begin_run(&self) {
        self.recorder.iter().for_each(Recorder::begin_run);
    }

    /// The PTX that launches are resolved in.
    pub(super) fn library(&self) -> &Library {
        &self.library
    }

    /// Forgets what was loaded: its memory is gone.
    pub(super) fn unload(&mut self) {
        self.loaded.clear();
    }

    /// The module of a launch, whose kernel can come to nothing that is unknown.
    ///
    /// # Errors
    /// `NotSupported` with the place in the PTX that the emulator does not know, and for PTX that is for another device.
    pub(super) fn parsed(&mut self, launch: &Launch) -> Result<Arc<ptx::Module>, MachineError> {
        let key = launch.module.clone();
        let module = match self.parsed.get(&key) {
            Some(module) => module.clone(),
            None => parsed(&self.library, &launch.module)?,
        };
        module.launchable(&launch.entry).map_err(|error| refused(&launch.module, error))?;
        let taken = module.targets.iter().filter(|target| target.starts_with("sm_")).try_for_each(|target| self.device.takes(target));
        taken.map_err(|why| refused(&launch.module, &why))?;
        Ok(self.parsed.entry(key).or_insert(module).clone())
    }

    /// The module of a launch with the variables of one rank, which its host sets to `variables`.
    ///
    /// # Errors
    /// As [`Modules::parsed`]; `NotSupported` for what cannot be loaded.
    pub(super) fn loaded(
        &mut self,
        launch: &Launch,
        variables: Variables,
        rank: usize,
        memory: &mut Memory,
    ) -> Result<Arc<Program>, MachineError> {
        let key = (launch.module.clone(), rank, variables);
        if let Some(program) = self.loaded.get(&key) {
            return Ok(program.clone());
        }
        let module = self.parsed(launch)?;
        let program = Program::load(module, rank, limits(&self.device), memory);
        let program = program.and_then(|program| {
            key.2.iter().try_for_each(|(name, value)| program.set(name, value, memory))?;
            Ok(match &self.recorder {
                Some(recorder) => recorder.record(program, &key.0),
                None => program,
            })
        });
        let program = program.map_err(|fault| MachineError::NotSupported {
            reason: format!("module `{}` cannot be loaded for rank {rank}: {fault}", launch.module),
        })?;
        Ok(self.loaded.entry(key).or_insert(Arc::new(program)).clone())
    }
}

/// Checks a launch against PTX before anything runs: that the kernel is there, that it takes arguments of these sizes, and blocks of this shape.
///
/// # Errors
/// Names the kernels there are, the first argument that differs, or the shape that the kernel requires.
pub fn accepts(module: &ptx::Module, launch: &Launch) -> Result<(), String> {
    let kernel = module.accepts(&launch.entry, laid_out(launch))?;
    kernel.bounds.accept(launch.block.0).map_err(|why| format!("kernel `{}`: {why}", launch.entry))
}

/// Checks what a launch sets variables of its module to: that they have room for it. Those that the module lacks are not looked at.
///
/// # Errors
/// The first that has no room, by its number, and why.
pub fn takes_variables(module: &ptx::Module, launch: &Launch) -> Result<(), (usize, String)> {
    for (number, ModuleVariable { name, value }) in launch.variables.iter().enumerate() {
        let Some(variable) = module.variables.iter().find(|variable| variable.name == *name) else { continue };
        let bytes = nowhere(|addresses| memory_bytes(value, addresses)).len();
        if variable.bytes < bytes as u64 {
            return Err((number, format!("variable `{name}` has {} bytes, and {bytes} are given", variable.bytes)));
        }
    }
    Ok(())
}

/// The argument, by its number, at which a launch stops being what its kernel takes: the first of another size, or one too many.
pub fn misfit(module: &ptx::Module, launch: &Launch) -> Option<usize> {
    let takes = module.entry(&launch.entry)?.inputs.iter().map(|parameter| parameter.bytes as usize);
    let given: Vec<usize> = laid_out(launch);
    let takes: Vec<usize> = takes.collect();
    takes.iter().zip(&given).position(|(takes, given)| takes != given).or((given.len() > takes.len()).then_some(takes.len()))
}

/// Bytes of each argument.
fn laid_out(launch: &Launch) -> Vec<usize> {
    nowhere(|addresses| Arguments::lay_out(&launch.args, addresses).sizes().collect())
}

/// Something of a launch whose buffers lie nowhere.
fn nowhere<T>(of: impl FnOnce(&Addresses<'_>) -> T) -> T {
    of(&Addresses { own: &|_| 0, of: &|_| [0; MAX_RANKS], memory: &|_| 0, multicast: &|_| 0, tensor_map: &|_| [0; 16], wait_limit: 0 })
}

/// What the emulator goes by of a model.
pub fn limits(device: &DeviceModel) -> DeviceLimits {
    let model = *device;
    let resident = move |launch: &Footprint| {
        let Footprint { threads, shared, cluster, registers } = *launch;
        let occupancy = model.occupancy(&device::Footprint { threads, shared, cluster, registers });
        let Occupancy { blocks_per_sm, blocks, bounded_by, registers_counted } = occupancy;
        let registers = if registers_counted { "" } else { "; registers not counted" };
        Residency { blocks, bound: format!("{blocks_per_sm} on each of {} SMs, by {bounded_by}{registers}", model.sms) }
    };
    DeviceLimits { sms: device.sms, shared_per_block: device.shared_per_block, resident: Arc::new(resident) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::REGISTRY;

    /// If this fails, each emulator reads all kernels again, or a mutant is judged by the text of the module in whose place it stands.
    #[test]
    fn embedded_modules_are_parsed_once_and_what_stands_in_their_place_by_itself() {
        let of = |library: &Library| parsed(library, "all_reduce/one_shot").unwrap();
        let (mut replaced, embedded) = (REGISTRY.library(), of(&REGISTRY.library()));
        assert!(Arc::ptr_eq(&embedded, &of(&replaced)));
        replaced.replace("all_reduce/one_shot", ".version 9.0\n.target sm_90\n.address_size 64\n");
        assert!(of(&replaced).functions.is_empty() && !embedded.functions.is_empty());
        assert!(Arc::ptr_eq(&embedded, &of(&REGISTRY.library())));
    }
}
