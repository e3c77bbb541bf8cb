import re
from pathlib import Path

README = Path(__file__).parents[3] / "runtime" / "profile" / "README.md"


def test_the_example_runs_as_printed() -> None:
    blocks = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    assert len(blocks) == 1
    exec(compile(blocks[0], str(README), "exec"), {})
