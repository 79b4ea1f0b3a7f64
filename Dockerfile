# The deterministic LLM server, `mochi-stub`.
#
#   docker build --target stub --tag mochi-stub .
#   docker run --publish 11998:8080 mochi-stub
#
# A configuration of one's own: --volume "$PWD/config.yaml:/config.yaml:ro" and, behind the image's name,
# `run --host 0.0.0.0 --config /config.yaml`.

FROM python:3.13-slim AS build
WORKDIR /source
COPY pyproject.toml README.md LICENSE ./
COPY src src
COPY tools tools
COPY agents agents
COPY chat_sessions/README.md chat_sessions/README.md
COPY system_prompts system_prompts
RUN python -m venv /venv && /venv/bin/pip install --no-cache-dir .

FROM python:3.13-slim AS stub
RUN useradd --system --uid 10001 --no-create-home --shell /usr/sbin/nologin stub
COPY --from=build /venv /venv
ENV PATH=/venv/bin:$PATH PORT=8080 PYTHONUNBUFFERED=1
USER stub
EXPOSE 8080
HEALTHCHECK --interval=30s --timeout=3s --start-period=5s \
  CMD ["python", "-c", "import os, urllib.request; urllib.request.urlopen(f'http://127.0.0.1:{os.environ[\"PORT\"]}/health', timeout=2)"]
ENTRYPOINT ["mochi-stub"]
CMD ["run", "--host", "0.0.0.0"]
