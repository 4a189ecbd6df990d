#!/usr/bin/env python3
"""Preprocessor of mdBook: links that work on a forge are made to work in the book.

A link that leaves the folder of the guide becomes its text with the path in the repository: the book is read without
the repository, for instance from a folder on disk. A link to `README.md` leads to `index.md`, as mdBook calls that page.
"""

import json
import posixpath
import re
import sys

# The folder of the pages in the repository.
GUIDE = "packaging/guide"

# `[text](path#heading)` with a relative path; the text may go over the end of a line. Code on the pages has no such
# links to README.md or to other folders.
LINK = re.compile(r"\[([^\]\[]+)\]\(([^):#\s]+)(#[^)\s]+)?\)")


def for_the_book(text, page):
    """The text of a page, with its links as the book needs them."""

    def replaced(link):
        label, target, heading = link.groups(default="")
        path = posixpath.normpath(posixpath.join(GUIDE, posixpath.dirname(page), target))
        if not path.startswith(GUIDE + "/"):
            return label if path in label else f"{label} (`{path}`)"
        folder, name = posixpath.split(target)
        if name == "README.md":
            return f"[{label}]({posixpath.join(folder, 'index.md')}{heading})"
        return link.group(0)

    return LINK.sub(replaced, text)


def rewrite(items):
    """Rewrites the chapters of a list, and those below them."""
    for item in items:
        chapter = item.get("Chapter") if isinstance(item, dict) else None
        if chapter:
            if chapter["source_path"]:
                chapter["content"] = for_the_book(chapter["content"], chapter["source_path"])
            rewrite(chapter["sub_items"])


def main():
    if sys.argv[1:2] == ["supports"]:
        return
    _context, book = json.load(sys.stdin)
    rewrite(book["items"])
    json.dump(book, sys.stdout)


main()
