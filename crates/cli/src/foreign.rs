//! Kernels from elsewhere: the options that name one, and what becomes of them.

use std::{
    cell::RefCell,
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::Arc,
};

use anyhow::{Context, bail};
use passmuster_harness::{
    conformance::{
        Case, List,
        mutants::{self, Derived},
        tasks::{Program, references},
    },
    emulator,
};
use passmuster_plan::{
    algorithms::{Foreign, ForeignTask, Kernels, Registry, Specified, TaskAlgorithm},
    library::Library,
    modules::fnv1a64,
    plan::Launch,
    task::{Reference, ReferenceSource, Task},
    words::did_you_mean,
};
use passmuster_ptx as ptx;

use crate::{input, worker::MachineKind};

/// The largest PTX, in bytes.
pub(crate) const MOST_PTX: u64 = 64 << 20;

/// The largest specification, in bytes.
const MOST_SPEC: u64 = 1 << 20;

/// The largest metadata that a compiler leaves beside PTX, in bytes.
const MOST_METADATA: u64 = 1 << 20;

/// What a draft of a specification says where its reader must decide.
const DECIDE: &str = "DECIDE";

/// Which kernels from elsewhere.
#[derive(clap::Args, Clone, Default)]
#[command(next_help_heading = "Kernel from elsewhere")]
pub(crate) struct ForeignArgs {
    /// Test a kernel from elsewhere: how it is launched and what it promises. Repeat for several. QUERY is then a list, or a pattern over their cases
    /// (docs/tutorial-foreign-kernel.md).
    #[arg(long = "spec", value_name = "SPEC.toml")]
    pub(crate) specs: Vec<PathBuf>,
    /// PTX to use in place of the module that the specification names.
    #[arg(long, value_name = "FILE", requires = "specs")]
    pub(crate) ptx: Option<PathBuf>,
    /// Entry point to use in place of the one in the specification. {dtype}, {op}, {world} and {rank} are replaced.
    #[arg(long, value_name = "NAME", requires = "specs")]
    pub(crate) kernel: Option<String>,
    /// On GPUs, bound every loop of the kernel that polls: a thread that has polled 2^23 times in one launch traps. A hang becomes a crash. Use it on shared
    /// GPUs.
    #[arg(long, requires = "specs")]
    pub(crate) bound_waits: bool,
    /// Let specifications name files outside their own folder. Without it, a specification that somebody sent you reads nothing else of yours.
    #[arg(long, requires = "specs")]
    pub(crate) allow_outside: bool,
    /// Run the program that a specification names as the reference of its task. It runs as you do: with limits, but with your files. Without it, reading a
    /// specification runs nothing.
    #[arg(long, requires = "specs")]
    pub(crate) allow_program: bool,
}

/// Looks of one thread in one launch after which a bounded kernel traps: seconds, of a few hundred nanoseconds each.
const MOST_LOOKS: u32 = 1 << 23;

/// The algorithms that case ids are resolved against, and the PTX that they launch.
pub(crate) struct Known {
    pub(crate) registry: Registry,
    pub(crate) library: Library,
    /// Those of them that are kernels from elsewhere.
    pub(crate) foreign: Vec<RegisteredKernel>,
}

/// A kernel from elsewhere, known to case ids.
pub(crate) struct RegisteredKernel {
    pub(crate) of: Registered,
    /// The first of its PTX.
    pub(crate) ptx: PathBuf,
    /// Where the PTX of each of its modules is.
    pub(crate) modules: BTreeMap<String, PathBuf>,
    /// What records say of it.
    pub(crate) note: String,
    /// Lines of its specification that a draft left to its reader: `mine.toml:12: worlds = [2, 4, 8] # DECIDE: ranks`.
    pub(crate) undecided: Vec<String>,
}

/// What a kernel from elsewhere does.
#[derive(Clone)]
pub(crate) enum Registered {
    Collective(Arc<Foreign>),
    Task(Arc<ForeignTask>),
}

impl Registered {
    pub(crate) fn kernels(&self) -> &Kernels {
        match self {
            Registered::Collective(of) => of.kernels(),
            Registered::Task(of) => of.kernels(),
        }
    }

    pub(crate) fn name(&self) -> &str {
        self.kernels().name()
    }

    /// The algorithm of a collective that it is.
    ///
    /// # Errors
    /// It is of a task, and `what` is for collectives.
    pub(crate) fn collective(&self, what: &str) -> anyhow::Result<&Arc<Foreign>> {
        match self {
            Registered::Collective(of) => Ok(of),
            Registered::Task(of) => {
                bail!("{what} is for algorithms of collectives, and {} is one of the task {}", of.name(), of.task().name())
            }
        }
    }

    /// One launch of each of its kernels.
    pub(crate) fn samples(&self) -> Vec<Launch> {
        match self {
            Registered::Collective(of) => of.samples(),
            Registered::Task(of) => of.samples(),
        }
    }

    /// Its cases of a list.
    pub(crate) fn cases(&self, registry: &Registry, list: List, seed: u64) -> Vec<Case> {
        match self {
            Registered::Collective(of) => list.cases_of(registry, of, seed).into_iter().map(Case::from).collect(),
            Registered::Task(of) => list.tasks(&**of, seed).into_iter().map(Case::from).collect(),
        }
    }

    /// The cases that its mutants are judged on.
    pub(crate) fn cases_of_mutants(&self, registry: &Registry) -> Vec<Case> {
        match self {
            Registered::Collective(of) => mutants::cases_of_foreign(registry, of).into_iter().map(Case::from).collect(),
            Registered::Task(of) => mutants::cases_of_task(&**of).into_iter().map(Case::from).collect(),
        }
    }

    /// Its mutants that are made by rule.
    pub(crate) fn mutants(&self, library: &Library) -> Vec<Derived> {
        mutants::of_launches(self.name(), &self.samples(), library)
    }
}

impl RegisteredKernel {
    /// What a record's selection says of them; nothing where there are none.
    pub(crate) fn noted(known: &[RegisteredKernel]) -> Option<String> {
        (!known.is_empty()).then(|| known.iter().map(|known| &*known.note).collect::<Vec<_>>().join("; "))
    }
}

/// A kernel from elsewhere that was read and checked against its PTX.
pub(crate) struct Accepted {
    pub(crate) specified: Specified,
    /// The first of its PTX.
    pub(crate) ptx: PathBuf,
    modules: BTreeMap<String, PathBuf>,
    note: String,
    undecided: Vec<String>,
}

impl ForeignArgs {
    /// The same as arguments.
    pub(crate) fn arguments(&self) -> Vec<String> {
        let path = |name: &str, path: &PathBuf| format!("--{name}={}", path.display());
        let specs = self.specs.iter().map(|spec| path("spec", spec));
        let ptx = self.ptx.iter().map(|ptx| path("ptx", ptx));
        let kernel = self.kernel.iter().map(|kernel| format!("--kernel={kernel}"));
        let flags = [(self.bound_waits, "--bound-waits"), (self.allow_outside, "--allow-outside"), (self.allow_program, "--allow-program")];
        let flags = flags.into_iter().filter(|(is_set, _)| *is_set).map(|(_, flag)| flag.to_owned());
        specs.chain(ptx).chain(kernel).chain(flags).collect()
    }

    /// Whether any is named.
    pub(crate) fn any(&self) -> bool {
        !self.specs.is_empty()
    }

    /// The algorithms and the PTX of a registry, with these kernels beside them.
    ///
    /// # Errors
    /// A file that cannot be read or is too large, a specification that contradicts itself, PTX of which a kernel
    /// may come to what the emulator does not know where it is to run it, a kernel that is not there or takes other arguments.
    pub(crate) fn beside(&self, registry: &Registry, on: MachineKind) -> anyhow::Result<Known> {
        self.beside_in(registry, registry.library(), on)
    }

    /// The same, with a library in which modules of the registry may be replaced.
    ///
    /// # Errors
    /// As [`ForeignArgs::beside`].
    pub(crate) fn beside_in(&self, registry: &Registry, mut library: Library, on: MachineKind) -> anyhow::Result<Known> {
        if self.specs.len() > 1
            && let Some(option) =
                [self.ptx.is_some().then_some("--ptx"), self.kernel.is_some().then_some("--kernel")].into_iter().flatten().next()
        {
            bail!("{option} is for one --spec, {} are given: each may name its own in `module` and `entry`", self.specs.len());
        }
        if self.specs.is_empty() {
            return Ok(Known { registry: registry.clone(), library, foreign: Vec::new() });
        }
        let (mut registry, mut foreign) = (registry.clone(), Vec::new());
        for spec in &self.specs {
            let Accepted { specified, ptx, modules, note, undecided } = self.accept(spec, &mut library, on)?;
            let taken = |why| anyhow::anyhow!("{}: {why}", spec.display());
            let of = match specified {
                Specified::Collective(of) => {
                    registry = registry.with_foreign([*of]).map_err(taken)?;
                    Registered::Collective(registry.foreign().last().context("the kernel was just registered")?.clone())
                }
                Specified::Task(of) => {
                    let of: Arc<ForeignTask> = Arc::from(of);
                    registry = registry.with_task(of.clone()).map_err(taken)?;
                    Registered::Task(of)
                }
            };
            foreign.push(RegisteredKernel { of, ptx, modules, note, undecided });
        }
        Ok(Known { registry, library, foreign })
    }

    /// Reads a specification and the PTX of its modules, and holds them against each other.
    ///
    /// # Errors
    /// As [`ForeignArgs::beside`].
    pub(crate) fn accept(&self, spec: &Path, library: &mut Library, on: MachineKind) -> anyhow::Result<Accepted> {
        let described = input::text(spec, MOST_SPEC)?;
        let name = spec.display();
        let beside = |file: &str| self.file_beside(spec, file);
        // What a verdict rests on beside the specification's own text.
        let files: RefCell<BTreeMap<String, u64>> = RefCell::default();
        let contents = |file: &str| {
            let contents = beside(file).and_then(|path| input::bytes(&path, MOST_PTX)).map_err(|error| format!("{error:#}"))?;
            files.borrow_mut().insert(file.to_owned(), fnv1a64(&contents));
            Ok(contents)
        };
        let references = |task: &Task, source: &ReferenceSource| self.reference(spec, task, source);
        let mut specified = Specified::read(&described, self.kernel.as_deref(), &contents, &references)
            .map_err(|error| anyhow::anyhow!("{name}:{error}"))?;
        let modules = specified.kernels().modules();
        if let (Some(ptx), 2..) = (&self.ptx, modules.len()) {
            bail!("--ptx={} is one file, and {name} has {} modules", ptx.display(), modules.len());
        }
        let mut texts = Vec::new();
        for module in modules {
            let (path, text) = match (&self.ptx, &module.file) {
                (Some(ptx), _) => (ptx.clone(), input::text(ptx, MOST_PTX)?),
                (None, Some(file)) => {
                    let read = beside(file).and_then(|path| Ok((path.clone(), input::text(&path, MOST_PTX)?)));
                    let misnamed =
                        |why| anyhow::anyhow!("{name}:{}", specified.kernels().error_of_module(&module, format!("module: {why:#}")));
                    read.map_err(misnamed)?
                }
                (None, None) => bail!("{name} names no `module`, and there is no --ptx: one of them says where the kernel's PTX is"),
            };
            if let Some((metadata, shared)) = metadata_beside(&path)? {
                files.borrow_mut().insert(metadata, shared.into());
                specified.kernels_mut().set_shared(&module.name, shared);
            }
            texts.push((module.name, text, path));
        }
        let undecided = (1..).zip(described.lines()).filter(|(_, line)| line.contains(DECIDE));
        let undecided = undecided.map(|(number, line)| format!("{name}:{number}: {}", line.trim())).collect();
        let hashes: Vec<String> = texts.iter().map(|(_, text, _)| format!("fnv1a64:{:016x}", fnv1a64(text.as_bytes()))).collect();
        let described = fnv1a64(described.as_bytes());
        let bounded = if self.bound_waits { ", waits bounded" } else { "" };
        let named = self.kernel.as_ref().map(|kernel| format!(", kernel {kernel}")).unwrap_or_default();
        let files = files.into_inner().into_iter().map(|(file, hash)| format!(", {file} {hash:016x}")).collect::<String>();
        let note = format!(
            "kernel from elsewhere {}: PTX {}, specification fnv1a64:{described:016x}{files}{named}{bounded}",
            specified.name(),
            hashes.join(" ")
        );
        let parsed: BTreeMap<&str, _> = texts.iter().map(|(module, text, path)| (&**module, (ptx::parse_tolerant(text), path))).collect();
        for (module, text, _) in &texts {
            let bounded = self.bound_waits && on == MachineKind::Cuda;
            library.replace(module, if bounded { ptx::bound_waits(text, MOST_LOOKS) } else { text.clone() });
        }
        for launch in specified.samples() {
            let Some((module, ptx)) = parsed.get(&*launch.module) else { bail!("{name}: no module `{}`", launch.module) };
            let accepted = match (module, on) {
                (Ok(module), _) => {
                    if on == MachineKind::Emulator
                        && let Err(error) = module.launchable(&launch.entry)
                    {
                        bail!("{}:{error}", ptx.display());
                    }
                    emulator::accepts(module, &launch)
                }
                (Err(error), MachineKind::Emulator) => bail!("{}:{error}", ptx.display()),
                // The driver may know what the emulator does not, and checks arguments itself.
                (Err(_), MachineKind::Cuda) => library.check(&launch).map_err(String::from),
            };
            let argument = module.as_ref().ok().and_then(|module| emulator::misfit(module, &launch));
            let meant = module.as_ref().ok().filter(|module| module.entry(&launch.entry).is_none()).map(|module| {
                let names: Vec<&str> = module.entries().map(|entry| entry.name.as_str()).collect();
                did_you_mean(&launch.entry, names)
            });
            let misfit = |why| {
                let meant = meant.filter(|meant| !meant.is_empty()).map(|meant| format!("; {}", meant.trim())).unwrap_or_default();
                specified.kernels().error_of_launch(&launch, argument, format!("{why}{meant}; the PTX is {}", ptx.display()))
            };
            accepted.map_err(|why| anyhow::anyhow!("{name}:{}", misfit(why)))?;
            if let Ok(module) = module {
                emulator::takes_variables(module, &launch)
                    .map_err(|(number, why)| anyhow::anyhow!("{name}:{}", specified.kernels().error_of_variable(number, why)))?;
                if launch.dynamic_shared == 0
                    && specified.kernels().leaves_shared_open(&launch)
                    && emulator::takes_dynamic_shared(module, &launch.entry)
                {
                    let why = "the kernel uses dynamic shared memory, and the launch gives it none: `dynamic_shared` says how many bytes \
                               (of Triton's kernels `shared` in their metadata, which is read where it lies beside the PTX as NAME.json)";
                    bail!("{name}:{}", specified.kernels().error_of_launch(&launch, None, why));
                }
            }
        }
        let is_known = |variable: &str| {
            let has = |module: &ptx::Module| module.variables.iter().any(|known| known.name == variable);
            // What could not be read may have it.
            parsed.values().any(|(module, _)| module.as_ref().map_or(true, has))
        };
        if let Some((number, variable)) = specified.kernels().variables().enumerate().find(|(_, variable)| !is_known(variable)) {
            bail!(
                "{name}:{}",
                specified.kernels().error_of_variable(number, format!("no module has a global or constant variable `{variable}`"))
            );
        }
        drop(parsed);
        let ptx = texts.first().map(|(_, _, path)| path.clone()).unwrap_or_default();
        let modules = texts.into_iter().map(|(module, _, path)| (module, path)).collect();
        Ok(Accepted { specified, ptx, modules, note, undecided })
    }

    /// The reference of a task.
    fn reference(&self, spec: &Path, task: &Task, source: &ReferenceSource) -> Result<Arc<dyn Reference>, String> {
        match source {
            ReferenceSource::Named(_) => references::built_in(task, source),
            ReferenceSource::Program(line) if self.allow_program => {
                let folder = spec.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
                let program = Program::new(line, folder).map_err(|error| error.to_string())?;
                Ok(Arc::new(program))
            }
            ReferenceSource::Program(line) => Err(format!("`{}` is a program: --allow-program runs it", line.join(" "))),
        }
    }

    /// A file that a specification names.
    ///
    /// # Errors
    /// One outside the specification's folder, links followed, unless that is allowed; one that is not there.
    fn file_beside(&self, spec: &Path, file: &str) -> anyhow::Result<PathBuf> {
        let folder = spec.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let path = spec.parent().unwrap_or(Path::new("")).join(file);
        if self.allow_outside {
            return Ok(path);
        }
        let real = |path: &Path| path.canonicalize().with_context(|| format!("cannot open {}", path.display()));
        if !real(&path)?.starts_with(real(folder)?) {
            bail!("{file} lies outside the folder of the specification: --allow-outside reads it all the same");
        }
        Ok(path)
    }
}

/// What Triton says beside its PTX, `NAME.json` of `NAME.ptx`: the file's name, and the bytes of dynamic shared memory of a block. None where there is no such
/// file, or it is of something else.
///
/// # Errors
/// A number of bytes that no block has.
fn metadata_beside(ptx: &Path) -> anyhow::Result<Option<(String, u32)>> {
    let path = ptx.with_extension("json");
    if !path.is_file() {
        return Ok(None);
    }
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let metadata: Option<serde_json::Value> = input::text(&path, MOST_METADATA).ok().and_then(|text| serde_json::from_str(&text).ok());
    let Some(shared) = metadata.as_ref().and_then(|metadata| metadata.get("shared")) else { return Ok(None) };
    match shared.as_u64().and_then(|shared| u32::try_from(shared).ok()) {
        Some(shared) => Ok(Some((name, shared))),
        None => bail!("{}: shared = {shared}: expected a number of bytes", path.display()),
    }
}
