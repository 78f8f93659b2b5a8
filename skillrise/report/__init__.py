"""A run folder as one page: curves, evaluations, and trials to read turn by turn.

The page is self-contained: no script, nothing loaded from elsewhere, a content security policy that says so. Whatever
a model, an environment or a configuration wrote is data here: bounded in size, escaped by jinja2, never an attribute.

`page` puts it together: `load` reads the folder, `facts` makes the headline, `trials` chooses what to show, `charts`
turns metrics into lines, which `plot` draws; `diff` compares documents, `values` bounds texts and writes numbers.
"""

from skillrise.report.diff import difference
from skillrise.report.page import write_report

__all__ = ["difference", "write_report"]
