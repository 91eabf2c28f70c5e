//! Bundles of speccompile in Rust, over the C ABI (speccompile.h): a scheduler decodes the requests of all threads together.
//!
//! ```no_run
//! # fn main() -> Result<(), speccompile::Error> {
//! let bundle = speccompile::Bundle::open("build/demo", &[])?;
//! let scheduler = speccompile::Scheduler::new(&bundle, &[])?;
//! let request = speccompile::Request::new("def main(")?.integer("max_new_tokens", 64)?;
//! for piece in scheduler.submit(&request, &[])? {
//!     print!("{}", piece?.text);
//! }
//! # Ok(()) }
//! ```
use std::ffi::{CStr, CString};
use std::os::raw::{c_char, c_double, c_int, c_void};
use std::{fmt, ptr, slice};

extern "C" {
    fn spc_error_kind(error: *const c_void) -> c_int;
    fn spc_error_exit_code(error: *const c_void) -> c_int;
    fn spc_error_message(error: *const c_void) -> *const c_char;
    fn spc_error_hint(error: *const c_void) -> *const c_char;
    fn spc_error_free(error: *mut c_void);
    fn spc_bundle_open(folder: *const c_char, options: *const *const c_char, out: *mut *mut c_void) -> *mut c_void;
    fn spc_bundle_free(bundle: *mut c_void);
    fn spc_request_create(out: *mut *mut c_void) -> *mut c_void;
    fn spc_request_free(request: *mut c_void);
    fn spc_request_add_text(request: *mut c_void, text: *const c_char, size: usize) -> *mut c_void;
    fn spc_request_set_number(request: *mut c_void, prompt: usize, name: *const c_char, value: c_double) -> *mut c_void;
    fn spc_request_set_integer(request: *mut c_void, prompt: usize, name: *const c_char, value: u64) -> *mut c_void;
    fn spc_request_set_constraint(request: *mut c_void, kind: *const c_char, text: *const c_char, size: usize) -> *mut c_void;
    fn spc_scheduler_create(bundle: *const c_void, options: *const *const c_char, out: *mut *mut c_void) -> *mut c_void;
    fn spc_scheduler_free(scheduler: *mut c_void);
    fn spc_scheduler_submit(scheduler: *mut c_void, request: *const c_void, terms: *const *const c_char, out: *mut *mut c_void) -> *mut c_void;
    fn spc_submission_next(submission: *mut c_void, seconds: c_double, delta: *mut *mut c_void, done: *mut c_int) -> *mut c_void;
    fn spc_submission_cancel(submission: *mut c_void);
    fn spc_submission_free(submission: *mut c_void);
    fn spc_delta_sequence(delta: *const c_void) -> usize;
    fn spc_delta_text(delta: *const c_void, text: *mut *const c_char, size: *mut usize);
    fn spc_delta_tokens(delta: *const c_void, ids: *mut *const i64, count: *mut usize);
    fn spc_delta_free(delta: *mut c_void);
}

const ALL: usize = usize::MAX; // SPC_ALL: the option of all prompts

/// What went wrong. kind: SPC_USAGE, SPC_BUNDLE, ..; hint: what helps, "" where there is none.
#[derive(Debug)]
pub struct Error {
    pub kind: i32,
    pub exit_code: i32,
    pub message: String,
    pub hint: String,
}

impl fmt::Display for Error {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "{}", self.message)
    }
}

impl std::error::Error for Error {}

fn check(error: *mut c_void) -> Result<(), Error> {
    if error.is_null() {
        return Ok(());
    }
    let text = |words: *const c_char| unsafe { CStr::from_ptr(words) }.to_string_lossy().into_owned();
    unsafe {
        let (kind, exit_code) = (spc_error_kind(error), spc_error_exit_code(error));
        let found = Error { kind, exit_code, message: text(spc_error_message(error)), hint: text(spc_error_hint(error)) };
        spc_error_free(error);
        Err(found)
    }
}

fn name(text: &str) -> Result<CString, Error> {
    let refused = |_| Error { kind: 2, exit_code: 2, message: format!("{:?}: received a NUL in a name", text), hint: String::new() };
    CString::new(text).map_err(refused)
}

/// Names and values in turn, closed by NULL.
fn with_words<T>(options: &[(&str, &str)], call: impl FnOnce(*const *const c_char) -> T) -> Result<T, Error> {
    let held = options.iter().flat_map(|(key, value)| [name(key), name(value)]).collect::<Result<Vec<_>, _>>()?;
    let words: Vec<_> = held.iter().map(|each| each.as_ptr()).chain([ptr::null()]).collect();
    Ok(call(words.as_ptr()))
}

/// Declares a handle of the C ABI that is freed once. Those for any thread are `Send` and `Sync`.
macro_rules! handle {
    ($(#[$says:meta])* $name:ident, $free:ident) => {
        $(#[$says])*
        pub struct $name(*mut c_void);

        impl Drop for $name {
            fn drop(&mut self) {
                unsafe { $free(self.0) }
            }
        }

        unsafe impl Send for $name {}
    };
}

handle!(/** An open bundle. */ Bundle, spc_bundle_free);
handle!(/** A prompt and its options. */ Request, spc_request_free);
handle!(/** A thread that decodes many requests at once. */ Scheduler, spc_scheduler_free);
handle!(/** A request that a scheduler has taken: an iterator over what it gets. What has not ended is cancelled. */ Submission, spc_submission_free);
unsafe impl Sync for Bundle {}
unsafe impl Sync for Scheduler {}

impl Bundle {
    /// Open a bundle's folder. options: see spc_bundle_open, ("threads", "2") and others.
    pub fn open(folder: &str, options: &[(&str, &str)]) -> Result<Self, Error> {
        let (folder, mut found) = (name(folder)?, ptr::null_mut());
        check(with_words(options, |words| unsafe { spc_bundle_open(folder.as_ptr(), words, &mut found) })?)?;
        Ok(Self(found))
    }
}

impl Request {
    pub fn new(prompt: &str) -> Result<Self, Error> {
        let mut found = ptr::null_mut();
        check(unsafe { spc_request_create(&mut found) })?;
        let made = Self(found);
        check(unsafe { spc_request_add_text(made.0, prompt.as_ptr().cast(), prompt.len()) })?;
        Ok(made)
    }

    /// Set an option that is a number: temperature, top_p, ..
    pub fn number(self, option: &str, value: f64) -> Result<Self, Error> {
        check(unsafe { spc_request_set_number(self.0, ALL, name(option)?.as_ptr(), value) })?;
        Ok(self)
    }

    /// Set an option that is an integer: max_new_tokens, seed, ..
    pub fn integer(self, option: &str, value: u64) -> Result<Self, Error> {
        check(unsafe { spc_request_set_integer(self.0, ALL, name(option)?.as_ptr(), value) })?;
        Ok(self)
    }

    /// Bind what the new text has to be. kind: regex, json_schema, ..
    pub fn constraint(self, kind: &str, text: &str) -> Result<Self, Error> {
        check(unsafe { spc_request_set_constraint(self.0, name(kind)?.as_ptr(), text.as_ptr().cast(), text.len()) })?;
        Ok(self)
    }
}

impl Scheduler {
    /// options: see spc_scheduler_create, ("requests", "64") and others.
    pub fn new(bundle: &Bundle, options: &[(&str, &str)]) -> Result<Self, Error> {
        let mut found = ptr::null_mut();
        check(with_words(options, |words| unsafe { spc_scheduler_create(bundle.0, words, &mut found) })?)?;
        Ok(Self(found))
    }

    /// Put a request into the queue. terms: ("client", name), ("salt", text), ("reuse", "false").
    pub fn submit(&self, request: &Request, terms: &[(&str, &str)]) -> Result<Submission, Error> {
        let mut found = ptr::null_mut();
        check(with_words(terms, |words| unsafe { spc_scheduler_submit(self.0, request.0, words, &mut found) })?)?;
        Ok(Submission(found))
    }
}

/// New output of one sequence of a request.
pub struct Delta {
    pub sequence: usize,
    pub text: String,
    pub tokens: Vec<i64>,
}

impl Submission {
    /// End its sequences after the round in progress.
    pub fn cancel(&self) {
        unsafe { spc_submission_cancel(self.0) }
    }
}

impl Iterator for Submission {
    type Item = Result<Delta, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        let (mut delta, mut done) = (ptr::null_mut(), 0);
        if let Err(error) = check(unsafe { spc_submission_next(self.0, -1.0, &mut delta, &mut done) }) {
            return Some(Err(error));
        }
        if delta.is_null() {
            return None;
        }
        let (mut text, mut size, mut ids, mut count) = (ptr::null(), 0, ptr::null(), 0);
        unsafe {
            spc_delta_text(delta, &mut text, &mut size);
            spc_delta_tokens(delta, &mut ids, &mut count);
            let bytes = if size > 0 { slice::from_raw_parts(text.cast(), size) } else { &[] };
            let tokens = if count > 0 { slice::from_raw_parts(ids, count).to_vec() } else { Vec::new() };
            let found = Delta { sequence: spc_delta_sequence(delta), text: String::from_utf8_lossy(bytes).into_owned(), tokens };
            spc_delta_free(delta);
            Some(Ok(found))
        }
    }
}
