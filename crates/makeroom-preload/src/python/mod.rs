//! Walks the calling thread's Python stack without the GIL.
//!
//! A thread inside a native call does not change its own Python frames, so it can read them without the GIL.
//! `PyGILState_GetThisThreadState` returns the thread state, and version-dependent offsets lead from there from frame
//! to frame ([`layout`]). No reference count is taken, so no pointer may be kept: a function's names and line table
//! are copied when it is first seen ([`functions`]), and it is recognized by its address together with its contents,
//! because addresses are reused.
//!
//! A wrong offset must not crash the program. The first walks read through the kernel ([`memory`]), which returns an
//! error where a bad pointer would fault, and check the type of every code object. Only after [`PROBATION`] walks
//! without a contradiction are frames read directly; one contradiction turns Python stacks off.

mod functions;
mod layout;
pub(crate) mod lines;
mod memory;

use std::ffi::{CStr, c_char, c_void};
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicUsize, Ordering};

pub(crate) use functions::Function;

use crate::lookup;
use crate::notices::{Notice, warn_once};
use crate::record::words::Words;
use crate::record::{seen, threads};
use layout::Layout;
use memory::{Access, Reader};

/// Walks through the kernel before frames are read directly.
const PROBATION: u32 = 64;

static LAYOUT: AtomicPtr<Layout> = AtomicPtr::new(std::ptr::null_mut());
static THREAD_STATE: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());
static CODE_TYPE: AtomicUsize = AtomicUsize::new(0);
static WALKS: AtomicU32 = AtomicU32::new(0);

/// Looks for an interpreter in the process. Called when recording starts.
pub(crate) fn start() {
    let symbol = |name: &CStr| lookup::real(libc::RTLD_DEFAULT, name);
    let (thread_state, version, code_type) =
        (symbol(c"PyGILState_GetThisThreadState"), symbol(c"Py_GetVersion"), symbol(c"PyCode_Type"));
    if thread_state.is_null() || version.is_null() || code_type.is_null() {
        return;
    }
    // SAFETY: Python's function of this name; it returns a static string and needs no GIL.
    let version = unsafe {
        let version = std::mem::transmute::<*mut c_void, extern "C" fn() -> *const c_char>(version);
        CStr::from_ptr(version())
    };
    let Some(layout) = Layout::of_version(version.to_bytes()) else {
        warn_once(Notice::UnknownPython);
        return;
    };
    THREAD_STATE.store(thread_state, Ordering::Relaxed);
    CODE_TYPE.store(code_type as usize, Ordering::Relaxed);
    LAYOUT.store(std::ptr::from_ref(layout).cast_mut(), Ordering::Release);
}

/// An address inside the interpreter's library, 0 if there is none.
pub(crate) fn interpreter_address() -> u64 {
    THREAD_STATE.load(Ordering::Relaxed) as u64
}

/// Appends the calling thread's Python frames, innermost first (function in the upper half, instruction in the
/// lower). Returns how many.
pub(crate) fn walk(words: &mut Words, most: usize) -> usize {
    // SAFETY: the pointer is null or points to one of the layouts, which are static.
    let Some(layout) = (unsafe { LAYOUT.load(Ordering::Acquire).as_ref() }) else { return 0 };
    let thread_state = THREAD_STATE.load(Ordering::Relaxed);
    // SAFETY: Python's function of this name; it reads a thread-local variable and needs no GIL.
    let state = unsafe { std::mem::transmute::<*mut c_void, extern "C" fn() -> usize>(thread_state)() };
    if state == 0 {
        return 0;
    }
    let walks = WALKS.load(Ordering::Relaxed);
    let access = if walks < PROBATION { Access::ThroughKernel } else { Access::Direct };
    let walk = Walk { layout, reader: Reader(access), code_type: CODE_TYPE.load(Ordering::Relaxed) };
    let seen = threads::own().map(|ring| &ring.seen);
    let Some(count) = walk.frames(state, words, most, seen) else {
        LAYOUT.store(std::ptr::null_mut(), Ordering::Release);
        warn_once(Notice::UnknownPython);
        return 0;
    };
    if walks < PROBATION && count > 0 {
        WALKS.store(walks + 1, Ordering::Relaxed);
    }
    count
}

/// A frame visited by a walk.
enum Passed {
    /// A function and the instruction in it.
    Function(u64),
    /// A frame that the interpreter puts between its own C calls.
    Interpreter,
}

struct Walk {
    layout: &'static Layout,
    reader: Reader,
    code_type: usize,
}

impl Walk {
    /// `None` if the memory contradicts the layout.
    fn frames(
        &self,
        state: usize,
        words: &mut Words,
        most: usize,
        seen: Option<&seen::Frames>,
    ) -> Option<usize> {
        if let Some(seen) = seen {
            let Layout { frame_code, frame_instruction, code_lines, .. } = *self.layout;
            seen.begin(seen::Looks { frame: [frame_code, frame_instruction], object: code_lines });
        }
        let mut frame =
            self.layout.first_frame.iter().try_fold(state, |at, &offset| {
                if at == 0 { Some(0) } else { self.reader.word(at + offset) }
            })?;
        let mut count = 0;
        while frame != 0 && count < most {
            if let Passed::Function(word) = self.frame(frame, count, seen)? {
                words.push(word);
                count += 1;
            }
            frame = self.reader.word(frame + self.layout.frame_previous)?;
        }
        if let Some(seen) = seen {
            seen.end(count);
        }
        Some(count)
    }

    /// Identifies a frame. `None` if the memory contradicts the layout.
    #[inline]
    fn frame(&self, frame: usize, count: usize, seen: Option<&seen::Frames>) -> Option<Passed> {
        let code = self.reader.word(frame + self.layout.frame_code)?;
        let at = self.reader.word((frame + self.layout.frame_instruction) & !7)?;
        let object = code & !layout::TAGS;
        if let Some(all) = seen {
            let (place, seen) = all.at(frame, code, at);
            if (seen.frame, seen.code, seen.instruction) == (frame, code, at)
                && self.reader.word(object + self.layout.code_lines)? == seen.lines
            {
                all.pass(count, place, frame, object);
                return Some(Passed::Function(seen.word));
            }
        }
        if self.is_internal(frame)? {
            return Some(Passed::Interpreter);
        }
        if self.reader.word(object + layout::TYPE)? != self.code_type {
            return None;
        }
        let function = functions::number(self.layout, self.reader, object)?;
        let word = u64::from(function) << 32 | u64::from(self.instruction(at, object));
        if let Some(all) = seen {
            let lines = self.reader.word(object + self.layout.code_lines)?;
            let (place, _) = all.at(frame, code, at);
            all.remember(place, seen::Seen { frame, code, instruction: at, lines, word });
            all.pass(count, place, frame, object);
        }
        Some(Passed::Function(word))
    }

    /// Whether the interpreter put this frame between its own C calls.
    fn is_internal(&self, frame: usize) -> Option<bool> {
        let Some(owner) = self.layout.frame_owner else { return Some(false) };
        Some(self.reader.byte(frame + owner)? >= layout::OWNED_BY_INTERPRETER)
    }

    /// A frame's offset in the function's code in bytes, from the word that holds its instruction.
    fn instruction(&self, at: usize, code: usize) -> u32 {
        match self.layout.instruction {
            layout::Instruction::Index { bytes_each } => {
                // A 32-bit field, negative before the first instruction; it may be in the upper half of its word.
                let half = (self.layout.frame_instruction & 4) * 8;
                ((at >> half) as u32).cast_signed().max(0).cast_unsigned() * bytes_each
            }
            layout::Instruction::Pointer { code_start } => at.wrapping_sub(code + code_start) as u32,
        }
    }
}
