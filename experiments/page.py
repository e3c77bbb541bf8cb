"""One HTML page of a run: tables and pictures inside it, no script, no request to anywhere."""

from collections.abc import Mapping, Sequence

import jinja2

from experiments.tables import Table

_PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<title>{{ title }}</title>
<style>
body { font: 15px/1.5 system-ui, sans-serif; max-width: 75em; margin: 2em auto; padding: 0 1em; color: #222; }
table { border-collapse: collapse; margin: .5em 0; font-variant-numeric: tabular-nums; }
th, td { padding: .25em .8em; text-align: right; border-bottom: 1px solid #ddd; white-space: nowrap; }
th:first-child, td:first-child { text-align: left; }
.note, .source { color: #666; font-size: 90%; }
figure { margin: 1.5em 0; } svg { max-width: 100%; height: auto; }
pre { background: #f6f6f6; padding: 1em; overflow: auto; }
</style>
</head>
<body>
<h1>{{ title }}</h1>
<p class="source">{{ source }}</p>
{% for table in tables %}
<h2>{{ table.title }}</h2>
<table>
<tr>{% for cell in table.head %}<th>{{ cell }}</th>{% endfor %}</tr>
{% for line in table.body %}
<tr>{% for cell in line %}<td>{{ cell }}</td>{% endfor %}</tr>
{% endfor %}
</table>
<p class="note">{{ table.note }}</p>
{% if loop.first and reasons %}
<ul class="reasons">
{% for policy, sentence in reasons.items() %}
<li><b>{{ policy }}</b>: {{ sentence }}</li>
{% endfor %}
</ul>
{% endif %}
{% endfor %}
{% for picture in pictures %}
<figure>{{ picture | safe }}</figure>
{% endfor %}
<h2>Settings</h2>
<pre>{{ settings }}</pre>
</body>
</html>
"""


def html_page(
    title: str,
    source: str,
    tables: Sequence[Table],
    svgs: Sequence[str],
    settings: str,
    reasons: Mapping[str, str] | None = None,
) -> str:
    """The page; every text is escaped, the SVGs are our own and stand in it as they are.

    `reasons` says below the first table why a policy failed, or what else there is to say of it.
    """
    environment = jinja2.Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    pictures = [svg[svg.index("<svg") :] for svg in svgs]
    return environment.from_string(_PAGE).render(
        title=title, source=source, tables=tables, pictures=pictures, settings=settings, reasons=reasons or {}
    )
