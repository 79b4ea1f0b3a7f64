"""DSPy with the configuration of the documentation."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from mochi_stub import StubServer

pytestmark = pytest.mark.slow
RECIPES = Path(__file__).parents[3] / "docs" / "stub" / "recipes.md"


@pytest.fixture
def dspy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Import DSPy without requests to the internet.

    LiteLLM is its client, which is not available on Python 3.15.
    """
    monkeypatch.setenv("DSPY_CACHEDIR", str(tmp_path / "cache"))
    monkeypatch.setenv("LITELLM_LOCAL_MODEL_COST_MAP", "True")
    pytest.importorskip("litellm")
    return pytest.importorskip("dspy")


def test_recipe_yields_its_answer(dspy: Any, tmp_path: Path) -> None:
    found = re.search(
        r'```yaml title="dspy.yaml"\n(.*?)```', RECIPES.read_text(encoding="utf-8"), re.DOTALL
    )
    assert found
    config = tmp_path / "dspy.yaml"
    config.write_text(found[1], encoding="utf-8")
    with StubServer(config=config, speed=0) as stub:
        model = dspy.LM("openai/dspy", api_base=f"{stub.url}/v1", api_key="any", cache=False)
        with dspy.context(lm=model):
            answer = dspy.Predict("question -> answer")(question="Why is the sky blue?").answer
    assert answer == "Because of the air."


def test_demo_model_answers_typed_fields(dspy: Any) -> None:
    with StubServer(speed=0) as stub:
        model = dspy.LM("openai/mochi-demo", api_base=f"{stub.url}/v1", api_key="any", cache=False)
        with dspy.context(lm=model):
            answer = dspy.Predict("question -> answer, score: float, certain: bool")(
                question="Why is the sky blue?"
            )
    assert (type(answer.answer), type(answer.score), type(answer.certain)) == (str, float, bool)
