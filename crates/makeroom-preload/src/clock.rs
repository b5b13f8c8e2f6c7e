//! Clocks. Events are stamped with the monotonic one.

/// `CLOCK_MONOTONIC` in nanoseconds, comparable between all threads of a machine.
pub(crate) fn monotonic_ns() -> u64 {
    read(libc::CLOCK_MONOTONIC)
}

/// Nanoseconds since the Unix epoch.
pub(crate) fn wall_ns() -> u64 {
    read(libc::CLOCK_REALTIME)
}

/// CPU time of the calling thread, in nanoseconds.
pub(crate) fn thread_cpu_ns() -> u64 {
    read(libc::CLOCK_THREAD_CPUTIME_ID)
}

/// Nanoseconds of any clock; 0 if the clock does not exist, such as that of a thread that has ended.
pub(crate) fn read(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a valid out-parameter, which the kernel fills or leaves zero.
    unsafe { libc::clock_gettime(clock, &raw mut time) };
    (time.tv_sec as u64).wrapping_mul(1_000_000_000).wrapping_add(time.tv_nsec as u64)
}
