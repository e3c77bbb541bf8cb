"""A pytest plugin that tells at once what failed: a step that runs out of time is ended before pytest sums up."""

import pytest

MOST = 4000
"""Characters of each failure, its last ones."""


class Told:
    """Writes each failure when it is known."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """A test, or what it was set up with, has ended."""
        terminal = self._config.pluginmanager.get_plugin("terminalreporter")
        if report.failed and terminal is not None:
            terminal.write_line(
                f"\n== {report.nodeid} failed in {report.duration:.1f} s\n{report.longreprtext[-MOST:]}"
            )


def pytest_configure(config: pytest.Config) -> None:
    """Where the process runs tests itself."""
    config.pluginmanager.register(Told(config))
