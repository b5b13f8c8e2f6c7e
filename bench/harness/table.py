"""The table that `bench/run` prints, a row as soon as its figure is measured."""
import os

WIDTHS = (50, 13, 36, 7, 15)


def number(value, unit=""):
    """Three digits are enough for a measurement; a factor close to 1 needs more."""
    size = abs(value)
    if not unit and 0.9 < size < 2 and value != int(value):
        return f"{value:.4f}"
    if value == int(value) and size < 100_000:
        return f"{value:.0f}"
    if size >= 100_000:
        return f"{value:.3g}" if size >= 1e9 else f"{value:,.0f}"
    return f"{value:.0f}" if size >= 100 else f"{value:.1f}" if size >= 10 else f"{value:.3g}"


def row(*cells):
    return "".join(f"{cell:<{width}} " for cell, width in zip(cells, WIDTHS)).rstrip()


def heading():
    return row("figure", "makeroom", "peer", "ratio", "goal")


def line(figure):
    """A figure, with its unit and with whether the goal is met."""
    quantity = lambda value: f"{number(value, figure.unit)} {figure.unit}".strip()
    peer = f"{figure.peer} {quantity(figure.peer_value)}" if figure.peer_value is not None else ""
    verdict = {None: str(figure.goal or ""), True: f"{figure.goal}", False: f"{figure.goal}  MISSED"}[figure.is_met]
    ratio = f"{figure.ratio:.3g}" if figure.ratio is not None else ""
    text = row("  " + figure.name, quantity(figure.value), peer, ratio, verdict)
    return f"{text}   {figure.note}" if figure.note else text


def load():
    """How busy the machine is: figures of time depend on it."""
    return f"load of the machine: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores"
