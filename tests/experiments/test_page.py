"""The page of a run holds everything in itself."""

from experiments.page import html_page
from experiments.tables import Table


def test_reasons_stand_below_the_first_table() -> None:
    tables = [Table("What happened", ("a",), (("1",),)), Table("What the solvers answered", ("a",), (("2",),))]
    page = html_page("t", "source", tables, [], "", {"greedy-swap": "the <budget> is 55 bytes: raise it"})
    assert "<li><b>greedy-swap</b>: the &lt;budget&gt; is 55 bytes: raise it</li>" in page
    assert page.index("What happened") < page.index("<li>") < page.index("What the solvers answered")
    assert "<ul" not in html_page("t", "source", tables, [], "")


def test_the_page_escapes_text_and_keeps_pictures() -> None:
    svg = '<?xml version="1.0"?>\n<!DOCTYPE svg>\n<svg xmlns="http://www.w3.org/2000/svg"></svg>'
    page = html_page("<b>", "source", [Table("T", ("a",), (("<i>",),))], [svg], "name: '<u>'")
    assert "<b>" not in page and "<i>" not in page and "<u>" not in page
    assert '<figure><svg xmlns="http://www.w3.org/2000/svg"></svg></figure>' in page
    assert "<?xml" not in page
