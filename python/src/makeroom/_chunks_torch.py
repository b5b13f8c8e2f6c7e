"""Pieces with PyTorch: copies on a stream of their own for each direction, through pinned memory."""

from __future__ import annotations

from typing import Any, Callable, NamedTuple

from . import _torch
from ._native import UsageError


class Ticket(NamedTuple):
    """A result on its way back. What it is computed from is kept: copies do not hold their memory."""

    result: Any
    is_back: Any
    kept: tuple[Any, ...]
    is_numpy: bool


class TorchBackend:
    def __init__(self, device: int) -> None:
        import torch

        if _torch.on_cuda() is None:
            raise UsageError(_torch.why_not())
        self._torch = torch
        self._device = torch.device("cuda", device)
        self._up, self._down = torch.cuda.Stream(self._device), torch.cuda.Stream(self._device)

    def room(self) -> int:
        cuda = self._torch.cuda
        unused = cuda.memory_reserved(self._device) - cuda.memory_allocated(self._device)
        return cuda.mem_get_info(self._device)[0] + max(unused, 0)

    def submit(self, rows: Any, function: Callable[[Any], Any]) -> Ticket:
        torch, cuda = self._torch, self._torch.cuda
        is_numpy = not isinstance(rows, torch.Tensor)
        tensor = torch.from_numpy(rows.copy() if not rows.flags.writeable else rows) if is_numpy else rows
        staged = tensor.contiguous().pin_memory()
        compute = cuda.current_stream(self._device)
        with cuda.stream(self._up):
            piece = staged.to(self._device, non_blocking=True)
        compute.wait_stream(self._up)
        piece.record_stream(compute)
        result = function(piece)
        if not isinstance(result, torch.Tensor):
            raise UsageError(f"the function gave a {type(result).__name__}, not a tensor")
        result = result.contiguous()
        back = torch.empty(result.shape, dtype=result.dtype, pin_memory=True)
        self._down.wait_stream(compute)
        with cuda.stream(self._down):
            back.copy_(result, non_blocking=True)
        result.record_stream(self._down)
        is_back = self._down.record_event()
        return Ticket(back, is_back, (staged, piece, result), is_numpy)

    def finish(self, ticket: Ticket) -> Any:
        ticket.is_back.synchronize()
        return ticket.result.numpy() if ticket.is_numpy else ticket.result

    def drain(self) -> None:
        self._torch.cuda.synchronize(self._device)
        self._torch.cuda.empty_cache()

    def measure(self, work: Callable[[], Any]) -> tuple[Any, int]:
        cuda = self._torch.cuda
        before = cuda.memory_allocated(self._device)
        cuda.reset_peak_memory_stats(self._device)
        result = work()
        return result, max(cuda.max_memory_allocated(self._device) - before, 0)

    def is_out_of_memory(self, error: BaseException) -> bool:
        from ._excepthook import is_about_memory

        return is_about_memory(error)

    def close(self) -> None:
        # Nothing must be under way when a failure is reported: the data may be gone then.
        self._torch.cuda.synchronize(self._device)
