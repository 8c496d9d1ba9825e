//! A run of cases from the first to the record: what an earlier run judged is kept, what is new goes to the journal.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use passmuster_harness::{
    conformance::{
        Case, CaseId, Verdict, counted, coverage,
        report::{Assumed, Record, first_note, table, today},
    },
    emulator::{Interleaving, Profile},
};
use xshell::Shell;

use super::{
    Run,
    arguments::Cases,
    files::Files,
    presentation::{announced, announced_foreign, named_schedules, uncounted},
    shrinking::{Smaller, smaller},
    stale::{self, Kept},
    waivers::apply_waivers,
};
use crate::{
    emulated,
    foreign::RegisteredKernel,
    journal::{self, Journal},
    judging::Judging,
    modules, project,
    resume::Resumed,
    worker::MachineKind,
};

/// Cases that are about to be judged.
pub(super) struct Session<'a> {
    pub(super) asked: &'a Cases,
    pub(super) run: &'a Run,
    pub(super) cases: Vec<Case>,
    /// The emulator's.
    pub(super) schedules: Vec<Interleaving>,
    pub(super) files: Files,
}

/// What came of it.
pub(super) struct Judged {
    pub(super) record: Record,
    pub(super) smaller: Smaller,
    /// Whether the files could be written.
    pub(super) written: anyhow::Result<()>,
}

impl Session<'_> {
    /// Judges what is not judged yet and writes the record.
    pub(super) fn judge(&self, judge: &mut dyn Judging, sh: &Shell) -> anyhow::Result<Judged> {
        let Session { asked, cases, files, .. } = self;
        let start = Instant::now();
        journal::end_with_children()?;
        let mut head = Record::of_verdicts(self.run.kind, judge.machine(cases)?, project::source(sh, &self.run.library), Vec::new());
        head.selection = Some(asked.selection(self.run, self.schedules.len()));
        let names: Vec<String> = cases.iter().map(Case::to_string).collect();
        let (before, kept) = match &asked.json {
            Some(path) if asked.stale => stale::kept(path, &head, &names, self.run)?,
            _ => (Resumed::read(asked.resume.as_deref(), &head, &names, |verdict| &verdict.case)?, Kept::default()),
        };
        let rest = before.rest();
        let seconds = move || before.seconds + start.elapsed().as_secs_f64();
        let so_far = head.clone();
        let journal = Journal::open(files.kept(asked)?, Duration::from_secs(asked.keep_every), before.judged.clone(), move |verdicts| {
            let Record { kind, machine, source, .. } = so_far.clone();
            let record = Record::of_verdicts(kind, machine, source, verdicts);
            Record { selection: so_far.selection.clone(), seconds: Some(seconds()), ..record }
        })?;

        if cases.len() > 1 {
            let schedules = self.schedules.len();
            let foreign = !self.run.known.is_empty() && self.run.on == MachineKind::Emulator;
            eprintln!(
                "{}",
                match &self.run.callable {
                    Some(_) => format!("{} of a callable", counted(cases.len(), "case")),
                    None if foreign => announced_foreign(cases, schedules),
                    None => announced(cases, schedules, self.run.on),
                }
            );
        }
        let unjudged: Vec<Case> = rest.iter().map(|&index| cases[index].clone()).collect();
        let (machine, _) = judge.all(&unjudged, &|(at, verdict)| journal.put(rest[at], verdict.clone()))?;
        let took = seconds();
        let trace = files.take_trace()?;

        head.machine = before.machine_of_both(machine);
        head.cases = journal.judged();
        apply_waivers(&mut head, asked.waivers.as_ref(), &today());
        let smaller = smaller(judge, &self.run.registry, cases, &head.cases, asked.shrink);
        let record = self.finished(head, kept, took, sh);
        let lcov = self.run.coverage.as_ref().map(|coverage| coverage::lcov(coverage, |module| ptx_path(&self.run.known, module)));
        let written = journal.end(|| files.write(&record, trace, lcov));
        Ok(Judged { record, smaller, written })
    }

    /// The record of all cases, with its counts and notes.
    fn finished(&self, mut record: Record, kept: Kept, seconds: f64, sh: &Shell) -> Record {
        let Session { run, cases, .. } = self;
        if run.on == MachineKind::Cuda {
            record.machine.notes.extend(project::gpu_settings(sh));
        }
        let Kept { assumed, coverage, cases: kept } = kept;
        let modules = |verdict: &Verdict| modules::of_verdict(&run.registry, verdict).unwrap_or_default().into_iter().collect();
        // What was kept has been counted.
        let new = record.cases.iter_mut().filter(|verdict| !kept.contains(&verdict.case));
        record.assumed = Assumed::together(assumed.into_iter().chain(Assumed::of(new, &self.declared(), modules)));
        if run.known.is_empty() && self.asked.part.is_none() {
            Assumed::shorten(&mut record.assumed);
        }
        record.seconds = Some(seconds);
        let executed = run.coverage.iter().flat_map(|coverage| coverage::modules(coverage));
        record.coverage = stale::with(coverage, executed);
        record.source.modules = modules::modules_of(&run.registry, &run.library, &record.cases);
        record.notes.extend(record.selection.iter().map(|selection| first_note(cases.len(), record.seconds, selection)));
        record.notes.extend(run.known.iter().map(|known| known.note.clone()));
        if run.callable.is_some() {
            record.notes.push("a callable was judged by what its calls return and leave: races and accesses inside it are not seen".into());
            return record;
        }
        record.notes.extend((run.on == MachineKind::Emulator).then(|| uncounted(&run.known)).flatten());
        record.notes.extend(table::unchecked_paths(&record.cases));
        record.notes.push(match run.on {
            MachineKind::Cuda => {
                "multimem is validated on the emulator only: nothing here creates NVLink multicast objects, and NCCL ran with \
                         NCCL_NVLS_ENABLE=0"
                    .into()
            }
            MachineKind::Emulator => format!(
                "every case ran under {}; races were judged in profile {}; multimem sums were {}, and no hardware was asked",
                named_schedules(&self.schedules),
                Profile::from(run.machine.profile),
                run.machine.multimem.name()
            ),
        });
        record.notes.extend((run.on == MachineKind::Emulator).then(|| emulated::not_compared(&run.registry, cases)).flatten());
        record
    }

    /// The assumptions about the hardware that every algorithm of the run declares, with the reasons of the first.
    fn declared(&self) -> Vec<(String, String)> {
        let registry = &self.run.registry;
        let of_case = |case: &Case| -> Vec<(String, Vec<(String, String)>)> {
            let [of, name, ..] = case.head();
            match case {
                Case::Collective(case) => {
                    let own = case.algorithms(registry).unwrap_or_default().into_iter().filter(|own| !own.is_peer());
                    own.map(|own| (format!("{}/{}", own.collective(), own.name()), own.assumes())).collect()
                }
                Case::Task(case) => case.algorithm(registry).iter().map(|own| (format!("{of}/{name}"), own.assumes())).collect(),
                Case::Product(_) => Vec::new(),
            }
        };
        let algorithms: BTreeMap<String, Vec<(String, String)>> = self.cases.iter().flat_map(of_case).collect();
        let mut all = algorithms.into_values();
        let mut declared = all.next().unwrap_or_default();
        for other in all {
            declared.retain(|(name, _)| other.iter().any(|(theirs, _)| theirs == name));
        }
        declared
    }
}

/// Where the PTX of a module is: a file of the user's, or of this repository.
fn ptx_path(known: &[RegisteredKernel], module: &str) -> String {
    let own = known.iter().find_map(|known| known.modules.get(module));
    own.map_or_else(|| format!("kernels/ptx/{module}.ptx"), |path| path.display().to_string())
}
