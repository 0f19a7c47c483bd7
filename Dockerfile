# The service alone: no Spark bridge, no Kafka client, no tests, no pip of its own, no compiler. The modules that each call passes
# through are compiled.
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
# All data is in /data, and nothing else is written: --read-only --tmpfs /tmp --cap-drop ALL is enough for it. A backup
# while it runs:
#
#   docker exec rallypoint rallypoint backup /data/backup.db
#
# docs/deploy.md has more: this in compose and in Kubernetes, and how to build the same image twice.

# What the image stands on. A tag moves; --build-arg BASE_DIGEST=sha256:... holds one version of it.
ARG BASE=docker.io/library/python:3.11-slim
ARG BASE_DIGEST=
# What the package is built on. It has the same Python, and may have a C compiler; else apt-get installs one there.
ARG BUILD_BASE=${BASE}${BASE_DIGEST:+@${BASE_DIGEST}}

FROM ${BUILD_BASE} AS build
# The modules that each call passes through are compiled, which takes a processor four to eight minutes and 1.2 GB
# of memory. With 0 the package is pure Python, and no compiler is needed.
ARG COMPILED=1
WORKDIR /src
COPY scripts/image/compiler.sh scripts/image/
RUN scripts/image/compiler.sh "$COMPILED"
# What the image gets, and what builds it: both are filled by the base's pip, and have none of their own. The second also
# finds the libraries of the first, whose types mypyc reads.
RUN python3 -m venv --without-pip /opt/rallypoint && python3 -m venv --without-pip /opt/build \
    && echo /opt/rallypoint/lib/python3*/site-packages >"$(echo /opt/build/lib/python3*/site-packages)/of_the_image.pth"
# The libraries, before the sources, which change more often.
COPY constraints.txt pyproject.toml ./
RUN python3 -c 'import tomllib; project = tomllib.load(open("pyproject.toml", "rb"))["project"]; \
        extras = project["optional-dependencies"]; \
        print(*project["dependencies"], *extras["etcd"], *extras["oidc"], sep="\n")' >libraries.txt \
    && python3 -m pip --python /opt/rallypoint/bin/python install --no-cache-dir -c constraints.txt -r libraries.txt \
    && python3 -m pip --python /opt/build/bin/python install --no-cache-dir -c constraints.txt "setuptools>=77" mypy
COPY setup.py README.md LICENSE ./
COPY src src
COPY protocol protocol
COPY assignors assignors
COPY coordinator coordinator
COPY member member
COPY cli cli
RUN RALLYPOINT_COMPILED=$COMPILED python3 -m pip --python /opt/build/bin/python wheel \
        --no-deps --no-build-isolation --wheel-dir wheel . \
    && python3 -m pip --python /opt/rallypoint/bin/python install --no-index "$(echo /src/wheel/*.whl)[etcd,oidc]"

FROM ${BASE}${BASE_DIGEST:+@${BASE_DIGEST}}
ARG BASE
ARG BASE_DIGEST
ARG VERSION=
ARG REVISION=
LABEL org.opencontainers.image.title="rallypoint" \
      org.opencontainers.image.description="Consumer groups over HTTP: the group coordinator service" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.base.name="${BASE}" \
      org.opencontainers.image.base.digest="${BASE_DIGEST}"
RUN useradd --uid 10001 --user-group --home-dir /data --shell /bin/false rallypoint \
    && install -d -o rallypoint -g rallypoint -m 750 /data
COPY --from=build /opt/rallypoint /opt/rallypoint
COPY scripts/image/health.py /opt/rallypoint/health.py
ENV PATH=/opt/rallypoint/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    RALLYPOINT_HOST=0.0.0.0 \
    RALLYPOINT_PORT=8000 \
    RALLYPOINT_STORAGE=sqlite:////data/rallypoint.db
# It runs on this base, too, and says whether it is compiled.
RUN rallypoint --version
# By number, so that an orchestrator sees that it is not root.
USER 10001:10001
WORKDIR /data
VOLUME /data
EXPOSE 8000
# A stop answers the calls that wait, which may take RALLYPOINT_DRAIN_TIMEOUT_MS (8 s): docker stop -t 30.
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=9s --start-period=10s CMD ["python", "/opt/rallypoint/health.py"]
CMD ["rallypoint", "serve"]
