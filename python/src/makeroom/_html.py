"""Results as HTML for notebooks, with inline styles.

Text inherits the notebook's color, and bars are semitransparent, so that both work with light and dark themes.
"""

from __future__ import annotations

from html import escape
from typing import Any, Iterable

from ._sizes import show

_BOX = "font-size:.95em;line-height:1.45;max-width:70em"
_COLOURS = {"none": "#2e8b57", "undetermined": "#b8860b"}
_CODE = "background:rgba(127,127,127,.15);padding:.1em .35em;border-radius:.25em;white-space:pre-wrap"


def explanation(answer: dict[str, Any]) -> str:
    """Render an explanation."""
    verdict = answer["verdict"]
    colour = _COLOURS.get(verdict["cause"], "#c0392b")
    certainty = "" if verdict["cause"] in _COLOURS else f" ({escape(verdict['certainty'])})"
    parts = [
        f'<div><b style="color:{colour}">{escape(verdict["title"])}</b>{certainty}</div>',
        f"<div>{escape(verdict['summary'])}</div>",
    ]
    request = answer["request"]
    if request and request["site"]:
        parts.append(f"<div>requested at <b>{escape(request['site'])}</b></div>")
    if answer["ledger"]:
        parts.append(_ledger(answer["ledger"]))
    if answer["sites"]:
        parts.append(f"<details><summary><b>Live memory, by line of code</b></summary>{_sites(answer['sites'])}</details>")
    fixes = answer["causes"][0]["fixes"] if answer["causes"] else []
    if fixes:
        parts.append(f"<div><b>Fixes, most effective first</b></div><ol>{''.join(map(_fix, fixes))}</ol>")
    parts += [f"<div>Won't help: {escape(line)}</div>" for line in answer["will_not_help"]]
    parts += [f'<div style="opacity:.7">note: {escape(note)}</div>' for note in answer["notes"]]
    return f'<div style="{_BOX}">{"".join(parts)}</div>'


def runs(rows: Iterable[tuple[str, dict[str, Any]]], command: str | None = None) -> str:
    """Render a table of runs under several allocators or settings."""
    head = "".join(f"<th>{text}</th>" for text in ("allocator", "reserved", "÷ live", "driver time", "min memory", ""))
    body = "".join(_run(name, run) for name, run in rows)
    paste = f'<div><code style="{_CODE}">{escape(command)}</code></div>' if command else ""
    return f'<div style="{_BOX}">{paste}<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def _run(name: str, run: dict[str, Any]) -> str:
    ratio, smallest, refusal = run["reserved_over_live"], run["smallest_memory_bytes"], run["oom"]
    cells = (
        escape(name),
        show(run["peak_reserved_bytes"]),
        "" if ratio is None else f"{ratio:.3f}",
        f"{run['driver_time_us'] / 1000:.0f} ms",
        "" if smallest is None else show(smallest),
        "" if refusal is None else f"out of memory: {show(refusal['bytes'])}",
    )
    return "<tr>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>"


def _ledger(ledger: dict[str, Any]) -> str:
    listed = sum(line["bytes"] for line in ledger["lines"])
    whole = max(ledger["total_bytes"] or 0, listed, 1)
    rows = [row for line in ledger["lines"] for row in _rows(line, 0, whole)]
    if ledger["unaccounted_bytes"]:
        rows.append(_row("unaccounted", ledger["unaccounted_bytes"], None, 0, whole))
    total = f", {show(ledger['total_bytes'])}" if ledger["total_bytes"] is not None else ""
    return f'<div style="margin-top:.5em"><b>{escape(ledger["name"])}{total}</b></div><table>{"".join(rows)}</table>'


def _rows(line: dict[str, Any], depth: int, whole: int) -> list[str]:
    if not line["bytes"]:
        return []
    own = _row(line["what"], line["bytes"], line["note"], depth, whole)
    return [own, *(row for part in line["lines"] for row in _rows(part, depth + 1, whole))]


def _row(what: str, bytes: int, note: str | None, depth: int, whole: int) -> str:
    width = max(min(abs(bytes) / whole, 1) * 100, 0.5)
    bar = f'<div style="background:rgba(70,130,180,.75);height:.8em;width:{width:.1f}%"></div>'
    remark = f'<span style="opacity:.7">{escape(note)}</span>' if note else ""
    return (
        f'<tr><td style="text-align:left;padding-left:{0.5 + depth}em">{escape(what)}</td>'
        f'<td style="text-align:right">{show(bytes)}</td>'
        f'<td style="min-width:12em">{bar}</td><td style="text-align:left">{remark}</td></tr>'
    )


def _sites(sites: list[dict[str, Any]]) -> str:
    """Render a tree of lines, with callers as the outer nodes."""
    items = "".join(
        f"<li>{show(site['bytes'])} <code>{escape(site['site'])}</code>{_sites(site['calls'])}</li>" for site in sites
    )
    return f"<ul>{items}</ul>" if items else ""


def _fix(fix: dict[str, Any]) -> str:
    frees = f" (frees up to {show(fix['frees_bytes'])})" if fix["frees_bytes"] else ""
    command = f'<br><code style="{_CODE}">{escape(fix["command"])}</code>' if fix["command"] else ""
    return f"<li>{escape(fix['do'])}{frees}{command}</li>"
