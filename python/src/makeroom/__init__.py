"""Find out why CUDA ran out of memory, and use less of it.

    makeroom.explain(error)            explain an exception, an error message, a log or a recording
    makeroom.install_excepthook()      print the explanation under each out-of-memory traceback
    makeroom.job(path)                 explain a job of many ranks from their recordings, snapshots and logs
    makeroom.replay, tune              same as the commands of the same name
    makeroom.open(path)                read a recording as tables for polars, pandas, pyarrow and DuckDB
    makeroom.view(path)                show the interactive page of a recording in a notebook cell
    %load_ext makeroom                 %%makeroom measures a notebook cell
    makeroom.watch()                   measure a block of code: peak, lines, leak per step
    makeroom.use_pool()                avoid fragmentation in PyTorch, CuPy and RMM
    makeroom.chunks(array, function)   apply a function to data larger than the GPU
    makeroom.callbacks                 callbacks for Hugging Face and Lightning trainers
    makeroom.spark, ray                index the recordings of a bucket on a cluster

Importing makeroom needs neither PyTorch nor a GPU. Each name loads its module on first use.
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from . import callbacks as callbacks
    from . import ray as ray
    from . import spark as spark
    from ._impl._answer import Fix as Fix
    from ._impl._chunks import chunks as chunks
    from ._impl._excepthook import install_excepthook as install_excepthook
    from ._impl._excepthook import uninstall_excepthook as uninstall_excepthook
    from ._impl._explanation import Explanation as Explanation
    from ._impl._explanation import Ledger as Ledger
    from ._impl._explanation import LedgerLine as LedgerLine
    from ._impl._explanation import explain as explain
    from ._impl._explanation import why as why
    from ._impl._groups import Group as Group
    from ._impl._groups import Groups as Groups
    from ._impl._job import Culprit as Culprit
    from ._impl._job import Job as Job
    from ._impl._job import Line as Line
    from ._impl._job import Rank as Rank
    from ._impl._job import job as job
    from ._impl._library import OutOfMemoryError as OutOfMemoryError
    from ._impl._library import PoolError as PoolError
    from ._impl._library import Stats as Stats
    from ._impl._magic import load_ipython_extension as load_ipython_extension
    from ._impl._magic import unload_ipython_extension as unload_ipython_extension
    from ._impl._native import InputError as InputError
    from ._impl._native import UsageError as UsageError
    from ._impl._native import __version__ as __version__
    from ._impl._pool import Pool as Pool
    from ._impl._pool import use_pool as use_pool
    from ._impl._replay import Best as Best
    from ._impl._replay import Check as Check
    from ._impl._replay import Replay as Replay
    from ._impl._replay import Run as Run
    from ._impl._replay import Tuning as Tuning
    from ._impl._replay import replay as replay
    from ._impl._replay import tune as tune
    from ._impl._table import Table as Table
    from ._impl._trace import Trace as Trace
    from ._impl._trace import open as open
    from ._impl._types import Cause as Cause
    from ._impl._types import Certainty as Certainty
    from ._impl._types import Fate as Fate
    from ._impl._types import Framework as Framework
    from ._impl._types import JobCause as JobCause
    from ._impl._types import Kind as Kind
    from ._impl._types import SourceName as SourceName
    from ._impl._view import View as View
    from ._impl._view import view as view
    from ._impl._watch import Site as Site
    from ._impl._watch import Step as Step
    from ._impl._watch import Watch as Watch
    from ._impl._watch import WatchError as WatchError
    from ._impl._watch import WatchWarning as WatchWarning
    from ._impl._watch import WatchedDevice as WatchedDevice
    from ._impl._watch import watch as watch

_HOMES = {
    "Best": "_replay",
    "Cause": "_types",
    "Certainty": "_types",
    "Check": "_replay",
    "Culprit": "_job",
    "Explanation": "_explanation",
    "Fate": "_types",
    "Fix": "_answer",
    "Framework": "_types",
    "Group": "_groups",
    "Groups": "_groups",
    "InputError": "_native",
    "Job": "_job",
    "JobCause": "_types",
    "Kind": "_types",
    "Ledger": "_explanation",
    "LedgerLine": "_explanation",
    "Line": "_job",
    "OutOfMemoryError": "_library",
    "Pool": "_pool",
    "PoolError": "_library",
    "Rank": "_job",
    "Replay": "_replay",
    "Run": "_replay",
    "Site": "_watch",
    "SourceName": "_types",
    "Stats": "_library",
    "Step": "_watch",
    "Table": "_table",
    "Trace": "_trace",
    "Tuning": "_replay",
    "UsageError": "_native",
    "View": "_view",
    "Watch": "_watch",
    "WatchError": "_watch",
    "WatchWarning": "_watch",
    "WatchedDevice": "_watch",
    "__version__": "_native",
    "chunks": "_chunks",
    "explain": "_explanation",
    "install_excepthook": "_excepthook",
    "job": "_job",
    "load_ipython_extension": "_magic",
    "open": "_trace",
    "replay": "_replay",
    "tune": "_replay",
    "uninstall_excepthook": "_excepthook",
    "unload_ipython_extension": "_magic",
    "use_pool": "_pool",
    "view": "_view",
    "watch": "_watch",
    "why": "_explanation",
}

_MODULES = ("callbacks", "ray", "spark")

# Without `open`, so that a star import does not replace Python's, and without the functions that IPython calls.
__all__ = [name for name in _HOMES if not name.startswith("_") and not name.endswith("_extension") and name != "open"]

if not TYPE_CHECKING:
    # A type checker would take this function to mean that every name exists.
    def __getattr__(name):
        from importlib import import_module

        if name in _MODULES:
            return import_module(f"{__name__}.{name}")
        home = _HOMES.get(name)
        if home is None:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

        value = getattr(import_module(f"{__name__}._impl.{home}"), name)
        globals()[name] = value
        return value


def __dir__() -> "list[str]":
    dunders = [name for name in globals() if name.startswith("__")]
    return sorted({*dunders, *__all__, *_MODULES, "open", "__version__"})
