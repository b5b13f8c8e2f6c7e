//! The library that `makeroom run -- PROGRAM` injects with `LD_PRELOAD`. It records every GPU and pinned-memory
//! allocation, with the stack that made it, into a `.room` file.
//!
//! # How it hooks the driver
//!
//! Programs reach the driver in three ways. Each is intercepted by exact name, from one table (`hooks::table`):
//!
//! 1. linked with `-lcuda`: this library exports the same functions, and the dynamic linker finds them first;
//! 2. `dlopen` and `dlsym`: this library exports `dlsym` (`hooks::loader`), which returns the hook;
//! 3. `cuGetProcAddress`: the driver resolves the symbol with the caller's own version and flags; if the address it
//!    returns is that of a function in the table, the caller gets the hook instead.
//!
//! Each hook is: guard, call, record, return. A free is stamped before the call and an allocation after it, so that
//! another thread's allocation of the same address cannot be stamped between the two.
//!
//! # Guarantees inside other people's processes
//!
//! - **Nothing happens without CUDA.** No file, thread or memory before the first successful call of a hooked
//!   function (`startup`).
//! - **Results never change** when only recording, and neither does `errno`.
//! - **No panic crosses the boundary.** All of a hook's work except the driver call runs under `catch_unwind`, once
//!   per hook (`call`); a panic disables the recorder for good and prints a notice. This needs `panic =
//!   "unwind"`. The driver call is outside, so exceptions, `longjmp` and thread cancellation pass through.
//! - **No deadlock.** Hooks take no lock: events reach the writer through single-producer single-consumer rings
//!   (`record`); stacks and names are in insert-only tables (`record::intern`). The writer never calls the dynamic
//!   loader, so a fork cannot copy a loader lock that the writer holds.
//! - **Bounded waits.** When the writer cannot keep up, a hook waits two milliseconds at most, then drops the event
//!   and counts it; the file records the count.
//! - **Sanitizers are left alone**: in a process with a sanitizer runtime the library does nothing (`sanitizer`).
//! - **The GIL is never taken**, nothing goes to stdout, and each notice goes to `run`, or to stderr, once.
//! - **The program's file descriptors are never touched**, and it cannot close the recorder's: the writer has its own
//!   descriptor table (`own_table`).
//!
//! # Environment variables, set by `run` and `env`
//!
//! | variable | meaning | default |
//! |---|---|---|
//! | `MAKEROOM` | `off` disables everything | |
//! | `MAKEROOM_FILE` | where to record; `%p` is the process id, `%r` the rank (without one the process id, unless the name has `%p` too), `%j` the job, `%a` the attempt, `%h` the host (`writer::output`). Directories whose names contain a placeholder are created. If the file exists (a child, or a program after `exec`), the process id and, if need be, a number go before its extension | `makeroom.%p.room` |
//! | `MAKEROOM_RANK_FILE` | the same for a process that knows its rank; its directory is created | `MAKEROOM_FILE` |
//! | `MAKEROOM_RUN_ID` | 32 hexadecimal digits, the same in all files of one run | zeros |
//! | `MAKEROOM_STACKS` | `full` (native and Python), `native`, `none` | `full` |
//! | `MAKEROOM_LIMIT` | bytes of each device's memory that this process can see and allocate | the card's |
//! | `MAKEROOM_MEASURE` | `on` measures the hooks' own time, without the hooked calls; the recording ends with a note of it, and a program can read it with `makeroom_recorder_cost` and `makeroom_pool_cost` | |
//! | `MAKEROOM_POOL` | `on`: makeroom's pool serves the program's device memory; `paging`: and PyTorch's expandable segments have physical memory only where tensors are (`pages`) | off |
//! | `MAKEROOM_SPILL` | bytes of host memory that the pool may use in place of device memory | none |
//! | `MAKEROOM_STATUS` | `on` sends `status PID DEVICE PINNED TENSORS ALLOCATIONS FILE` to the socket when these figures change, at most ten times a second | |
//! | `MAKEROOM_COMMAND_LINE` | `off` leaves the command line out of the recording; otherwise secrets in it are masked | |
//! | `MAKEROOM_KEEP` | `failed` removes the recording of a process that exits with status 0 and had no failed allocation; `last=N` removes older recordings of the folder | `all` |
//! | `MAKEROOM_RING` | bytes that the recording may take: older events are dropped, live memory stays exact (`writer::bounded`) | any number |
//! | `MAKEROOM_SOCKET` | a datagram socket that receives `recording PID FILE`, or `unrecorded PID REASON`, or `sanitized PID SANITIZER`; `refused PID BYTES DEVICE FILE` for each failed allocation; `stopped PID MILLISECONDS REASON` when the file can no longer be written; `notice PID TEXT` | |
//!
//! The environment is read once, when the library is loaded. Child processes inherit it: each that uses CUDA writes
//! its own file.
//!
//! # Platforms
//!
//! Linux with glibc, x86-64 and aarch64. `dlsym` depends on its caller's address (`RTLD_NEXT`), so `hooks::loader` jumps to
//! the real one with the caller's return address in place. That shim and those of `exits` are assembly for each
//! architecture. On others `dlsym` is not hooked, and only programs linked with `-lcuda` are recorded.
#![cfg_attr(
    any(test, not(any(target_arch = "x86_64", target_arch = "aarch64"))),
    allow(
        dead_code,
        unused_imports,
        reason = "only exported functions use them, which tests must not export"
    )
)]

#[cfg(not(panic = "unwind"))]
compile_error!(
    "the recorder catches its panics before they reach the host program: build it with panic = \"unwind\""
);

mod call;
mod clock;
mod config;
mod cost;
mod driver;
mod errno;
mod event;
mod exits;
mod exports;
mod fields;
mod files;
mod hooks;
mod limit;
mod lookup;
mod notices;
mod own_table;
mod pages;
mod pool;
mod python;
mod record;
mod sample;
mod sanitizer;
mod socket;
mod stacks;
mod startup;
mod state;
mod symbols;
mod sync;
mod tensors;
mod wait;
mod writer;
