"""Results as HTML for notebooks, with inline styles: the same parts as the command's text.

Text inherits the notebook's color, and colors of bars are semitransparent, so that both work with light and dark themes.
Settings are Python, because `export` has no effect in a running kernel.
"""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any, Iterable

from ._settings import RESTART, as_python
from ._sizes import show

if TYPE_CHECKING:
    from ._watch import Watch

_BOX = "font-size:.95em;line-height:1.45;max-width:70em"
_COLOURS = {"none": "#2e8b57", "undetermined": "#b8860b"}
_CODE = (
    "display:inline-block;vertical-align:top;background:rgba(127,127,127,.15);padding:.1em .35em;border-radius:.25em;"
    "white-space:pre-wrap"
)
_DIM = "opacity:.7"
_LEFT, _RIGHT = "text-align:left", "text-align:right"
# Colors of kinds of memory, by the words in a line of the ledger; the first that occurs decides.
_KINDS = (
    ("live", "rgba(38,118,190,.8)"),
    ("in use", "rgba(38,118,190,.8)"),
    ("cached", "rgba(225,155,30,.8)"),
    ("unused", "rgba(225,155,30,.8)"),
    ("rounding", "rgba(225,155,30,.45)"),
    ("process", "rgba(165,60,50,.8)"),
    ("context", "rgba(120,95,175,.8)"),
    ("reserve", "rgba(120,95,175,.45)"),
    ("free", "rgba(127,127,127,.12)"),
    ("unaccounted", "rgba(127,127,127,.5)"),
)
_OTHER_KIND = "rgba(60,150,110,.75)"
_COPY = (
    '<button style="margin-left:.5em;font-size:.8em" title="copy" '
    'onclick="navigator.clipboard.writeText(this.previousElementSibling.textContent)">copy</button>'
)


def explanation(answer: dict[str, Any]) -> str:
    """Render an explanation."""
    verdict, causes = answer["verdict"], answer["causes"]
    is_open = verdict["cause"] == "undetermined"
    parts = [_verdict(verdict, verdict["cause"])]
    request = answer["request"]
    if request and request["site"]:
        parts.append(f"<div>requested at <b>{escape(request['site'])}</b></div>")
    if answer["ledger"]:
        parts.append(_ledger(answer["ledger"]))
    if answer["sites"]:
        tree = _sites(answer["sites"], answer["other_sites_bytes"])
        parts.append(f"<details open><summary><b>Live memory, by line of code</b></summary>{tree}</details>")
    if answer["alternatives"]:
        rows = "".join(map(_alternative, answer["alternatives"]))
        parts.append(f"{_heading('Memory needed, including the failed request')}<table>{rows}</table>")
    fixes = causes[0]["fixes"] if causes else []
    if fixes:
        title = "What to do" if verdict["cause"] == "none" else "Fixes, most effective first"
        parts.append(f"{_heading(title)}<ol>{''.join(map(_fix, fixes))}</ol>")
    if is_open and causes[1:]:
        parts.append(f"{_heading('Possible causes, most likely first')}<ol>{''.join(map(_hypothesis, causes[1:]))}</ol>")
    parts += [f"<div>Won't help: {escape(line)}</div>" for line in answer["will_not_help"]]
    others = [cause["title"].lower() for cause in causes[1:] if cause["cause"] != "none"]
    if others and not is_open and verdict["certainty"] != "certain":
        parts.append(f'<div style="{_DIM}">also possible: {escape(", ".join(others))}</div>')
    if answer["next"]:
        steps = "".join(f"<div>{escape(step['do'])}{_command(step['command'])}</div>" for step in answer["next"])
        parts.append(f"{_heading('To learn more')}{steps}")
    parts += [_note(note) for note in answer["notes"]]
    return f'<div style="{_BOX}">{"".join(parts)}</div>'


def job(answer: dict[str, Any]) -> str:
    """Render the answer for a job."""
    verdict = answer["verdict"]
    has_failed = verdict["cause"] not in ("none", "caught")
    parts = [_verdict(verdict, "none" if not has_failed else verdict["cause"])]
    account = answer["account"]
    if account:
        lines = [{**line, "note": line["remark"], "lines": []} for line in account["lines"]]
        parts.append(_ledger({**account, "lines": lines}))
    if len(answer["ranks"]) > 1:
        parts.append(f"<details open><summary><b>Ranks</b></summary>{_ranks(answer['ranks'])}</details>")
    if answer["consequences"]:
        ended = "".join(
            f"<div>{escape(each['words'])}: {escape(each['kind'].replace('_', ' '))}</div>" for each in answer["consequences"]
        )
        parts.append(f"{_heading('Consequences')}{ended}")
    if answer["errors"]:
        errors = "".join(f"<div>{escape(each['words'])}: {escape(each['error'])}</div>" for each in answer["errors"])
        parts.append(f"{_heading('Other errors')}{errors}")
    if answer["fixes"]:
        fixes = "".join(f"<li>{escape(fix['action'])}{_command(fix['command'])}</li>" for fix in answer["fixes"])
        parts.append(f"{_heading('Fixes, most effective first' if has_failed else 'What to do')}<ol>{fixes}</ol>")
    parts += [_note(note) for note in answer["notes"]]
    return f'<div style="{_BOX}">{"".join(parts)}</div>'


def _ranks(ranks: list[dict[str, Any]]) -> str:
    """Render a table of ranks, those to blame in bold. Logs have no peak, and not every failure has a line."""
    columns = {
        "rank": [f"<b>{escape(rank['label'])}</b>" if rank["is_culprit"] else escape(rank["label"]) for rank in ranks],
        "outcome": [escape(rank["fate"].replace("_", " ")) for rank in ranks],
        "peak": [show(rank["peak_bytes"]) if rank["peak_bytes"] else "" for rank in ranks],
        "failed at": [escape(rank["place"] or "") for rank in ranks],
    }
    kept = [(name, cells) for name, cells in columns.items() if any(cells)]
    side = {name: _RIGHT if name == "peak" else _LEFT for name in columns}
    head = "".join(f'<th style="{side[name]}">{name}</th>' for name, _ in kept)
    rows = "".join(
        "<tr>" + "".join(f'<td style="{side[name]}">{cells[row]}</td>' for name, cells in kept) + "</tr>"
        for row in range(len(ranks))
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"


def runs(rows: Iterable[tuple[str, dict[str, Any]]], command: str | None = None) -> str:
    """Render a table of runs under several allocators or settings. A column without values is left out."""
    head = ("allocator", "reserved", "÷ live", "driver time", "min memory", "")
    table = [_run(name, run) for name, run in rows]
    kept = [column for column in range(len(head)) if any(row[column] for row in table)]
    titles = "".join(_cell("th", head[column], column) for column in kept)
    body = "".join("<tr>" + "".join(_cell("td", row[column], column) for column in kept) + "</tr>" for row in table)
    paste = _command(command)
    return f'<div style="{_BOX}">{paste}<table><thead><tr>{titles}</tr></thead><tbody>{body}</tbody></table></div>'


def groups(answer: dict[str, Any]) -> str:
    """Render live memory in groups, with a bar for each."""
    whole = max(answer["live_bytes"], 1)
    rows = "".join(_row(_title(answer["by"], group["name"]), group["bytes"], None, 0, whole) for group in answer["groups"])
    when = "when the allocation failed" if answer["moment"] == "failure" else "at the peak"
    title = f"Live memory by {escape(answer['by'])}, {when}: {show(answer['live_bytes'])} on GPU {answer['device']}"
    hint = _note(answer["hint"]) if answer["hint"] is not None else ""
    return f'<div style="{_BOX}">{_heading(title)}<table>{rows}</table>{hint}</div>'


def _title(by: str, name: str) -> str:
    """Return the name of a group; that of a kind is an ID."""
    return name.replace("_", " ") if by == "kind" else name


def watched(watch: Watch) -> str:
    """Render the result of `watch`."""
    return f"<pre>{escape(repr(watch))}</pre>"


def _verdict(verdict: dict[str, Any], cause: str) -> str:
    colour = _COLOURS.get(cause, "#c0392b")
    certainty = "" if cause in _COLOURS else f" ({escape(verdict['certainty'])})"
    title = f'<b style="color:{colour}">{escape(verdict["title"])}</b>{certainty}'
    return f"<div>{title}</div><div>{escape(verdict['summary'])}</div>"


def _note(text: str) -> str:
    return f'<div style="{_DIM}">note: {escape(text)}</div>'


def _heading(text: str) -> str:
    return f'<div style="margin-top:.5em"><b>{text}</b></div>'


def _cell(tag: str, text: str, column: int) -> str:
    return f'<{tag} style="{_LEFT if column in (0, 5) else _RIGHT}">{escape(text)}</{tag}>'


def _run(name: str, run: dict[str, Any]) -> tuple[str, ...]:
    ratio, smallest, failure = run["reserved_over_live"], run["smallest_memory_bytes"], run["oom"]
    return (
        name,
        show(run["peak_reserved_bytes"]),
        "" if ratio is None else f"{ratio:.3f}",
        f"{run['driver_time_us'] / 1000:.0f} ms",
        "" if smallest is None else show(smallest),
        "" if failure is None else f"out of memory: {show(failure['bytes'])}",
    )


def _alternative(alternative: dict[str, Any]) -> str:
    fits = {True: "fits", False: "does not fit either", None: "with no limit"}[alternative["fits"]]
    about = "" if alternative["exact"] else "about "
    setting = alternative["settings"] or "same settings"
    return (
        f'<tr><td style="{_RIGHT}">{about}{show(alternative["needs_bytes"])}</td>'
        f'<td style="{_LEFT}">{escape(setting)}: {fits}</td></tr>'
    )


def _ledger(ledger: dict[str, Any]) -> str:
    lines = [line for line in ledger["lines"] if line["bytes"]]
    listed = sum(line["bytes"] for line in lines)
    whole = max(ledger["total_bytes"] or 0, listed, 1)
    unaccounted = ledger["unaccounted_bytes"]
    rows = [row for line in lines for row in _rows(line, 0, whole)]
    if unaccounted:
        rows.append(_row("unaccounted", unaccounted, None, 0, whole))
    total = f", {show(ledger['total_bytes'])}" if ledger["total_bytes"] is not None else ""
    drawn = [(line["what"], line["bytes"]) for line in lines] + [("unaccounted", max(unaccounted, 0))]
    stacked = "".join(
        f'<span title="{escape(what)}: {show(bytes)}" style="background:{_colour(what)};width:{bytes / whole * 100:.2f}%"></span>'
        for what, bytes in drawn
        if bytes
    )
    bar = f'<div style="display:flex;height:1.1em;max-width:44em;margin:.3em 0">{stacked}</div>'
    return f'{_heading(escape(ledger["name"]) + total)}{bar}<table>{"".join(rows)}</table>'


def _colour(what: str) -> str:
    return next((colour for word, colour in _KINDS if word in what), _OTHER_KIND)


def _rows(line: dict[str, Any], depth: int, whole: int) -> list[str]:
    if not line["bytes"]:
        return []
    own = _row(line["what"], line["bytes"], line["note"], depth, whole)
    return [own, *(row for part in line["lines"] for row in _rows(part, depth + 1, whole))]


def _row(what: str, bytes: int, note: str | None, depth: int, whole: int) -> str:
    width = max(min(abs(bytes) / whole, 1) * 100, 0.5)
    bar = f'<div style="background:{_colour(what)};height:.8em;width:{width:.1f}%"></div>'
    remark = f'<span style="{_DIM}">{escape(note)}</span>' if note else ""
    return (
        f'<tr><td style="{_LEFT};padding-left:{0.5 + depth}em">{escape(what)}</td>'
        f'<td style="{_RIGHT}">{show(bytes)}</td>'
        f'<td style="min-width:18em">{bar}</td><td style="{_LEFT}">{remark}</td></tr>'
    )


def _sites(sites: list[dict[str, Any]], other: int = 0) -> str:
    """Render a tree of lines, with callers as the outer nodes."""
    items = "".join(map(_site, sites))
    if other:
        items += f'<li>{show(other)} <span style="{_DIM}">elsewhere</span></li>'
    return f"<ul>{items}</ul>" if items else ""


def _site(site: dict[str, Any]) -> str:
    caller = f", called by {escape(site['caller'])}" if site["caller"] else ""
    through = f' <span style="{_DIM}">via {escape(site["through"])}</span>' if site["through"] else ""
    place = f"<code>{escape(site['site'])}</code>{caller}{through}"
    return f"<li>{show(site['bytes'])} {place}{_sites(site['calls'])}</li>"


def _fix(fix: dict[str, Any]) -> str:
    frees = fix["frees_bytes"]
    # The sentence may already have the amount.
    shown = f" (frees up to {show(frees)})" if frees and show(frees) not in fix["do"] else ""
    return f"<li>{escape(fix['do'])}{shown}{_command(fix['command'])}</li>"


def _hypothesis(cause: dict[str, Any]) -> str:
    check = cause["check"]
    checked = f"<div>check: {escape(check['do'])}{_command(check['command'])}</div>" if check else ""
    fixes = "".join(f"<div>fix: {escape(fix['do'])}{_command(fix['command'])}</div>" for fix in cause["fixes"][:3])
    return f"<li>{escape(cause['summary'])}{checked}{fixes}</li>"


def _command(command: str | None) -> str:
    """Render a command with a button that copies it: a setting as Python, with the advice to restart the kernel."""
    if command is None:
        return ""
    python = as_python(command)
    advice = f' <span style="{_DIM}">{RESTART}</span>' if python else ""
    return f'<div><code style="{_CODE}">{escape(python or command)}</code>{_COPY}{advice}</div>'


def setting(command: str | None) -> str:
    """Render a setting as Python, or nothing if the command is not one."""
    return _command(command) if as_python(command) else ""
