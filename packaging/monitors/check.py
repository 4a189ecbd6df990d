#!/usr/bin/env python3
"""Checks the dashboard and the alerts against the metrics of an agent: `check.py METRICS`, with the text of its `/metrics`.

Each metric that they ask for has a row on the page of metrics, and the agent serves it.
"""

import json
import re
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
PAGE = HERE.parent / "guide/operating/metrics.md"

# An agent serves this metric only with a certificate that expires. Its own certificate does not.
CONDITIONAL = {"holdfast_certificate_remaining_days"}

NAME = re.compile(r"\bholdfast_[a-z0-9_]+")


def documented(page):
    """Names in the first column of the table on the page."""
    rows = re.findall(r"^\| ([^|]*) \|", page, re.M)
    return {f"holdfast_{name}" for row in rows for name in re.findall(r"`([a-z_]+)`", row)}


def asked():
    """Names that each file asks for."""
    dashboard = json.loads((HERE / "grafana.json").read_text(encoding="utf-8"))
    names = set(NAME.findall(json.dumps(dashboard)))
    rules = (HERE / "prometheus-rules.yml").read_text(encoding="utf-8")
    expressions = re.findall(r"^ *expr: (.*)$", rules, re.M)
    yield "grafana.json", names
    yield "prometheus-rules.yml", set(NAME.findall("\n".join(expressions)))


def main():
    metrics = Path(sys.argv[1]).read_text(encoding="utf-8")
    served = set(re.findall(r"^(holdfast_[a-z0-9_]+)", metrics, re.M))
    page = documented(PAGE.read_text(encoding="utf-8"))
    complaints = []
    for file, names in asked():
        if not names:
            complaints.append(f"{file} asks for no metric")
        for name in sorted(names):
            # Parts of a histogram or a summary.
            family = re.sub(r"_(bucket|sum|count)$", "", name)
            if family not in page:
                complaints.append(f"{file}: {name} has no row in {PAGE.name}")
            if name not in served and name not in CONDITIONAL:
                complaints.append(f"{file}: the agent does not serve {name}")
    print("\n".join(complaints) if complaints else "monitors: the agent serves what they ask for")
    sys.exit(bool(complaints))


main()
