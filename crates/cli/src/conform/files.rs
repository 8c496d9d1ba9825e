//! The files of a run, looked at before its first case runs.

use std::{
    path::PathBuf,
    sync::{Arc, PoisonError},
};

use anyhow::Context;
use passmuster_harness::conformance::report::{Record, junit};

use super::{Run, arguments::Cases};
use crate::{
    emulated::Trace,
    journal,
    result_file::{ResultFile, all_of},
};

/// Where the results go.
pub(super) struct Files {
    json: Option<ResultFile>,
    junit: Option<ResultFile>,
    trace: Option<ResultFile>,
    lcov: Option<ResultFile>,
    /// Where the trace comes to be.
    traced: Arc<Trace>,
}

impl Files {
    /// Sees whether all files that were asked for can be written.
    ///
    /// # Errors
    /// As [`ResultFile::open`].
    pub(super) fn open(cases: &Cases, run: &Run) -> anyhow::Result<Files> {
        Ok(Files {
            json: ResultFile::asked(cases.json.as_deref())?,
            junit: ResultFile::asked(cases.junit.as_deref())?,
            trace: ResultFile::asked(run.trace.as_deref())?,
            lcov: ResultFile::asked(run.lcov.as_deref())?,
            traced: Arc::default(),
        })
    }

    /// Where what was found so far is kept; nowhere where the record has verdicts already.
    ///
    /// # Errors
    /// As [`journal::kept_in`].
    pub(super) fn kept(&self, cases: &Cases) -> anyhow::Result<Option<PathBuf>> {
        if cases.stale {
            return Ok(None);
        }
        Ok(self.json.as_ref().map(|json| journal::kept_in(json, cases.resume.as_deref())).transpose()?.flatten())
    }

    /// Where the trace is to be left, if one is asked for.
    pub(super) fn traced(&self) -> Option<Arc<Trace>> {
        self.trace.as_ref().map(|_| Arc::clone(&self.traced))
    }

    /// The trace that was left last.
    ///
    /// # Errors
    /// Where it is no text.
    pub(super) fn take_trace(&self) -> anyhow::Result<Option<String>> {
        let trace = self.traced.lock().unwrap_or_else(PoisonError::into_inner).take();
        trace.transpose().context("the trace cannot be written")
    }

    /// Writes all of them.
    ///
    /// # Errors
    /// Of all that cannot be written, with their paths.
    pub(super) fn write(&self, record: &Record, trace: Option<String>, lcov: Option<String>) -> anyhow::Result<()> {
        let json = self.json.iter().map(|file| file.write(&record.to_json()));
        let junit = self.junit.iter().map(|file| file.write(&junit(record)));
        let trace = self.trace.iter().zip(trace).map(|(file, trace)| file.write(&trace));
        let lcov = self.lcov.iter().zip(lcov).map(|(file, lcov)| file.write(&lcov));
        all_of(json.chain(junit).chain(trace).chain(lcov))
    }
}
