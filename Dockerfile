# Build: every package by hash, then Trimtab's own wheel with a build backend checked by hash too.
# PYTHON_IMAGE=python:3.11-slim@sha256:… pins the base too: docs/safety.md, "What Trimtab brings along".
ARG PYTHON_IMAGE=python:3.11-slim
FROM ${PYTHON_IMAGE} AS build
WORKDIR /source
COPY deploy/requirements.lock deploy/installers.lock deploy/
RUN python -m pip install --no-cache-dir --no-deps --require-hashes --requirement deploy/installers.lock
RUN uv venv /opt/trimtab \
    && uv pip sync --python /opt/trimtab/bin/python --no-cache --require-hashes deploy/requirements.lock
COPY pyproject.toml README.md LICENSE requirements.lock trimtab.py ./
COPY data data
COPY collectors collectors
COPY forecasting forecasting
COPY planner planner
COPY dashboard dashboard
RUN uv build --wheel --no-cache --require-hashes --build-constraints requirements.lock --out-dir /dist \
    && uv pip install --python /opt/trimtab/bin/python --no-cache --no-deps /dist/*.whl

# What a first cycle compiles (50 s of CPU), for any CPU of this architecture. It is read only where
# Trimtab's files, numba and NUMBA_CPU_NAME are the same: docs/decisions/0010-what-a-first-cycle-compiles.md
FROM ${PYTHON_IMAGE} AS compiled
COPY --from=build /opt/trimtab /opt/trimtab
ENV NUMBA_CPU_NAME=generic XDG_CACHE_HOME=/compiled XDG_STATE_HOME=/tmp/state
RUN /opt/trimtab/bin/trimtab --quiet demo --once > /dev/null

FROM ${PYTHON_IMAGE}
RUN useradd --system --uid 10001 --user-group --create-home trimtab \
    && install -d -o trimtab -g trimtab /var/lib/trimtab
COPY --from=build /opt/trimtab /opt/trimtab
COPY --from=compiled /compiled/trimtab /opt/compiled
ENV PATH=/opt/trimtab/bin:$PATH PYTHONUNBUFFERED=1 XDG_STATE_HOME=/var/lib \
    NUMBA_CPU_NAME=generic COMPILED_TRIMTAB=/opt/compiled
USER trimtab
WORKDIR /var/lib/trimtab
EXPOSE 8501
# With TRIMTAB_ACCESS_MODE=open everybody who reaches it looks; local mode is for loopback alone.
CMD ["trimtab", "serve", "--host", "0.0.0.0"]
