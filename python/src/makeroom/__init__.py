"""Find out why CUDA ran out of memory, and use less of it.

    makeroom.explain(error)            explain an exception, an error message, a log or a recording
    makeroom.install_excepthook()      print the explanation under each out-of-memory traceback
    makeroom.job(path)                 explain a job of many ranks from their recordings, snapshots and logs
    makeroom.why, replay, tune         same as the commands of the same name
    makeroom.open(path)                read a recording as tables for polars, pandas and pyarrow
    makeroom.watch()                   measure a block of code: peak, lines, leak per step
    makeroom.use_pool()                avoid fragmentation in PyTorch, CuPy and RMM
    makeroom.chunks(array, function)   apply a function to data larger than the GPU
    makeroom.callbacks                 callbacks for Hugging Face and Lightning trainers

Importing makeroom needs neither PyTorch nor a GPU. Each name loads its module on first use.
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from . import callbacks as callbacks
    from ._chunks import chunks as chunks
    from ._excepthook import install_excepthook as install_excepthook
    from ._excepthook import uninstall_excepthook as uninstall_excepthook
    from ._explanation import Explanation as Explanation
    from ._explanation import explain as explain
    from ._explanation import why as why
    from ._job import Job as Job
    from ._job import job as job
    from ._library import OutOfMemoryError as OutOfMemoryError
    from ._library import PoolError as PoolError
    from ._native import InputError as InputError
    from ._native import UsageError as UsageError
    from ._native import __version__ as __version__
    from ._pool import Pool as Pool
    from ._pool import use_pool as use_pool
    from ._replay import Replay as Replay
    from ._replay import Tuning as Tuning
    from ._replay import replay as replay
    from ._replay import tune as tune
    from ._trace import Table as Table
    from ._trace import Trace as Trace
    from ._trace import open as open
    from ._watch import Watch as Watch
    from ._watch import WatchError as WatchError
    from ._watch import watch as watch

_HOMES = {
    "Explanation": "_explanation",
    "InputError": "_native",
    "Job": "_job",
    "OutOfMemoryError": "_library",
    "Pool": "_pool",
    "PoolError": "_library",
    "Replay": "_replay",
    "Table": "_trace",
    "Trace": "_trace",
    "Tuning": "_replay",
    "UsageError": "_native",
    "Watch": "_watch",
    "WatchError": "_watch",
    "chunks": "_chunks",
    "explain": "_explanation",
    "install_excepthook": "_excepthook",
    "job": "_job",
    "open": "_trace",
    "replay": "_replay",
    "tune": "_replay",
    "uninstall_excepthook": "_excepthook",
    "use_pool": "_pool",
    "watch": "_watch",
    "why": "_explanation",
    "__version__": "_native",
}

__all__ = [name for name in _HOMES if not name.startswith("_")]


def __getattr__(name: str) -> object:
    from importlib import import_module

    if name == "callbacks":
        return import_module(f"{__name__}.callbacks")
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

    value = getattr(import_module(f"{__name__}.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> "list[str]":
    return sorted({*globals(), *_HOMES})
