//! The clocks: the monotonic one stamps events.

/// Nanoseconds of the monotonic clock; comparable between all threads of a machine.
pub(crate) fn monotonic_ns() -> u64 {
    read(libc::CLOCK_MONOTONIC)
}

/// Nanoseconds since 1970.
pub(crate) fn wall_ns() -> u64 {
    read(libc::CLOCK_REALTIME)
}

/// Nanoseconds that the calling thread has run.
pub(crate) fn thread_cpu_ns() -> u64 {
    read(libc::CLOCK_THREAD_CPUTIME_ID)
}

/// Nanoseconds of any clock; 0 where there is none, as that of a thread that has ended.
pub(crate) fn read(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a valid place for the answer, and the kernel fills it or leaves it zero.
    unsafe { libc::clock_gettime(clock, &raw mut time) };
    (time.tv_sec as u64).wrapping_mul(1_000_000_000).wrapping_add(time.tv_nsec as u64)
}
