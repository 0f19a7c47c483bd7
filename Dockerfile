# The service alone: no Spark, no Kafka client, no test tools.
#
#   docker build -t rallypoint .
#   docker run -p 8000:8000 -v rallypoint:/data -e RALLYPOINT_INSECURE=true rallypoint
#
# Inside a container the service must listen beyond loopback, and there it starts only once somebody has decided who
# may speak to it: put the hash that `docker run rallypoint rallypoint token` draws into RALLYPOINT_TOKENS, or say
# RALLYPOINT_INSECURE=true on a network in which everyone may do everything. Clients that call it by another name than
# localhost need RALLYPOINT_ADVERTISED_URL=http://NAME:8000.

FROM python:3.11-slim AS build
WORKDIR /src
RUN python -m venv /opt/rallypoint
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY protocol protocol
COPY assignors assignors
COPY coordinator coordinator
COPY member member
COPY spark_bridge spark_bridge
COPY cli cli
RUN /opt/rallypoint/bin/pip install --no-cache-dir -c constraints.txt .

FROM python:3.11-slim
RUN useradd --system --uid 10001 --create-home rallypoint && install -d -o rallypoint /data
COPY --from=build /opt/rallypoint /opt/rallypoint
ENV PATH=/opt/rallypoint/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    RALLYPOINT_HOST=0.0.0.0 \
    RALLYPOINT_PORT=8000 \
    RALLYPOINT_STORAGE=sqlite:////data/rallypoint.db
USER rallypoint
WORKDIR /data
VOLUME /data
EXPOSE 8000
# A stop answers the calls that wait, which may take RALLYPOINT_DRAIN_TIMEOUT_MS (10 s): docker stop -t 30.
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=5s --start-period=10s CMD ["python", "-c", "import os, urllib.request as u; u.build_opener(u.ProxyHandler({})).open('http://127.0.0.1:' + os.environ['RALLYPOINT_PORT'] + '/healthz', timeout=4)"]
CMD ["rallypoint", "serve"]
