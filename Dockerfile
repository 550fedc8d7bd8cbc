# One image for Airflow, Spark and the lakehouse command: all packages of uv.lock but those for development. One of them
# is the Java that the project is tested with.
# It runs as root unless it is told to run as the user 1000. Java needs a name for its user, and all downloads are there,
# as this user can't write to the cache.
# The tag moves on. SECURITY.md says how to build from a digest.
ARG PYTHON=python:3.11-slim-bookworm
FROM ${PYTHON}
RUN apt-get update \
    && apt-get install --yes --no-install-recommends procps \
    && rm -rf /var/lib/apt/lists/* \
    && pip install --no-cache-dir uv==0.13.9 \
    && useradd --uid 1000 --create-home lakehouse
WORKDIR /lakehouse
ENV PATH=/lakehouse/.venv/bin:/lakehouse/.venv/share/lakehouse-java/bin:$PATH LAKEHOUSE_CACHE=/cache
COPY pyproject.toml uv.lock README.md ./
RUN uv sync --locked --no-dev --all-extras --no-install-project
COPY . .
RUN uv sync --locked --no-dev --all-extras \
    && python -c "from pulsar_lakehouse import settings; from pulsar_lakehouse.jvm import scala; from pulsar_lakehouse.downloads import artifacts; from pulsar_lakehouse.spark import session; from pulsar_lakehouse.sql_server import serve; s = settings.load_settings(warehouse='s3a://any'); session.driver_jars(s), artifacts.page_files(s.cache), scala.compiled(serve.SOURCE, s.cache)"
