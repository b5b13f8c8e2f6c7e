"""A pytest plugin: prints one line per check, grouped by section, and writes all results to a JSON file.

A check is named by the id of its parameters, or by its function without `test_`; its section is its file without `test_`.
"""

import collections
import json
import time

import pytest

SHOWN = pytest.StashKey()
WIDTH = 27


def section_of(item):
    return item.path.stem.removeprefix("test_").replace("_", "-")


def name_of(item):
    parameters = getattr(item, "callspec", None)
    return parameters.id if parameters else item.name.removeprefix("test_")


def reason(report):
    """The first line of what went wrong, or why the check was skipped."""
    if report.skipped and isinstance(report.longrepr, tuple):
        return report.longrepr[2].removeprefix("Skipped: ")
    crash = getattr(report.longrepr, "reprcrash", None)
    message = crash.message if crash else str(report.longrepr)
    return " ".join(message.removeprefix("AssertionError: ").split("\nassert ")[0].split())


class Table:
    def __init__(self, config, gpu, path):
        self.config, self.gpu, self.path = config, gpu, path
        self.results, self.seconds = [], collections.Counter()
        self.section, self.unreadable = None, 0

    @property
    def write(self):
        return self.config.pluginmanager.get_plugin("terminalreporter").write_line

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item, call):
        report = yield
        goal = item.get_closest_marker("goal")
        text, figures = item.stash.get(SHOWN, ("", {}))
        report.check = dict(section=section_of(item), name=name_of(item), goal=goal.args[0] if goal else None, text=text,
                            figures=figures)
        return report

    @pytest.hookimpl(tryfirst=True)
    def pytest_report_teststatus(self, report):
        # The lines below replace pytest's letters. Only one phase of a check counts.
        return report.outcome if report.when == "call" or not report.passed else "", "", ""

    def pytest_collectreport(self, report):
        self.unreadable += report.failed

    def pytest_runtest_logreport(self, report):
        check = report.check
        self._enter(check["section"])
        self.seconds[check["section"]] += report.duration
        if report.when == "setup" and report.passed:
            self.setup = report.duration
            return
        if report.when == "teardown" and report.passed:
            return
        seconds = report.duration + (self.setup if report.when == "call" else 0)
        status = {"passed": "ok", "failed": "FAILED", "skipped": "skipped"}[report.outcome]
        if not report.passed:
            check["text"] = "; ".join(filter(None, [reason(report), check["text"]]))
        passed = None if report.skipped else report.passed
        self.results.append(dict(section=check["section"], name=check["name"], status=status, passed=passed,
                                 text=check["text"], goal=check["goal"], figures=check["figures"],
                                 seconds=round(seconds, 2)))
        self.write(f"  {status:<8} {check['name']:<{WIDTH}} {check['text']}")

    def pytest_sessionfinish(self, session):
        if session.exitstatus == pytest.ExitCode.USAGE_ERROR:
            return
        self._enter(None)
        count = collections.Counter(result["status"] for result in self.results)
        # Nothing checked is not a success.
        if session.exitstatus in (0, pytest.ExitCode.NO_TESTS_COLLECTED) and not count["ok"]:
            session.exitstatus = 1
        sections = {section: round(seconds, 1) for section, seconds in self.seconds.items()}
        content = dict(gpu=self.gpu, time=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), count=count,
                       seconds=sections, results=self.results)
        with open(self.path, "w") as file:
            json.dump(content, file, indent=1)
            file.write("\n")
        unreadable = f", {self.unreadable} files cannot be loaded" if self.unreadable else ""
        self.write(f"\n{count['ok']} ok, {count['FAILED']} FAILED, {count['skipped']} skipped{unreadable}; "
                   f"all figures: {self.path}")

    def _enter(self, section):
        if section != self.section and self.section:
            self.write(f"  {self.seconds[self.section]:.0f} s")
        if section != self.section and section:
            self.write(f"\n{section}")
        self.section = section
