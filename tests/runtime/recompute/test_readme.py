"""The example of the README runs as printed."""

import re
from pathlib import Path

import pytest

from tests.accelerators import prepare_sim

README = Path(__file__).parents[3] / "runtime" / "recompute" / "README.md"
EXAMPLES = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
REFUSED = prepare_sim()
pytestmark = [pytest.mark.skipif(REFUSED is not None, reason=str(REFUSED)), pytest.mark.usefixtures("plain_sim")]


def test_the_example_runs_as_printed(capsys: pytest.CaptureFixture[str]) -> None:
    (example,) = EXAMPLES
    exec(compile(example, str(README), "exec"), {})
    status, exposed_us, peak, predicted = capsys.readouterr().out.split()
    assert status.startswith("Status.") and int(exposed_us) > 0
    assert int(peak) <= int(predicted) <= 24 << 20
