#!/usr/bin/env python3
"""Checks a built book: `check.py GUIDE BOOK`.

Each page of the guide is in the book, and each link of the book leads to a file of it, and to a heading where it names
one. Links to other servers are not followed.
"""

import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

# The list of chapters, which mdBook reads and does not show as a page.
SUMMARY = "SUMMARY.md"


class Page(HTMLParser):
    """Identifiers and links of a page."""

    def __init__(self, path):
        super().__init__()
        self.ids = set()
        self.links = []
        # The folder in which relative links begin.
        self.base = path.parent
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        if "id" in attributes:
            self.ids.add(attributes["id"])
        for name in ("href", "src"):
            # `base` and `link rel=canonical` say where a page is served, which is not known here.
            if attributes.get(name) and tag != "base":
                self.links.append(attributes[name])


def missing_pages(guide, book):
    """Complaints about pages of the guide that the book lacks."""
    for page in sorted(guide.rglob("*.md")):
        name = page.relative_to(guide)
        if str(name) == SUMMARY:
            continue
        built = name.with_name("index.html" if name.name == "README.md" else name.stem + ".html")
        if not (book / built).is_file():
            yield f"{SUMMARY} lacks {name}"


def broken_links(book):
    """Complaints about links that lead nowhere, and the number of links that were looked at."""
    pages = {path.resolve(): Page(path) for path in sorted(book.rglob("*.html"))}
    complaints = []
    count = 0
    for path, page in pages.items():
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            count += 1
            target = (page.base / unquote(parts.path)).resolve() if parts.path else path
            if target.is_dir():
                target = target / "index.html"
            where = path.relative_to(book.resolve())
            if not target.is_file():
                complaints.append(f"{where}: `{link}`: the book has no such file")
            elif parts.fragment and target in pages and unquote(parts.fragment) not in pages[target].ids:
                complaints.append(f"{where}: `{link}`: the page has no such heading")
    return complaints, count


def main():
    guide, book = (Path(argument) for argument in sys.argv[1:3])
    complaints = list(missing_pages(guide, book))
    broken, count = broken_links(book)
    complaints += broken
    print("\n".join(complaints) if complaints else f"book: {count} links lead to pages and headings")
    # A book without links was not built.
    sys.exit(1 if complaints or count == 0 else 0)


main()
