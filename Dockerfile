# Penstock's broker and schema registry in one container:
#   docker build --tag penstock .
# The page docs/how-to/deploy.md shows how to run it.

FROM python:3.11-slim-bookworm AS build
WORKDIR /build
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY src src
# The kernels are compiled here, so that no container compiles them again.
ENV NUMBA_CACHE_DIR=/var/cache/penstock
RUN python -m venv /opt/penstock \
    && /opt/penstock/bin/pip install --no-cache-dir --disable-pip-version-check --constraint constraints.txt ".[protobuf]" \
    && /opt/penstock/bin/penstock warm

FROM python:3.11-slim-bookworm
RUN groupadd --gid 10001 penstock \
    && useradd --uid 10001 --gid penstock --home-dir /var/lib/penstock --no-create-home --shell /usr/sbin/nologin penstock \
    && install --directory --owner penstock --group penstock --mode 0750 /var/lib/penstock
COPY --from=build /opt/penstock /opt/penstock
# numba uses a cache only if it can write to it.
COPY --from=build --chown=10001:10001 /var/cache/penstock /var/cache/penstock
ENV PATH=/opt/penstock/bin:$PATH \
    NUMBA_CACHE_DIR=/var/cache/penstock \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1
USER 10001:10001
WORKDIR /var/lib/penstock
VOLUME /var/lib/penstock
EXPOSE 9092 8081
STOPSIGNAL SIGTERM
# A start after a crash checks the logs first, which can take minutes.
HEALTHCHECK --interval=15s --timeout=5s --start-period=120s --retries=4 \
    CMD ["python", "-c", "import socket; socket.create_connection(('127.0.0.1', 9092), 4).close()"]
ENTRYPOINT ["penstock"]
CMD ["up", "--dir", "/var/lib/penstock"]
