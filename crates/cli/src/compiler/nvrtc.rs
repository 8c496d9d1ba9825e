//! NVRTC, opened at run time: the few functions that turn one source into PTX.

use std::{
    ffi::{CStr, CString, c_char, c_int, c_void},
    ptr,
};

use anyhow::{Context, bail};
use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};

use super::{include_option, toolkit::Toolkit, unit::Unit};

type Program = *mut c_void;

/// An open NVRTC 13.0.
pub(crate) struct Nvrtc {
    functions: Functions,
    version: (c_int, c_int),
    include: Option<String>,
    /// After the functions, which point into it.
    _libraries: [Library; 2],
}

struct Functions {
    version: unsafe extern "C" fn(*mut c_int, *mut c_int) -> c_int,
    error_string: unsafe extern "C" fn(c_int) -> *const c_char,
    create: unsafe extern "C" fn(*mut Program, *const c_char, *const c_char, c_int, *const *const c_char, *const *const c_char) -> c_int,
    compile: unsafe extern "C" fn(Program, c_int, *const *const c_char) -> c_int,
    destroy: unsafe extern "C" fn(*mut Program) -> c_int,
    ptx_size: unsafe extern "C" fn(Program, *mut usize) -> c_int,
    ptx: unsafe extern "C" fn(Program, *mut c_char) -> c_int,
    log_size: unsafe extern "C" fn(Program, *mut usize) -> c_int,
    log: unsafe extern "C" fn(Program, *mut c_char) -> c_int,
}

impl Nvrtc {
    /// Opens the library of a toolkit.
    ///
    /// # Errors
    /// What could not be opened, or a version that is not 13.0: another would write other PTX.
    pub(crate) fn open(toolkit: &Toolkit) -> anyhow::Result<Nvrtc> {
        // libnvrtc has no search path of its own: the builtins must be in the process before it asks for them by name.
        let builtins = open(toolkit, "libnvrtc-builtins.so.13.0")?;
        let library = open(toolkit, "libnvrtc.so.13")?;
        // SAFETY: the types are those of nvrtc.h, and the library lives as long as the table.
        let functions = unsafe {
            Functions {
                version: *library.get(b"nvrtcVersion\0")?,
                error_string: *library.get(b"nvrtcGetErrorString\0")?,
                create: *library.get(b"nvrtcCreateProgram\0")?,
                compile: *library.get(b"nvrtcCompileProgram\0")?,
                destroy: *library.get(b"nvrtcDestroyProgram\0")?,
                ptx_size: *library.get(b"nvrtcGetPTXSize\0")?,
                ptx: *library.get(b"nvrtcGetPTX\0")?,
                log_size: *library.get(b"nvrtcGetProgramLogSize\0")?,
                log: *library.get(b"nvrtcGetProgramLog\0")?,
            }
        };
        let mut version = (0, 0);
        // SAFETY: both are valid for writing.
        let code = unsafe { (functions.version)(&mut version.0, &mut version.1) };
        if code != 0 || version != (13, 0) {
            bail!("the NVRTC of {} is {}.{}, the checked-in PTX is made by 13.0", toolkit.origin, version.0, version.1);
        }
        Ok(Nvrtc { functions, version, include: include_option(toolkit), _libraries: [builtins, library] })
    }

    /// `13.0`.
    pub(crate) fn version(&self) -> String {
        format!("{}.{}", self.version.0, self.version.1)
    }

    /// Compiles one unit to PTX.
    ///
    /// # Errors
    /// The compiler's log; a warning is an error too.
    pub(crate) fn compile(&self, unit: &Unit) -> anyhow::Result<String> {
        let text = CString::new(unit.text.as_str())?;
        let name = CString::new(unit.name.as_str())?;
        let names = Strings::new(unit.headers.keys())?;
        let headers = Strings::new(unit.headers.values())?;
        let options = Strings::new(unit.options.iter().chain(&self.include))?;

        let mut program = Compilation { functions: &self.functions, program: ptr::null_mut() };
        // SAFETY: all are C strings that outlive the call, and there are as many headers as names.
        let code = unsafe {
            (self.functions.create)(&mut program.program, text.as_ptr(), name.as_ptr(), headers.len(), headers.as_ptr(), names.as_ptr())
        };
        self.expect(code, "nvrtcCreateProgram")?;
        // SAFETY: the program is one that was just made, and the options are as many C strings as are announced.
        let code = unsafe { (self.functions.compile)(program.program, options.len(), options.as_ptr()) };
        let log = program.text(self.functions.log_size, self.functions.log)?;
        if code != 0 || !log.trim().is_empty() {
            bail!("{}:\n{}", if code == 0 { "a warning" } else { "an error" }, log.trim());
        }
        program.text(self.functions.ptx_size, self.functions.ptx)
    }

    fn expect(&self, code: c_int, what: &str) -> anyhow::Result<()> {
        if code == 0 {
            return Ok(());
        }
        // SAFETY: NVRTC returns a static string for every code.
        let message = unsafe { CStr::from_ptr((self.functions.error_string)(code)) };
        bail!("{what}: {}", message.to_string_lossy())
    }
}

fn open(toolkit: &Toolkit, file: &str) -> anyhow::Result<Library> {
    let path = toolkit.libraries.join(file);
    // SAFETY: NVIDIA's libraries run no code of their own at loading that could break ours.
    unsafe { Library::open(Some(&path), RTLD_NOW | RTLD_LOCAL) }.with_context(|| format!("cannot open {}", path.display()))
}

/// C strings and the array of their addresses.
struct Strings {
    pointers: Vec<*const c_char>,
    /// What the pointers point to.
    _strings: Vec<CString>,
}

impl Strings {
    fn new<'a>(strings: impl Iterator<Item = &'a String>) -> anyhow::Result<Strings> {
        let strings: Vec<CString> = strings.map(|string| CString::new(string.as_str())).collect::<Result<_, _>>()?;
        Ok(Strings { pointers: strings.iter().map(|string| string.as_ptr()).collect(), _strings: strings })
    }

    fn len(&self) -> c_int {
        self.pointers.len() as c_int
    }

    fn as_ptr(&self) -> *const *const c_char {
        self.pointers.as_ptr()
    }
}

/// A program that is destroyed when it goes.
struct Compilation<'a> {
    functions: &'a Functions,
    program: Program,
}

impl Compilation<'_> {
    /// A text of the program: its size first, then its bytes with a zero at the end.
    fn text(
        &self,
        size: unsafe extern "C" fn(Program, *mut usize) -> c_int,
        get: unsafe extern "C" fn(Program, *mut c_char) -> c_int,
    ) -> anyhow::Result<String> {
        let mut bytes = 0;
        // SAFETY: the program is alive and `bytes` is valid for writing.
        if unsafe { size(self.program, &mut bytes) } != 0 {
            bail!("NVRTC does not give the size of its answer");
        }
        let mut text = vec![0u8; bytes];
        // SAFETY: the buffer has the size that NVRTC asked for.
        if bytes > 0 && unsafe { get(self.program, text.as_mut_ptr().cast()) } != 0 {
            bail!("NVRTC does not give its answer");
        }
        text.truncate(text.iter().position(|&byte| byte == 0).unwrap_or(bytes));
        Ok(String::from_utf8(text)?)
    }
}

impl Drop for Compilation<'_> {
    fn drop(&mut self) {
        if !self.program.is_null() {
            // SAFETY: made by nvrtcCreateProgram and destroyed once.
            unsafe { (self.functions.destroy)(&mut self.program) };
        }
    }
}
