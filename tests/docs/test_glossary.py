"""Pages that use a term of the glossary link to its entry.

Only terms of several words are checked, because a single word such as "run" also has other
meanings. Tables are not checked, because some are generated.
"""

import re
from pathlib import Path

from tests.docs_tooling.links import anchor_of, links
from tests.docs_tooling.pages import PAGES, ROOT, name_of, without_code
from tests.support.cases import cases

GLOSSARY = ROOT / "docs" / "glossary.md"
TERMS = re.findall(r"^### ([\w-]+ [\w -]+)$", GLOSSARY.read_text(), re.MULTILINE)
GENERATED = ("docs/mistakes.md", "docs/performance.md", "docs/reference/")


@cases("page", [page for page in PAGES if not name_of(page).startswith(GENERATED)], ids=name_of)
def test_page_links_to_the_terms_it_uses(page: Path) -> None:
    text = re.sub(
        r"^[#|].*$|`[^`\n]*`|\[[^\]]*\]\([^)]*\)",
        "",
        without_code(page.read_text()),
        flags=re.MULTILINE,
    )
    words = " ".join(text.lower().split())
    linked = {link.partition("#")[2] for link in links(page) if "glossary.md#" in link}
    used = {anchor_of(term) for term in TERMS if re.search(rf"\b{_plural(term.lower())}\b", words)}
    assert page == GLOSSARY or used - linked == set(), (
        "link the first use of these terms to docs/glossary.md"
    )


def _plural(term: str) -> str:
    return rf"{term[:-1]}(?:y|ies)" if term.endswith("y") else rf"{term}(?:e?s)?"
