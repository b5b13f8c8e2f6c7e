//! The last error of each thread, and the guard around every exported function.

use std::any::Any;
use std::cell::RefCell;
use std::ffi::{CString, c_char};
use std::panic::{AssertUnwindSafe, catch_unwind};

use makeroom_pool::{OutOfMemory, PoolError};

use crate::abi::{self, RawShortage, Status};
use crate::options;

/// The result type behind the C boundary.
pub(crate) type Result<T> = std::result::Result<T, Failure>;

/// A status with its text and, if memory ran out, its figures.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) status: Status,
    pub(crate) text: String,
    shortage: Option<RawShortage>,
}

impl Failure {
    pub(crate) fn new(status: Status, text: String) -> Self {
        Self { status, text, shortage: None }
    }

    pub(crate) fn argument(text: String) -> Self {
        Self::new(abi::INVALID_ARGUMENT, text)
    }
}

impl From<PoolError> for Failure {
    fn from(error: PoolError) -> Self {
        let status = match &error {
            PoolError::OutOfMemory(_) => abi::OUT_OF_MEMORY,
            PoolError::WrongAddress(_) => abi::WRONG_ADDRESS,
            PoolError::Forked => abi::FORKED,
            PoolError::OtherContext { .. }
            | PoolError::TooManyElements { .. }
            | PoolError::LengthsDiffer { .. } => abi::INVALID_ARGUMENT,
            // Of the rest, only driver errors reach this interface: pieces belong to chunked transfers, which it does
            // not have.
            _ => abi::DRIVER,
        };
        let mut text = error.to_string();
        if let Some(hint) = error.hint() {
            text.push_str("\n\nhint: ");
            text.push_str(hint);
        }
        let shortage = match &error {
            PoolError::OutOfMemory(error) => Some(figures(error)),
            _ => None,
        };
        Self { status, text, shortage }
    }
}

fn figures(error: &OutOfMemory) -> RawShortage {
    let stats = error.pool.stats;
    RawShortage {
        size: size_of::<RawShortage>(),
        requested: error.pool.requested,
        device_free: error.device.map_or(0, |device| device.free.get()),
        device_total: error.device.map_or(0, |device| device.total.get()),
        largest: error.pool.largest,
        live: stats.live,
        reserved: stats.reserved,
        limit: error.pool.limit.unwrap_or(0),
        spilled: error.spilled.map_or(0, |(now, _)| now.get()),
        spill_quota: error.spilled.map_or(0, |(_, quota)| quota.get()),
    }
}

/// The results of `makeroom_last_error` and `makeroom_last_shortage`.
#[derive(Debug, Default)]
struct Last {
    text: CString,
    shortage: Option<RawShortage>,
}

thread_local! {
    static LAST: RefCell<Last> = RefCell::default();
}

/// Stores a failure for this thread. At thread exit the storage is gone, and the failure is dropped. Formatting may
/// itself panic, which is caught too.
pub(crate) fn keep(failure: Failure) -> Status {
    let status = failure.status;
    let keep = move || {
        let Failure { text, shortage, .. } = failure;
        let text = CString::new(text.replace('\0', " ")).unwrap_or_default();
        let last = Last { text, shortage };
        let _ = LAST.try_with(|place| {
            if let Ok(mut place) = place.try_borrow_mut() {
                *place = last;
            }
        });
    };
    catch_unwind(AssertUnwindSafe(keep)).map_or(abi::INTERNAL, |()| status)
}

/// Pointer to the last failure's text, valid until this thread's next failure.
pub(crate) fn text() -> *const c_char {
    let text = LAST.try_with(|last| last.try_borrow().map_or(c"".as_ptr(), |last| last.text.as_ptr()));
    text.unwrap_or(c"".as_ptr())
}

/// Runs the body of an exported function. Panics end here.
pub(crate) fn guard<T>(what: impl FnOnce() -> Result<T>) -> Result<T> {
    catch_unwind(AssertUnwindSafe(what)).unwrap_or_else(|panic| Err(internal(&*panic)))
}

/// [`guard`] for functions that return a status.
pub(crate) fn answer(what: impl FnOnce() -> Result<()>) -> Status {
    match guard(what) {
        Ok(()) => abi::OK,
        Err(failure) => keep(failure),
    }
}

fn internal(panic: &(dyn Any + Send)) -> Failure {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("without a message");
    Failure::new(abi::INTERNAL, format!("a bug in libmakeroom_pool: {text}"))
}

/// The last error on this thread, with a hint.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn makeroom_last_error() -> *const c_char {
    text()
}

/// The figures of the last failure, if memory ran out.
///
/// # Safety
///
/// `shortage` is null or points to a `makeroom_shortage` whose size is set.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn makeroom_last_shortage(shortage: *mut RawShortage) -> Status {
    // Its own failure is not stored: that would overwrite the one the caller asks about.
    let last = LAST.try_with(|last| last.try_borrow().ok().and_then(|last| last.shortage)).ok().flatten();
    let Some(figures) = last else { return abi::INVALID_ARGUMENT };
    // SAFETY: guaranteed by the caller.
    let written = guard(|| unsafe { options::write(shortage, "shortage", &figures) });
    written.map_or_else(|failure| failure.status, |()| abi::OK)
}
