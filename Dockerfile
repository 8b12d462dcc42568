# The server in a container. Rows and policy are mounted at /data, read-only; the ledger is in PostgreSQL or at /state.
FROM python:3.13-slim AS build
WORKDIR /src
COPY pyproject.toml README.md LICENSE ./
COPY src src
RUN python -m pip wheel --no-cache-dir --wheel-dir /wheels ".[server,postgres,oidc,vault]"

FROM python:3.13-slim
COPY --from=build /wheels /wheels
RUN python -m pip install --no-cache-dir --no-index --find-links /wheels "deniable[server,postgres,oidc,vault]" \
    && rm -rf /wheels \
    && useradd --system --uid 10001 --create-home --home-dir /state deniable
USER deniable
ENV DENIABLE_STATE=/state NUMBA_CACHE_DIR=/state/kernels
VOLUME /state
EXPOSE 8400 5433
ENTRYPOINT ["deniable"]
CMD ["serve", "/data/policy.yaml", "--host", "0.0.0.0", "--certificate", "/tls/server.crt", "--key", "/tls/server.key"]
