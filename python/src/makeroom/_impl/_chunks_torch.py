"""PyTorch backend of `chunks`, with one copy stream for each direction."""

from __future__ import annotations

from typing import Any, Callable

from . import _torch
from ._chunks_copy import Copier, Place, Ticket
from ._native import UsageError


class TorchTicket(Ticket):
    """A result that becomes a NumPy array if the input is one, else a tensor."""

    def __init__(self, piece: Any, result: Any, is_numpy: bool) -> None:
        super().__init__(piece, result)
        self.is_numpy = is_numpy


class TorchWire:
    """Copies between pinned and device tensors of bytes."""

    def __init__(self, torch: Any, device: Any) -> None:
        self._torch, self._device = torch, device
        self.up, self.down = torch.cuda.Stream(device), torch.cuda.Stream(device)

    def enter(self) -> None:
        self._torch.cuda.set_device(self._device)

    def pinned(self, bytes: int) -> tuple[Any, int]:
        buffer = self._torch.empty(bytes, dtype=self._torch.uint8, pin_memory=True)
        return buffer, buffer.data_ptr()

    def computed(self) -> Any:
        return self._torch.cuda.current_stream(self._device).record_event()

    def follow(self, computed: Any) -> None:
        self.down.wait_event(computed)

    def send(self, buffer: Any, device: Any, offset: int, bytes: int) -> Any:
        with self._torch.cuda.stream(self.up):
            device[offset : offset + bytes].copy_(buffer[:bytes], non_blocking=True)
        return self.up.record_event()

    def fetch(self, buffer: Any, device: Any, offset: int, bytes: int) -> Any:
        with self._torch.cuda.stream(self.down):
            buffer[:bytes].copy_(device[offset : offset + bytes], non_blocking=True)
        return self.down.record_event()

    def wait(self, event: Any) -> None:
        event.synchronize()


class TorchBackend:
    def __init__(self, device: int, total: int) -> None:
        import torch

        if _torch.on_cuda() is None:
            raise UsageError(_torch.why_not())
        self._torch = torch
        self._device = torch.device("cuda", device)
        self._wire = TorchWire(torch, self._device)
        self._copier = Copier(self._wire, total)

    def room(self) -> int:
        cuda = self._torch.cuda
        unused = cuda.memory_reserved(self._device) - cuda.memory_allocated(self._device)
        return int(cuda.mem_get_info(self._device)[0] + max(unused, 0))

    def submit(self, rows: Any, function: Callable[[Any], Any]) -> TorchTicket:
        torch, cuda = self._torch, self._torch.cuda
        is_numpy = not isinstance(rows, torch.Tensor)
        if is_numpy:
            import numpy

            rows = numpy.ascontiguousarray(rows)
            dtype, source = torch.from_numpy(numpy.empty(0, rows.dtype)).dtype, rows.ctypes.data
        else:
            rows = rows.detach().resolve_conj().resolve_neg().contiguous()
            dtype, source = rows.dtype, rows.data_ptr()
        compute = cuda.current_stream(self._device)
        with cuda.stream(self._wire.up):
            memory = torch.empty(int(rows.nbytes), dtype=torch.uint8, device=self._device)
        self._copier.send(source, memory, int(rows.nbytes))
        compute.wait_stream(self._wire.up)
        memory.record_stream(compute)
        piece = memory.view(dtype).view(tuple(rows.shape))
        result = function(piece)
        if not isinstance(result, torch.Tensor):
            raise UsageError(
                f"the function returned {type(result).__name__}, not a tensor\n\nhint: return a tensor on the GPU"
            )
        result = result.detach().resolve_conj().resolve_neg().contiguous()
        return TorchTicket(piece, result, is_numpy)

    def fetch(self, ticket: TorchTicket, place: Place) -> None:
        torch, result = self._torch, ticket.result

        def make(shape: tuple[int, ...]) -> Any:
            array = torch.empty(shape, dtype=result.dtype)
            return array.numpy() if ticket.is_numpy else array

        ticket.place = place(tuple(result.shape), make)
        self._copier.fetch(ticket, result.reshape(-1).view(torch.uint8), int(result.nbytes))

    def finish(self, ticket: TorchTicket) -> Any:
        return ticket.wait()

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
        # Finish all copies before an error reaches the caller, who may then free the data.
        self._copier.close()
        self._torch.cuda.synchronize(self._device)
