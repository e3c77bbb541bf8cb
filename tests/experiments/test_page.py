"""The page of a run holds everything in itself."""

from experiments.page import html_page
from experiments.tables import Table


def test_the_page_escapes_text_and_keeps_pictures() -> None:
    svg = '<?xml version="1.0"?>\n<!DOCTYPE svg>\n<svg xmlns="http://www.w3.org/2000/svg"></svg>'
    page = html_page("<b>", "source", [Table("T", ("a",), (("<i>",),))], [svg], "name: '<u>'")
    assert "<b>" not in page and "<i>" not in page and "<u>" not in page
    assert '<figure><svg xmlns="http://www.w3.org/2000/svg"></svg></figure>' in page
    assert "<?xml" not in page
