//! Files of results: looked at before the first case runs, and then written whole or not at all. What was there before stays until the new text is on
//! the disk, whatever fails; two runs do not write one file.

use std::{
    borrow::Cow,
    ffi::OsString,
    fs::{self, File, OpenOptions, TryLockError},
    io::{self, Read, Write},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    process,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use anyhow::{Context, bail};
use passmuster_harness::conformance::report::packed;

use crate::journal;

/// A file that results will go to. While this lives, no other run takes the same.
#[derive(Debug)]
pub(crate) struct ResultFile {
    /// As people know it.
    path: PathBuf,
    /// None for pipes and devices, which take what they get.
    place: Option<FileTarget>,
}

/// Where a file lies, links followed.
#[derive(Debug)]
struct FileTarget {
    folder: PathBuf,
    name: OsString,
    _lock: Lock,
}

impl ResultFile {
    /// Sees whether a file can be written.
    ///
    /// # Errors
    /// A folder in its place, a folder that is not there or takes no files, a file that is read-only, or that another run writes; with the path.
    pub(crate) fn open(path: &Path) -> anyhow::Result<ResultFile> {
        let place = place(path).with_context(|| cannot_write(path))?;
        Ok(ResultFile { path: path.to_owned(), place })
    }

    /// The same of an option.
    ///
    /// # Errors
    /// As [`ResultFile::open`].
    pub(crate) fn asked(path: Option<&Path>) -> anyhow::Result<Option<ResultFile>> {
        path.map(ResultFile::open).transpose()
    }

    /// As people know it.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// A file of the same name with something behind it; none for pipes and devices.
    pub(crate) fn beside(&self, suffix: &str) -> Option<PathBuf> {
        let mut name = self.path.clone().into_os_string();
        name.push(suffix);
        self.place.as_ref().map(|_| name.into())
    }

    /// Replaces the file's text, which is packed if its name ends in `.gz`.
    ///
    /// # Errors
    /// Whatever the system says, with the path; what was there before is there still.
    pub(crate) fn write(&self, text: &str) -> anyhow::Result<()> {
        let bytes = if packed::is_packed(&self.path) { Cow::Owned(packed::pack(text)) } else { Cow::Borrowed(text.as_bytes()) };
        self.write_by(|path| {
            Ok(OpenOptions::new().write(true).create(self.place.is_some()).truncate(self.place.is_some()).open(path)?.write_all(&bytes)?)
        })
    }

    /// Replaces the file by what `write` puts to the path that it is given, which ends like the file's own.
    ///
    /// # Errors
    /// As [`ResultFile::write`], and those of `write`.
    pub(crate) fn write_by(&self, write: impl FnOnce(&Path) -> anyhow::Result<()>) -> anyhow::Result<()> {
        let Some(FileTarget { folder, name, .. }) = &self.place else {
            // The reader of a pipe may never come: a signal does not wait for it.
            WAITS_FOR_READER.store(true, Ordering::Release);
            let written = write(&self.path).with_context(|| cannot_write(&self.path));
            WAITS_FOR_READER.store(false, Ordering::Release);
            return written;
        };
        let mut new = OsString::from(format!(".{}-", process::id()));
        new.push(name);
        let new = folder.join(new);
        let written = write(&new).and_then(|()| {
            File::open(&new)?.sync_all()?;
            fs::rename(&new, folder.join(name))?;
            Ok(File::open(folder)?.sync_all()?)
        });
        if written.is_err() {
            let _ = fs::remove_file(&new);
        }
        written.with_context(|| cannot_write(&self.path))
    }
}

/// Makes a folder of results if need be, and sees whether it takes files.
///
/// # Errors
/// Where it does not, with the path.
pub(crate) fn folder(path: &Path) -> anyhow::Result<()> {
    let probe = path.join(format!(".{}-probe", process::id()));
    let probed = fs::create_dir_all(path).and_then(|()| File::create(&probe)).and_then(|_| fs::remove_file(&probe));
    probed.with_context(|| cannot_write(path))
}

/// What went wrong of all that was to be written.
///
/// # Errors
/// All errors, one after the other.
pub(crate) fn all_of(written: impl IntoIterator<Item = anyhow::Result<()>>) -> anyhow::Result<()> {
    let errors: Vec<String> = written.into_iter().filter_map(Result::err).map(|error| format!("{error:#}")).collect();
    if errors.is_empty() { Ok(()) } else { bail!("{}", errors.join("; ")) }
}

fn cannot_write(path: &Path) -> String {
    format!("cannot write {}", path.display())
}

fn place(path: &Path) -> anyhow::Result<Option<FileTarget>> {
    let there = match fs::metadata(path) {
        Ok(there) => Some(there),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(error.into()),
    };
    let path = match there {
        Some(there) if there.is_dir() => bail!("it is a folder"),
        // A pipe may have the name of a file of this process.
        Some(there) if !there.is_file() || path.starts_with("/dev") || path.starts_with("/proc") => return Ok(None),
        Some(there) if there.permissions().readonly() => bail!("it is read-only"),
        Some(_) => path.canonicalize()?,
        None => path.to_owned(),
    };
    let name = path.file_name().context("it has no name")?.to_owned();
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let folder = folder.canonicalize().with_context(|| format!("folder {}", folder.display()))?;
    let mut lock = OsString::from(".");
    lock.push(&name);
    lock.push(".lock");
    let lock = Lock::take(folder.join(lock))?;
    Ok(Some(FileTarget { folder, name, _lock: lock }))
}

/// Whether a record is being written to a pipe or a device.
static WAITS_FOR_READER: AtomicBool = AtomicBool::new(false);

/// Whether what is being written waits for somebody who reads it.
pub(crate) fn waits_for_reader() -> bool {
    WAITS_FOR_READER.load(Ordering::Acquire)
}

/// A file that says that its neighbour is being written; gone with this value. The system lets go of it however the process ends.
#[derive(Debug)]
struct Lock {
    path: PathBuf,
    _held: File,
}

/// All that are held.
static HELD: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

/// Removes the files that say what is being written, where the process is about to end without destructors.
pub(crate) fn let_go() {
    let mut held = HELD.lock().unwrap_or_else(PoisonError::into_inner);
    held.drain(..).for_each(|path| _ = fs::remove_file(path));
}

impl Lock {
    fn take(path: PathBuf) -> anyhow::Result<Lock> {
        journal::end_unless_told()?;
        loop {
            let mut held = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path)?;
            match held.try_lock() {
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => {
                    let mut owner = String::new();
                    let _ = held.read_to_string(&mut owner);
                    if owner == process::id().to_string() {
                        bail!("two options name it");
                    }
                    bail!("another run writes it: process {owner}");
                }
                // There are network file systems that have none.
                Err(TryLockError::Error(error)) if error.kind() == io::ErrorKind::Unsupported => {}
                Err(TryLockError::Error(error)) => return Err(error.into()),
            }
            // Its owner may have removed it in between.
            let ours = held.metadata()?;
            if fs::metadata(&path).is_ok_and(|there| (there.dev(), there.ino()) == (ours.dev(), ours.ino())) {
                held.set_len(0)?;
                held.write_all(process::id().to_string().as_bytes())?;
                HELD.lock().unwrap_or_else(PoisonError::into_inner).push(path.clone());
                return Ok(Lock { path, _held: held });
            }
        }
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        HELD.lock().unwrap_or_else(PoisonError::into_inner).retain(|held| *held != self.path);
        let _ = fs::remove_file(&self.path);
    }
}
