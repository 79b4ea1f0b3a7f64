"""The tests of this directory run in the environment in which the frameworks are installed."""

import os

from tests.support.frameworks import benchmark, collect_ignore_glob, pytest_configure, vcr

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # LiteLLM downloads a price list otherwise

__all__ = ["benchmark", "collect_ignore_glob", "pytest_configure", "vcr"]
