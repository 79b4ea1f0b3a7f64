"""Write the reference pages."""

from tests.docs_tooling.reference import FOLDER, pages

FOLDER.mkdir(exist_ok=True)
for path, text in pages().items():
    path.write_text(text)
