"""A generated training log: progress bars, loss lines, eight interleaved ranks, a failure in the middle and one at the end."""
import random

FAILURE = """[rank{rank}]: Traceback (most recent call last):
[rank{rank}]:   File "/home/user/train.py", line 412, in <module>
[rank{rank}]:     main()
[rank{rank}]:   File "/home/user/train.py", line 287, in main
[rank{rank}]:     loss = model(batch["input_ids"], labels=batch["labels"]).loss
[rank{rank}]:   File "/opt/conda/lib/python3.11/site-packages/torch/nn/modules/module.py", line 1779, in _call_impl
[rank{rank}]:     return forward_call(*args, **kwargs)
[rank{rank}]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate {request}.00 GiB. GPU {rank} has a total capacity \
of 79.15 GiB of which 1.31 GiB is free. Including non-PyTorch memory, this process has 77.83 GiB memory in use. Of the \
allocated memory 74.02 GiB is allocated by PyTorch, and 2.60 GiB is reserved by PyTorch but unallocated.
"""


def write_log(path, megabytes):
    """A training log of about this size."""
    chance = random.Random(7)
    size, written, step, has_failed = int(megabytes * 1e6), 0, 0, False
    with open(path, "w", encoding="utf-8") as file:
        written += file.write("$ export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True\n")
        written += file.write("2026-03-01 09:00:00,000 INFO train.py:31 config: batch_size=16 sequence_length=4096 lr=3e-4\n")
        while written < size:
            step += 1
            clock = f"2026-03-01 {9 + step // 360000 % 12:02}:{step // 6000 % 60:02}:{step // 100 % 60:02},{step % 1000:03}"
            percent = step // 1000 % 100
            bar = "█" * (percent // 10)
            done = f"\rEpoch {step // 100000}: {percent:3}%|{bar:<10}| {step % 100000}/100000 [{step // 60:02}:{step % 60:02}<{step % 97}:{step % 60:02}, {3 + step % 7 / 10:.2f}it/s, v_num=3]"
            written += file.write(done) + 2 * len(bar)
            if step % 20 == 0:
                written += file.write("\n")
                for rank in range(8):
                    loss = 2.5 + chance.random() / 10
                    written += file.write(
                        f"[rank{rank}]: {clock} INFO trainer.py:188 step {step} loss {loss:.4f} grad_norm {chance.random() * 3:.3f}"
                        f" lr 2.{step % 9999:04}e-04 tokens/s {41000 + step % 977} mem 71.{step % 100:02}GiB\n")
            if step % 500 == 0:
                written += file.write(f"{clock} WARNING dataloader.py:77 sample {step * 31} is shorter than 4096 tokens, padding\n")
                written += file.write(f"{clock} DEBUG nccl: all_reduce bucket {step % 64} of 64 took {chance.random() * 20:.3f} ms\n")
            if not has_failed and written > size // 2:
                has_failed = True
                written += file.write("\n" + FAILURE.format(rank=3, request=4))
                written += file.write("restarting from checkpoint step_%d\n" % step)
        file.write("\n" + FAILURE.format(rank=5, request=6))
