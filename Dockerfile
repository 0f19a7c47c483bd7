# The service alone: no Spark, no Kafka client, no test tools.
#
#   docker build -t rallypoint .
#   docker run --rm rallypoint rallypoint token
#   docker run -d --name rallypoint -p 8000:8000 -v rallypoint:/data -e RALLYPOINT_TOKENS=sha256:... rallypoint
#
# In a container the service listens beyond loopback, so it starts only where it is said who may speak to it. The second
# command draws a token and prints its hash, which RALLYPOINT_TOKENS takes; clients show the token itself. Where everyone
# who reaches the port may do everything, say -e RALLYPOINT_INSECURE=true instead.
#
# Called by another name than localhost, the service answers 403 until it knows the name: say
# -e RALLYPOINT_ADVERTISED_URL=http://NAME:8000, or more names by -e RALLYPOINT_ALLOWED_HOSTS=NAME,NAME.
#
# For several nodes on an etcd, say -e RALLYPOINT_STORAGE=etcd://HOST:2379 and an advertised URL on each.
#
# All data is in /data. A backup while it runs:
#
#   docker exec rallypoint rallypoint backup /data/backup.db

FROM python:3.11-slim AS build
WORKDIR /src
RUN python -m venv /opt/rallypoint
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY src src
COPY protocol protocol
COPY assignors assignors
COPY coordinator coordinator
COPY member member
COPY spark_bridge spark_bridge
COPY cli cli
RUN /opt/rallypoint/bin/pip install --no-cache-dir -c constraints.txt ".[etcd]"

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
# A stop answers the calls that wait, which may take RALLYPOINT_DRAIN_TIMEOUT_MS (8 s): docker stop -t 30.
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=5s --start-period=10s CMD ["python", "-c", "import os, urllib.request as u; u.build_opener(u.ProxyHandler({})).open('http://127.0.0.1:' + os.environ['RALLYPOINT_PORT'] + '/healthz', timeout=4)"]
CMD ["rallypoint", "serve"]
