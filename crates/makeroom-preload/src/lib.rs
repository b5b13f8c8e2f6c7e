//! The library that `makeroom run -- PROGRAM` injects with `LD_PRELOAD`: it records every byte the program takes on
//! the GPU and in pinned memory, with the place in the code that took it, into a `.room` file.
//!
//! # How it gets between a program and the driver
//!
//! Programs reach the driver by three ways, and each is met with exact names out of one table (`hooks::table`):
//!
//! 1. linked with `-lcuda`: the functions are exported here, and the dynamic linker finds these first;
//! 2. `dlopen` and `dlsym`: `dlsym` is exported here (`lookup`) and answers with the hook;
//! 3. `cuGetProcAddress`: the driver is asked with the caller's own version and flags, and if the address it
//!    answers is that of a function in the table, the hook's address is given instead.
//!
//! Each hook reads: guard, call, record, return. A free is stamped before the call and an allocation after it, so
//! that no other thread's allocation of the same address comes between them in time.
//!
//! # What holds inside other people's processes
//!
//! - **Nothing happens without CUDA.** No file, no thread, no memory before the first successful call of a hooked
//!   function (`state`).
//! - **Results are never changed** when only recording, `errno` included.
//! - **No panic crosses the boundary.** What a hook does besides calling the driver runs under `catch_unwind`, once
//!   per hook (`hooks::call`); a panic disables the recorder for good and says so. This needs `panic = "unwind"`.
//!   The driver is called outside of it: exceptions, `longjmp` and thread cancellation pass through.
//! - **No deadlock.** Hooks take no lock: rings with one producer and one consumer lead to the writer (`record`),
//!   tables that only grow hold stacks and names (`record::intern`). The writer opens no library and asks the
//!   loader nothing, so that a fork never copies a lock in its hands.
//! - **No waiting.** When the writer cannot keep up, a hook waits two milliseconds at most and then counts what is
//!   lost; the file says how much.
//! - **Sanitizers are left alone**: in a process with such a runtime nothing is done at all (`sanitizer`).
//! - **The GIL is never taken**, nothing is printed to stdout, and each notice goes to `run`, or to stderr, once.
//! - **No descriptor of the program is touched**, whatever it closes or opens: the writer has a table of its own
//!   (`own_table`).
//!
//! # The environment, set by `run`
//!
//! | variable | meaning | default |
//! |---|---|---|
//! | `MAKEROOM` | `off` disables everything | |
//! | `MAKEROOM_FILE` | where to record; `%p` is the process id. If the file exists (a child, or a program after `exec`), the process id and, if need be, a number go before its extension | `makeroom.%p.room` |
//! | `MAKEROOM_RUN_ID` | 32 hexadecimal digits, the same in all files of one run | zeros |
//! | `MAKEROOM_STACKS` | `full` (native and Python), `native`, `none` | `full` |
//! | `MAKEROOM_LIMIT` | bytes of each device's memory that this process may see and take | the card's |
//! | `MAKEROOM_MEASURE` | `on` adds up the time that hooks spend beside the calls they are for; the recording ends with a note of it, and `makeroom_recorder_cost` and `makeroom_pool_cost` answer the program | |
//! | `MAKEROOM_POOL` | `on`: makeroom's own pool serves the program's device memory | off |
//! | `MAKEROOM_SPILL` | bytes of host memory that may stand in for device memory, with the pool | none |
//! | `MAKEROOM_STATUS` | `on` sends the socket `status PID DEVICE PINNED TENSORS ALLOCATIONS FILE` whenever these figures have changed, ten times a second at most | |
//! | `MAKEROOM_COMMAND_LINE` | `off` leaves the command line out of the recording; otherwise secrets in it are masked | |
//! | `MAKEROOM_SOCKET` | a datagram socket that gets `recording PID FILE`, or `unrecorded PID REASON`, or `sanitized PID SANITIZER`; for each refused allocation `refused PID BYTES DEVICE FILE`; `stopped PID MILLISECONDS REASON` when the file cannot be written any more; `notice PID TEXT` | |
//!
//! The environment is read once, when the library is loaded, and passes on to children: each that uses CUDA writes
//! a file of its own.
//!
//! # Platforms
//!
//! Linux with glibc, x86-64 and aarch64. `dlsym` depends on its caller's address (`RTLD_NEXT`), so `lookup` jumps into the
//! real one with the caller's return address in place; that shim and those of `exits` are instructions of each processor. On
//! others `dlsym` is left alone and only programs that are linked with `-lcuda` are seen.
#![cfg_attr(
    any(test, not(any(target_arch = "x86_64", target_arch = "aarch64"))),
    allow(dead_code, unused_imports, reason = "what uses them is exported, which a test must not do")
)]

mod asked;
mod clock;
mod config;
mod cost;
mod driver;
mod errno;
mod exits;
mod files;
mod hooks;
mod limit;
mod lookup;
mod notices;
mod own_table;
mod pool;
mod python;
mod record;
mod sample;
mod sanitizer;
mod stacks;
mod state;
mod symbols;
mod sync;
mod wait;
mod writer;
