# Two images from one file: the server, which is the last stage and so the default, and the LLM server for tests.
#
#   docker build --tag mochi-server --build-arg SOURCE_COMMIT=$(git rev-parse --short=12 HEAD) .
#   docker build --tag mochi-stub --target stub .
#
# How to run them is in docs/how-to/docker.md.

FROM python:3.13-slim AS build
WORKDIR /source
# The dependencies are a layer of their own: a change of the code does not install them again.
COPY pyproject.toml ./
RUN python -c "import tomllib; project = tomllib.load(open('pyproject.toml', 'rb'))['project']; extras = project['optional-dependencies']; print(*project['dependencies'], *extras['postgres'], *extras['mcp'], *extras['otel'], *extras['files'], sep='\n')" > requirements.txt \
  && python -m venv /venv && /venv/bin/pip install --no-cache-dir --requirement requirements.txt "hatchling>=1.27"
COPY README.md LICENSE hatch_build.py ./
COPY src src
COPY tools tools
COPY agents agents
COPY system_prompts system_prompts
COPY chat_sessions/README.md chat_sessions/README.md
# The commit that `mochi-server --version` prints. The build context has no .git to read it from.
ARG SOURCE_COMMIT=""
RUN /venv/bin/pip install --no-cache-dir --no-deps --no-build-isolation .

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

FROM python:3.13-slim AS server
RUN useradd --system --uid 10001 --no-create-home --shell /usr/sbin/nologin mochi && install -d -o mochi -m 700 /data
COPY --from=build /venv /venv
ENV PATH=/venv/bin:$PATH MOCHI_HOST=0.0.0.0 MOCHI_PORT=8000 MOCHI_DATA_DIR=/data MOCHI_OLLAMA_HOST=http://host.docker.internal:11434 PYTHONUNBUFFERED=1
USER mochi
WORKDIR /data
VOLUME /data
EXPOSE 8000
HEALTHCHECK --interval=30s --timeout=3s --start-period=10s \
  CMD ["python", "-c", "import os, urllib.request; urllib.request.urlopen(f'http://127.0.0.1:{os.environ[\"MOCHI_PORT\"]}/api/v1/health/live', timeout=2)"]
ENTRYPOINT ["mochi-server"]
