"""Runs a command and prints its wall-clock seconds, CPU seconds, peak resident bytes and exit status: spawn.py COMMAND...

A child process starts with its parent's peak resident memory, so this parent must be small: no imports but these."""
import os
import sys
import time

nowhere = os.open(os.devnull, os.O_WRONLY)
start = time.perf_counter()
pid = os.posix_spawnp(sys.argv[1], sys.argv[1:], os.environ,
                      file_actions=[(os.POSIX_SPAWN_DUP2, nowhere, 1), (os.POSIX_SPAWN_DUP2, nowhere, 2)])
_, status, usage = os.wait4(pid, 0)
seconds = time.perf_counter() - start
print(seconds, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024, os.waitstatus_to_exitcode(status))
