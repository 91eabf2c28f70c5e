"""A part of a page that is made from the code stands between two marks, `<!-- NAME: WHO -->` and `<!-- /NAME -->`."""

import re


def section(text: str, name: str) -> str:
    """Return the text between a section's two marks. Raise ValueError without them."""
    found = _pattern(name).search(text)
    if found is None:
        raise ValueError(f"the page has no section {name}")
    return found[2].strip()


def with_section(text: str, name: str, body: str) -> str:
    """Return the page with another text between the marks. Raise ValueError without them."""
    section(text, name)
    return _pattern(name).sub(lambda found: f"{found[1]}{body}\n{found[3]}", text)


def _pattern(name: str) -> re.Pattern[str]:
    return re.compile(rf"(<!-- {name}(?::[^>]*)? -->\n)(.*?)(<!-- /{name} -->)", re.DOTALL)
