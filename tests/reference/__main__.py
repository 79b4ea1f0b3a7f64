"""Write the pages."""

from tests.reference import FOLDER, pages

FOLDER.mkdir(exist_ok=True)
for path, text in pages().items():
    path.write_text(text)
