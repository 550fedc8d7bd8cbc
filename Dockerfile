# One image for Airflow, Spark and the lakehouse command: all that uv.lock names, and a Java.
FROM python:3.11-slim-bookworm
RUN apt-get update \
    && apt-get install --yes --no-install-recommends openjdk-17-jre-headless procps \
    && rm -rf /var/lib/apt/lists/* \
    && pip install --no-cache-dir uv==0.13.9
WORKDIR /lakehouse
ENV PATH=/lakehouse/.venv/bin:$PATH LAKEHOUSE_CACHE=/cache
COPY pyproject.toml uv.lock README.md ./
RUN uv sync --locked --no-dev --no-install-project
COPY . .
RUN uv sync --locked --no-dev \
    && python -c "from lakehouse.artifacts import page_files, spark_jars; from lakehouse.settings import load_settings; cache = load_settings().cache; spark_jars(cache), page_files(cache)"
