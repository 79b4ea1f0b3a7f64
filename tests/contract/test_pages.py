"""Pages of the API documentation, which need no network."""

import re

from tests.support.api import Api


def test_documentation_page_loads_nothing_external(api: Api) -> None:
    root = api.http.base_url.join("/")
    html = api.http.get(root.join("/docs")).raise_for_status().text
    sources = re.findall(r'(?:src|href)="([^"]+)"', html)
    assert len(sources) >= 2
    for source in sources:
        assert source.startswith("/docs/assets/")
        assert api.http.get(root.join(source)).raise_for_status().content
    assert "//" not in re.sub(r"//.*|<!--.*?-->|/\*.*?\*/", "", html).replace("</", "")


def test_documentation_page_reads_the_document(api: Api) -> None:
    root = api.http.base_url.join("/")
    assert "'/openapi.json'" in api.http.get(root.join("/docs")).text.replace('"', "'")
    assert api.http.get(root.join("/openapi.json")).json()["openapi"].startswith("3.1")
