"""No source file becomes denser unnoticed."""

from tests.unit import density

_SPARSE = '''
def total(numbers):
    """Return the sum."""
    result = 0
    for number in numbers:
        result += number
    return result
'''
_DENSE = '''
def total(numbers):
    """Return the sum."""
    rows = [[number for number in row if (half := number // 2)] for row in numbers if len(row) > 1]
    return sum(rows[0][0] * 2 + 1, max(rows[1][0], rows[0][1])) if rows and rows[0] else None
'''


def test_no_file_is_denser_than_in_the_table() -> None:
    stored = density.stored_table()
    worse = []
    for path, text in density.sources().items():
        if path not in stored:
            worse.append(f"{path} is not in the table")
            continue
        for problem in density.problems(text, stored[path]):
            worse.append(f"{path}: {problem}; densest: {density.densest_function(text)}")
    advice = (
        "Write one thought a line: name intermediate values, return early, loop with a body. "
        f"To accept the figures, run `{density.COMMAND}`."
    )
    assert not worse, "\n".join([*worse, advice])


def test_denser_text_is_a_problem() -> None:
    before = density.measure(_SPARSE)
    problems = list(density.problems(_DENSE, before))
    assert len(problems) == 3
    assert "nested comprehensions" in problems[1]
    assert list(density.problems(_SPARSE, density.measure(_DENSE))) == []


def test_densest_function_is_named() -> None:
    assert density.densest_function(_SPARSE + _DENSE).startswith("total (line 9, ")


def test_docstrings_and_comments_do_not_count() -> None:
    commented = _SPARSE.replace("    result = 0\n", "    # From zero.\n\n    result = 0\n")
    assert density.measure(commented) == density.measure(_SPARSE)
